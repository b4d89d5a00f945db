//! A question about memory, while it is being answered.

use crate::engine::Engine;
use crate::model::memory::{Candidate, Detail, Ground, KnownByte, Memory, Why};
use crate::model::stops::Cancel;
use crate::play::Player;
use crate::recording::Clobbers;
use crate::recording::celled::Celled;
use crate::scan::{FORKS, Instant, Raw, Source, When};
use crate::{Position, Result, ThreadId};
use std::ops::Range;
use std::sync::Arc;

/// A question, and what was found out so far.
pub struct Query {
    pub m: Memory,
    /// Bytes whose value is lost: it is not known, and earlier accesses do not tell it.
    pub lost: Vec<bool>,
    /// The access that makes a byte known, where it is one.
    pub when: Vec<Option<When>>,
    /// For lost bytes: the access that lost the value, if that may turn out not to matter.
    pub unclear: Vec<Option<When>>,
    /// Whether candidates are asked for too.
    pub detail: Detail,
    /// Cancels the search for an answer.
    pub cancel: Cancel,
    pub judge: Option<Judge>,
}

/// Knows what else may have changed memory.
pub struct Judge {
    pub clobbers: Arc<Clobbers>,
    pub now: Instant,
    pub engine: Arc<Engine>,
}

impl Query {
    pub fn new(address: u64, len: usize, cancel: &Cancel) -> Query {
        Query {
            m: Memory {
                address,
                bytes: vec![None; len],
                candidates: Vec::new(),
                unnamed: Vec::new(),
                silent: Vec::new(),
            },
            lost: vec![false; len],
            when: vec![None; len],
            unclear: vec![None; len],
            detail: Detail::Candidates,
            cancel: cancel.clone(),
            judge: None,
        }
    }

    /// The same question about some of the bytes, with nothing known yet.
    pub fn part(&self, from: usize, to: usize) -> Query {
        let mut q = Query::new(
            self.m.address.wrapping_add(from as u64),
            to - from,
            &self.cancel,
        );
        q.judge = self.judge.as_ref().map(|j| Judge {
            clobbers: Arc::clone(&j.clobbers),
            now: j.now.clone(),
            engine: j.engine.clone(),
        });
        q
    }

    /// Whether nothing more can be found out.
    pub fn whole(&self) -> bool {
        let mut both = self.m.bytes.iter().zip(&self.lost);
        both.all(|(b, lost)| b.is_some() || *lost)
    }

    /// Whether byte `i` is still to be found out.
    pub fn open(&self, i: usize) -> bool {
        self.m.bytes[i].is_none() && !self.lost[i]
    }

    /// A thread accessed byte `i` at `when`, but the value was lost.
    pub fn lose(&mut self, i: usize, when: When) {
        (self.lost[i], self.unclear[i]) = (true, Some(when));
    }

