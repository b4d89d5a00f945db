//! The value of memory at a position.

mod accessed;
mod agreed;
mod begin;
mod certain;
mod condition;
mod evident;
mod exposed;
mod files;
mod just;
mod others;
mod past;
mod races;

pub use condition::read;
pub use just::{behind, nothing_between, stays};

use crate::engine::Inner;
use crate::model::memory::{Candidate, Memory, Why};
use crate::model::stops::Cancel;
use crate::play::Player;
use crate::recording::clobbers::{Doubts, Instant, When};
use crate::recording::maps;
use crate::scan::Raw;
use crate::{Cursor, Error, Position, Result, ThreadId, Timeline};
use std::sync::Arc;

/// System calls that make processes.
pub(crate) const FORKS: [u64; 4] = [56, 57, 58, 435];

/// A question, and what has been found out.
pub struct Query {
    pub m: Memory,
    /// Bytes whose value is not known, and is not to be had from what was before.
    pub lost: Vec<bool>,
    /// When what is known was accessed, where that is why it is known.
    pub when: Vec<Option<When>>,
    /// Of bytes that are lost since what a thread accessed was lost: when that was, if it may not matter.
    unclear: Vec<Option<When>>,
    /// The other values that memory may have are asked for too.
    named: bool,
    /// What ends the search for an answer.
    pub cancel: Cancel,
    judge: Option<Judge>,
}

/// Who knows what else may have changed memory.
struct Judge {
    doubts: Arc<Doubts>,
    now: Instant,
    timeline: Timeline,
}

impl Query {
    pub fn new(address: u64, len: usize, cancel: &Cancel) -> Query {
        Query {
            m: Memory {
                address,
                bytes: vec![None; len],
                candidates: Vec::new(),
                unnamed: Vec::new(),
            },
            lost: vec![false; len],
            when: vec![None; len],
            unclear: vec![None; len],
            named: true,
            cancel: cancel.clone(),
            judge: None,
        }
    }

    /// The same question about a part, of which nothing is known yet.
    fn part(&self, from: usize, to: usize) -> Query {
        let mut q = Query::new(
            self.m.address.wrapping_add(from as u64),
            to - from,
            &self.cancel,
        );
        q.judge = self.judge.as_ref().map(|j| Judge {
            doubts: Arc::clone(&j.doubts),
            now: j.now.clone(),
            timeline: j.timeline.clone(),
        });
        q
    }

    /// Whether there is nothing more to be found out.
    pub fn whole(&self) -> bool {
        let mut both = self.m.bytes.iter().zip(&self.lost);
        both.all(|(b, lost)| b.is_some() || *lost)
    }

    /// Whether byte `i` still is to be found out.
    pub fn open(&self, i: usize) -> bool {
        self.m.bytes[i].is_none() && !self.lost[i]
    }

    /// A thread accessed byte `i` at `when`, but what it then held was lost.
    pub fn lose(&mut self, i: usize, when: When) {
        (self.lost[i], self.unclear[i]) = (true, Some(when));
    }

