//! The index of a part in the making.

use super::by_page::Generations;
use super::codec::{LEVEL, LEVEL_STEPS, LINE, PAGE, bits};
use super::frame::{FrameMaker, IndexFrame};
use super::given;
use super::history::History;
use super::maker::Maker;
use super::page_access::PageAccess;
use super::summary::{FinalLine, IntervalSummary, covered};
use super::told::Told;
use crate::base::sync::spawn;
use crate::scan::Scan;
use crate::{Error, Result, ThreadId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A stretch of a thread between two frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    pub from: u64,
    pub to: u64,
    pub frame: IndexFrame,
    pub history: Told,
    /// Its [`IntervalSummary`], compressed.
    pub summary: Arc<[u8]>,
}

/// The index of one part of a thread in the making.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft {
    pub thread: ThreadId,
    pub from: u64,
    pub to: u64,
    pub intervals: Vec<Interval>,
    /// The first intervals, sorted by page.
    pub generations: Generations,
}

impl Interval {
    /// The sections of the interval in the index, in order.
    pub fn sections(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        [&self.frame.blob, &self.summary].into_iter()
    }

    pub fn size(&self) -> usize {
        self.frame.blob.len() + self.summary.len() + self.history.size() + 16
    }

    /// How memory changed in it. `None`: the data is damaged.
    pub fn summary(&self) -> Option<IntervalSummary> {
        IntervalSummary::new(&self.summary, self.frame.open()?.1, self.from)
    }

    /// This interval and the next one as one.
    ///
    /// - `changes`: memory that something else than the thread's instructions changed in the second, by address and
    ///   length.
    /// - `stepped`: the intervals have steps, and frames with all lines that they access.
    pub fn join(&self, next: &Interval, changes: &[(u64, u64)], stepped: bool) -> Result<Interval> {
        let damaged = || Error::Unsupported("a frame in memory does not decode".into());
        let level = if stepped { LEVEL_STEPS } else { LEVEL };
        let summary = [self, next].map(|i| i.summary().ok_or_else(damaged));
        let [mine, others] = summary;
        let (mine, others) = (mine?, others?);
        let (had, has) = (self.history.plain()?, next.history.plain()?);
        let [state, behind] = [self, next].map(|i| i.frame.open());
        let (state, behind) = (state.ok_or_else(damaged)?.0, behind.ok_or_else(damaged)?.0);
        let (mut frame, mut maker) = (FrameMaker::default(), Maker::default());
        let mut history = History::default();
        // Page by page: all lines of both may be much memory.
        for page in had.pages().chain(has.pages()).collect::<BTreeSet<u32>>() {
            let both = [had, has].map(|history| history.touched(page));
            // The new frame needs each line that the second interval reads. A line that the first read is there
            // already. If the first has only written it, or not touched it, what the second found serves.
            let served = both[0].as_ref().map_or(0, |t| match stepped {
                true => t.any(),
                false => t.reads,
            });
            let mask = mine.framed(page);
            let new = others.framed(page) & !mask & !served;
            let mut base = [0; PAGE];
            for i in bits(mask | new) {
                let from = if mask & (1 << i) != 0 { &mine } else { &others };
                let line = from.first(page, i).ok_or_else(damaged)?;
                base[i * LINE..(i + 1) * LINE].copy_from_slice(&line);
                frame.line(&line);
            }
            frame.page(page, mask | new, level)?;
            let mut words = [[0u8; 2]; 64];
            for t in both.iter().flatten() {
                for (a, b) in words.iter_mut().zip(t.lines()) {
                    *a = [a[0] | b[0], a[1] | b[1]];
                }
            }
            let mut t = PageAccess::new(page, &words);
            let of = |k: usize, summary: &IntervalSummary, i: usize| -> Result<Option<FinalLine>> {
                let touched = both[k].as_ref().filter(|t| t.any() & (1 << i) != 0);
                // Steps keep their contents as they are.
                let line = || match stepped {
                    true => Some([0; LINE]),
                    false => summary.line(page, i),
                };
                let end = touched.map(|t| Some(t.end(i, line()?)));
                end.map(|e| e.ok_or_else(damaged)).transpose()
            };
            let end = |i: usize| -> Result<FinalLine> {
                let (first, last) = (of(0, &mine, i)?, of(1, &others, i)?);
                let wiped = (changes.iter()).fold(0, |m, c| m | covered(page, i, c.0, c.1));
                Ok(match (first, last) {
                    (Some(a), Some(b)) => b.after(&a, wiped),
                    (Some(a), None) => a.wiped(wiped),
                    (None, b) => b.unwrap_or_default(),
                })
            };
            let mut all = [FinalLine::default(); 64];
            for i in bits(t.any()) {
                all[i] = end(i)?;
            }
            match stepped {
                true => bits(t.any()).for_each(|i| t.set_masks(i, all[i].masks)),
                false => {
                    maker.page(&mut t, Some((mask | new, &base)), |i| all[i]);
                    maker.relieve(level)?;
                }
            }
            history.push(&t);
        }
        if stepped {
            maker.stepped = true;
            maker.append(&mine, None).ok_or_else(damaged)?;
            let given = given::between([had, has], [&mine, &others], changes);
            maker.add_to_last(given.ok_or_else(damaged)?);
            maker.append(&others, Some(behind)).ok_or_else(damaged)?;
            maker.thin();
        }
        Ok(Interval {
            from: self.from,
            to: next.to,
            frame: frame.finish(&state, level)?,
            history: history.into(),
            summary: maker.pack(level)?,
        })
    }
}

impl Draft {
    /// Its approximate size in bytes.
    pub fn size(&self) -> usize {
        self.intervals.iter().map(Interval::size).sum()
    }

    /// Halves the number of frames.
    pub fn thin(&mut self, scan: &Scan, stepped: bool) -> Result<()> {
        // All processors are free for this now.
        let cores = hindsight_guard::processors();
        let share = self.intervals.len().div_ceil(cores).next_multiple_of(2);
        let share = share.max(2);
        let mut intervals = std::mem::take(&mut self.intervals).into_iter().peekable();
        let mut shares = Vec::new();
        while intervals.peek().is_some() {
            shares.push(intervals.by_ref().take(share).collect::<Vec<_>>());
        }
        let join = |share: Vec<Interval>| -> Result<Vec<Interval>> {
            let (mut all, mut rest) = (Vec::with_capacity(share.len() / 2 + 1), share.into_iter());
            while let Some(a) = rest.next() {
                // The two go before the next ones are joined: all together are much memory.
                all.push(match rest.next() {
                    Some(b) => a.join(&b, &scan.changed(b.from, b.to), stepped)?,
                    None => a,
                });
            }
            Ok(all)
        };
        self.intervals = std::thread::scope(|s| {
            let join = &join;
            let shares = shares.into_iter();
            let joined: Vec<_> = shares.map(|i| spawn(s, move || join(i))).collect();
            let mut all = Vec::new();
            for j in joined {
                match j.join() {
                    Ok(part) => all.extend(part?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok::<_, Error>(all)
        })?;
        Ok(())
    }
}