    /// The threads whose losses may not matter.
    pub fn unclear(&self) -> Vec<ThreadId> {
        let mut all: Vec<ThreadId> = self.unclear.iter().flatten().map(|w| w.thread).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn len(&self) -> u64 {
        self.m.bytes.len() as u64
    }

    /// Whether something else may have changed byte `i` since `when`.
    pub fn may_have_changed(&self, i: usize, when: When) -> Result<bool> {
        let Some(j) = &self.judge else {
            return Ok(false);
        };
        let seen = j.engine.segment(when.thread, when.from)?;
        let at = self.m.address.wrapping_add(i as u64);
        Ok(j.clobbers.may_have_changed(at, when, &seen, &j.now))
    }

    /// The same for some bytes: those that something else may have changed, in their order.
    pub fn changed(&self, bytes: Range<usize>, when: When) -> Result<Vec<Range<usize>>> {
        let Some(j) = &self.judge else {
            return Ok(Vec::new());
        };
        let seen = j.engine.segment(when.thread, when.from)?;
        let stretch = (
            self.m.address.wrapping_add(bytes.start as u64),
            bytes.len() as u64,
        );
        let parts = j.clobbers.parts(stretch, when, &seen, &j.now);
        let offset = |at: u64| bytes.start + at.wrapping_sub(stretch.0) as usize;
        let all = parts.into_iter().map(|p| offset(p.start)..offset(p.end));
        Ok(all.collect())
    }

    /// Makes the values of bytes `from..to` candidates: they were so at `when`, but are not certain now.
    pub fn make_candidate(&mut self, from: usize, to: usize, when: When, why: Why, at: Position) {
        let bytes = self.m.bytes[from..to].iter();
        self.m.candidates.push(Candidate {
            address: self.m.address.wrapping_add(from as u64),
            bytes: bytes.map(|b| b.map_or(0, |k| k.value)).collect(),
            thread: when.thread,
            position: at,
            why,
        });
        for i in from..to {
            (self.m.bytes[i], self.lost[i]) = (None, true);
        }
    }
}

/// For each byte the instruction before which nothing is known that still holds at `count`. Knowledge ends at a gap,
/// and where memory was mapped anew or the kernel changed it.
pub fn floor(engine: &Engine, thread: ThreadId, m: &Memory, count: u64) -> Result<Vec<u64>> {
    let scan = engine.scan(thread)?;
    let gap = scan.gaps[..scan.gaps.partition_point(|g| g.start < count)].last();
    // In a gap nothing is known.
    let gap = gap.map_or(0, |g| g.end.min(count));
    let sources = scan.sources_of(m.address, m.bytes.len(), count);
    let mapped = sources.iter().map(|s| s.map_or(0, |s| s.at));
    Ok(mapped.map(|at| at.max(gap)).collect())
}

/// Where sources of a thread are in the total order. Neighbours mostly have the same one.
pub fn positions(
    engine: &Engine,
    thread: ThreadId,
    sources: &[Option<Source>],
) -> Result<Vec<Option<Position>>> {
    let mut last: Option<(u64, Position)> = None;
    let mut out = Vec::with_capacity(sources.len());
    for s in sources {
        let at = match (s, last) {
            (None, _) => None,
            (Some(s), Some((at, position))) if at == s.at => Some(position),
            (Some(s), _) => {
                let position = engine.position(thread, s.at)?;
                last = Some((s.at, position));
                Some(position)
            }
        };
        out.push(at);
    }
    Ok(out)
}

/// Whether other mappings of an image that there were up to an instant share cells of the window with the bytes in
/// question. `None`: up to the end.
pub fn shares_cells(
    engine: &Arc<Engine>,
    image: u32,
    until: Option<Position>,
    m: &Memory,
) -> Result<bool> {
    let celled = Celled::at(&engine.changes(image)?, until);
    Ok(celled.aliases(m.address, m.bytes.len() as u64))
}

/// Fills in bytes that were executed.
pub fn code(p: &Player, m: &mut Memory) {
    let (address, len) = (m.address, m.bytes.len());
    let (bytes, candidates) = (&mut m.bytes, &m.candidates);
    p.known_code(address, len, &mut |from, piece| {
        for (i, value) in (from..).zip(piece) {
            let at = address.wrapping_add(i as u64);
            let doubted = |c: &Candidate| c.address <= at && at - c.address < c.bytes.len() as u64;
            if bytes[i].is_none() && !candidates.iter().any(doubted) {
                bytes[i] = Some(KnownByte {
                    value: *value,
                    ground: Ground::Code,
                });
            }
        }
    });
}

/// The threads of an image that a thread creates only after an instant. They matter if there are gaps: the calls in a
/// gap have no order numbers that could tell.
pub fn unborn(engine: &Arc<Engine>, image: u32, home: (ThreadId, u64)) -> Result<Vec<ThreadId>> {
    let scan = engine.scan(home.0)?;
    if scan.gaps.is_empty() {
        return Ok(Vec::new());
    }
    let made = |e: &(u64, Raw)| match e.1 {
        Raw::Syscall {
            number,
            result: Some(result),
            ..
        } if FORKS.contains(&number) => Some(result as i32),
        _ => None,
    };
    let now = scan.events.partition_point(|e| e.0 < home.1);
    let before: Vec<i32> = scan.events[..now].iter().filter_map(made).collect();
    let behind: Vec<i32> = scan.events[now..].iter().filter_map(made).collect();
    let tid = |t: &ThreadId| engine.trace.stream_info(t.0).map_or(0, |i| i.tid);
    let mut out = engine.threads_of(image);
    out.retain(|t| behind.contains(&tid(t)) && !before.contains(&tid(t)));
    Ok(out)
}