    /// The threads of which something is unclear.
    fn unclear(&self) -> Vec<ThreadId> {
        let mut all: Vec<ThreadId> = self.unclear.iter().flatten().map(|w| w.thread).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn len(&self) -> u64 {
        self.m.bytes.len() as u64
    }

    /// Whether something else may have changed byte `i` since `when`.
    fn doubtful(&self, i: usize, when: When) -> Result<bool> {
        let Some(j) = &self.judge else {
            return Ok(false);
        };
        let seen = j.timeline.segment(when.thread, when.from)?;
        let at = self.m.address.wrapping_add(i as u64);
        Ok(j.doubts.hold(at, when, &seen, &j.now))
    }

    /// What bytes `from..to` hold is not known, but they held this at `when`.
    fn doubt(&mut self, from: usize, to: usize, when: When, why: Why, at: Position) {
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

    fn check(&self) -> Result<()> {
        match self.cancel.is_cancelled() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }
}

/// See [`Cursor::memory`]. `named`: with all values that memory may have, and who wrote them.
pub fn memory(
    cursor: &mut Cursor,
    address: u64,
    len: usize,
    named: bool,
    cancel: &Cancel,
) -> Result<Memory> {
    const WORD: u64 = 4;
    // The kernel changes whole words.
    let start = address & !(WORD - 1);
    let before = (address - start) as usize;
    let most = start.wrapping_neg().wrapping_sub(1).min(1 << 32) as usize;
    let mut q = Query::new(
        start,
        (before + len).next_multiple_of(WORD as usize).min(most),
        cancel,
    );
    q.named = named;
    if len > 0 && before + len <= q.m.bytes.len() {
        let (home, count) = (cursor.thread(), cursor.count());
        let found = cursor.unless(cancel, |c| find(c, &mut q));
        // Nothing is played for it unless it is needed: the way back may be long.
        cursor.set_place(home, count);
        found?;
        if q.m.bytes.iter().any(Option::is_none) {
            code(cursor.here()?, &mut q.m);
        }
    }
    q.m.bytes.resize(before + len, None);
    q.m.bytes.drain(..before);
    q.m.address = address;
    let end = address.saturating_add(len as u64);
    q.m.unnamed.retain_mut(|u| {
        let stop = (u.address + u.len).min(end);
        u.address = u.address.max(address);
        u.len = stop.saturating_sub(u.address);
        u.len > 0
    });
    q.m.candidates.retain_mut(|c| {
        let stop = c.address + c.bytes.len() as u64;
        let (from, to) = (c.address.max(address), stop.min(end));
        if from < to {
            c.bytes = c.bytes[(from - c.address) as usize..(to - c.address) as usize].to_vec();
            c.address = from;
        }
        from < to
    });
    Ok(q.m)
}

fn find(cursor: &mut Cursor, q: &mut Query) -> Result<()> {
    evident::find(cursor, q)?;
    if q.whole() || begin::find(cursor, q)? {
        return Ok(());
    }
    let mut home = (cursor.thread(), cursor.count());
    let timeline = cursor.timeline().clone();
    let mut here = cursor.position()?;
    let mut image = cursor.image();
    let mut segment = timeline.segment(home.0, home.1)?;
    loop {
        q.check()?;
        let threads = threads_at(&timeline, image, home, here)?;
        let all = timeline.0.threads_of(image).len();
        q.judge = Some(Judge {
            doubts: timeline.doubts(image)?,
            now: Instant {
                home,
                segment,
                unborn: unborn(&timeline, image, home)?,
            },
            timeline: timeline.clone(),
        });
        let own = image == cursor.image();
        accessed::find(cursor, image, &threads, all == 1, q)?;
        certain::certain(cursor, image, here, own, q)?;
        if own {
            cursor.place(home.0, home.1)?;
        }
        files::made(cursor, image, &threads, here, q)?;
        if all > 1 {
            let races = if q.named { races::find } else { others::find };
            races(cursor, image, &threads, here, q)?;
        } else if own {
            exposed::find(cursor, q)?;
        }
        files::mapped(cursor, image, here, q)?;
        if q.whole() {
            return Ok(());
        }
        // A forked process began with its parent's memory.
        let Some(parent) = timeline
            .0
            .is_forked(image)
            .then(|| timeline.0.parent(image))
        else {
            return Ok(());
        };
        inherited(&timeline, image, &threads, here, q)?;
        let Some(forked) = forked_by(&timeline, parent, image)? else {
            return Ok(());
        };
        (image, home) = (parent, forked);
        here = timeline.position(home.0, home.1)?;
        segment = timeline.segment(home.0, home.1)?;
    }
}

/// The call by which an image was made as a copy of its parent: thread, and instructions completed before.
pub(crate) fn forked_by(
    timeline: &Timeline,
    parent: u32,
    child: u32,
) -> Result<Option<(ThreadId, u64)>> {
    let info = timeline.trace().image(child);
    let Some((pid, thread)) = info.and_then(|i| Some((i.pid, ThreadId(*i.threads.first()?))))
    else {
        return Ok(None);
    };
    // The number with which the child began, which is behind that of the call.
    let begin = timeline
        .0
        .scan(thread)?
        .numbers
        .first()
        .map_or(u64::MAX, |n| n.0);
    let mut best: Option<(u64, ThreadId, u64)> = None;
    for t in timeline.0.threads_of(parent) {
        let scan = timeline.0.scan(t)?;
        for (count, event) in &scan.events {
            let Raw::Syscall {
                number,
                result: Some(result),
                ..
            } = event
            else {
                continue;
            };
            if FORKS.contains(number) && *result == pid as u64 {
                let opens = scan.segment(t, *count).opens;
                if opens < begin && best.is_none_or(|b| b.0 < opens) {
                    best = Some((opens, t, *count));
                }
            }
        }
    }
    Ok(best.map(|b| (b.1, b.2)))
}

/// The threads of an image that have begun by a position, with the instructions they have completed.
fn threads_at(
    timeline: &Timeline,
    image: u32,
    home: (ThreadId, u64),
    here: Position,
) -> Result<Vec<(ThreadId, u64)>> {
    let mut out = Vec::new();
    for t in timeline.0.threads_of(image) {
        let n = match t == home.0 {
            true => Some(home.1),
            false => timeline.count_at(t, here)?,
        };
        out.extend(n.map(|n| (t, n)));
    }
    Ok(out)
}

/// Threads of an image that a thread makes only behind an instant. Between calls that are not recorded there
/// are no numbers to tell.
fn unborn(timeline: &Timeline, image: u32, home: (ThreadId, u64)) -> Result<Vec<ThreadId>> {
    let scan = timeline.0.scan(home.0)?;
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
    let tid = |t: &ThreadId| timeline.trace().stream_info(t.0).map_or(0, |i| i.tid);
    let mut out = timeline.0.threads_of(image);
    out.retain(|t| behind.contains(&tid(t)) && !before.contains(&tid(t)));
    Ok(out)
}

/// Leaves out of what is asked of the parent what has been changed in the child.
fn inherited(
    timeline: &Timeline,
    image: u32,
    threads: &[(ThreadId, u64)],
    here: Position,
    q: &mut Query,
) -> Result<()> {
    let (address, len) = (q.m.address, q.m.bytes.len());
    let there = timeline.mappings(image, here)?;
    for i in 0..len {
        let at = address.wrapping_add(i as u64);
        let shared = there
            .iter()
            .any(|r| r.start <= at && at < r.end && r.is_shared());
        let changed = q.judge.as_ref().is_some_and(|j| j.doubts.any(at, &j.now));
        q.lost[i] |= q.open(i) && (shared || changed);
    }
    for (t, n) in threads {
        let sources = timeline.0.scan(*t)?.sources_of(address, len, *n);
        for (i, s) in sources.iter().enumerate() {
            q.lost[i] |= q.m.bytes[i].is_none() && s.is_some();
        }
    }
    Ok(())
}

/// For each byte, the instruction before which nothing is known of it that holds at `count`: nothing is
/// known across a gap, nor of what was in memory before it was mapped anew or changed by the kernel.
fn floor(inner: &Inner, thread: ThreadId, m: &Memory, count: u64) -> Result<Vec<u64>> {
    let scan = inner.scan(thread)?;
    let gap = scan.gaps[..scan.gaps.partition_point(|g| g.start < count)].last();
    // In a gap nothing is known.
    let gap = gap.map_or(0, |g| g.end.min(count));
    let sources = scan.sources_of(m.address, m.bytes.len(), count);
    let mapped = sources.iter().map(|s| s.map_or(0, |s| s.at));
    Ok(mapped.map(|at| at.max(gap)).collect())
}

/// Whether mappings of an image share cells of the window with what is asked for.
fn shares_cells(timeline: &Timeline, image: u32, m: &Memory) -> Result<bool> {
    let changes = timeline.changes(image)?;
    Ok(maps::aliased(&changes, m.address, m.bytes.len() as u64))
}

/// Fills in what is known because it was executed.
fn code(p: &Player, m: &mut Memory) {
    let mut one = [0];
    let open: Vec<usize> = (0..m.bytes.len())
        .filter(|i| m.bytes[*i].is_none())
        .collect();
    for i in open {
        let at = m.address.wrapping_add(i as u64);
        let doubted = |c: &Candidate| c.address <= at && at - c.address < c.bytes.len() as u64;
        if !m.candidates.iter().any(doubted) && p.code(at, &mut one) == 1 {
            m.bytes[i] = Some(crate::model::memory::Known {
                value: one[0],
                ground: crate::model::memory::Ground::Code,
            });
        }
    }
}
