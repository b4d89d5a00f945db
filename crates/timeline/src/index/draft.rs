//! The index of a part in the making.

use super::by_page::Generations;
use super::codec::{LEVEL, LEVEL_STEPS, LINE, PAGE};
use super::frame::IndexFrame;
use super::given;
use super::history::History;
use super::maker::Maker;
use super::page_access::PageAccess;
use super::summary::{FinalLine, IntervalSummary, covered};
use super::told::Told;
use crate::base::sync::spawn;
use crate::scan::Scan;
use crate::{Error, Result, ThreadId};
use std::collections::BTreeMap;
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
        let (state, mut lines) = self.frame.unpack().ok_or_else(damaged)?;
        let (behind, more) = next.frame.unpack().ok_or_else(damaged)?;
        for (page, (mask, bytes)) in more {
            let (have, mine) = lines
                .entry(page)
                .or_insert_with(|| (0, Box::new([0; PAGE])));
            // The new frame needs each line that the second interval reads. A line that the first read is there
            // already. If the first has only written it, or not touched it, what the second found serves.
            let zero = had.touched(page).map_or(0, |t| match stepped {
                true => t.any(),
                false => t.reads,
            });
            let new = mask & !*have & !zero;
            for i in (0..64).filter(|i| new & (1 << i) != 0) {
                let part = i * LINE..(i + 1) * LINE;
                mine[part.clone()].copy_from_slice(&bytes[part]);
            }
            *have |= new;
        }
        let mut pages: BTreeMap<u32, [[u8; 2]; 64]> = BTreeMap::new();
        for t in had.iter().chain(has.iter()) {
            let mine = pages.entry(t.page).or_insert([[0; 2]; 64]);
            for (a, b) in mine.iter_mut().zip(t.lines()) {
                *a = [a[0] | b[0], a[1] | b[1]];
            }
        }
        let mut history: Vec<PageAccess> =
            pages.iter().map(|(p, w)| PageAccess::new(*p, w)).collect();
        let mut maker = Maker::default();
        for t in &mut history {
            let (page, any) = (t.page, t.any());
            let both = [had, has].map(|history| history.touched(page));
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
            for i in (0..64).filter(|i| any & (1 << i) != 0) {
                all[i] = end(i)?;
            }
            if stepped {
                let lines = (0..64).filter(|i| any & (1 << i) != 0);
                lines.for_each(|i| t.set_masks(i, all[i].masks));
                continue;
            }
            let base = lines.get(&t.page).map(|l| (l.0, &*l.1));
            maker.page(t, base, |i| all[i]);
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
            frame: IndexFrame::pack(&state, &lines, level)?,
            history: history.into_iter().collect::<History>().into(),
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
        let join = |pair: &[Interval]| match pair {
            [a, b] => a.join(b, &scan.changed(b.from, b.to), stepped),
            _ => Ok(pair[0].clone()),
        };
        // All processors are free for this now.
        let cores = hindsight_guard::processors();
        let share = self.intervals.len().div_ceil(cores).next_multiple_of(2);
        self.intervals = std::thread::scope(|s| {
            let shares = self.intervals.chunks(share.max(2));
            let joined: Vec<_> = shares
                .map(|i| spawn(s, move || i.chunks(2).map(join).collect::<Result<Vec<_>>>()))
                .collect();
            let mut all = Vec::with_capacity(self.intervals.len().div_ceil(2));
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
