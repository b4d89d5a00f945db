//! Ranges of interest, in which the index has more frames.

use super::Engine;
use crate::index::{self, Budget, For, IndexPart, PartRange};
use crate::{Cancel, Error, Position, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit for the intervals in a range. Making more would take memory without bound.
const MOST: u64 = 1 << 16;

/// The shortest interval that this range may have, in instructions.
fn shortest(from: u64, until: u64) -> u64 {
    SHORTEST.max(until.saturating_sub(from).div_ceil(MOST))
}

/// A stretch of a thread that is to have short intervals.
struct Interest {
    /// The stretch: instructions `from..until`.
    from: u64,
    until: u64,
    /// Instructions in an interval.
    interval: u64,
}

impl Interest {
    fn meets(&self, from: u64, to: u64) -> bool {
        from < self.until && self.from < to
    }

    /// Whether a part already has intervals this short in the stretch.
    fn is_met_by(&self, part: &IndexPart) -> bool {
        (0..part.borders.len())
            .map(|i| part.bounds(i))
            .filter(|(from, to)| self.meets(*from, *to))
            .all(|(from, to)| to - from <= self.interval)
    }

    /// Where the intervals of a part are to begin. Outside the stretch they stay as they are. A part that is not built
    /// has them `span` instructions apart there.
    fn borders(&self, range: PartRange, part: Option<&IndexPart>, span: u64) -> Vec<u64> {
        let steps = |from: u64, to: u64, by: u64| {
            (from..to).step_by(usize::try_from(by.max(1)).unwrap_or(usize::MAX))
        };
        let (from, until) = (self.from.max(range.from), self.until.min(range.to));
        let mut out: Vec<u64> = match part {
            Some(p) => p.borders.clone(),
            None => steps(range.from, range.to, span).collect(),
        };
        out.extend(steps(from, until, self.interval));
        out.push(until);
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// A range in which the index is to have more frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dense {
    /// The first instant.
    pub from: Position,
    /// One past the last instant.
    pub until: Position,
    /// The number of instructions from one frame to the next. At least 1024, and at least a 65536th of the range.
    pub interval: u64,
}

/// The shortest interval of a range of interest, in instructions. With shorter ones frames would cost more than steps
/// gain.
pub const SHORTEST: u64 = 1 << 10;

impl Engine {
    /// See [`crate::Timeline::interest`].
    pub fn interest(
        self: &Arc<Self>,
        Dense {
            from,
            until,
            interval,
        }: Dense,
        progress: &(dyn Fn(u64, u64) + Sync),
        cancel: &Cancel,
    ) -> Result<usize> {
        if from >= until {
            let what = format!("the range is empty: {from} is not before {until}");
            return Err(Error::Unsupported(what));
        }
        let mut wanted: Vec<(PartRange, Interest)> = Vec::new();
        for (thread, scan) in self.scans()? {
            let new = || -> Result<Interest> {
                let from = self.count_at(*thread, from)?.unwrap_or(scan.from);
                let until = self.count_at(*thread, until)?.unwrap_or(scan.from);
                Ok(Interest {
                    from,
                    until,
                    interval: shortest(from, until).max(interval),
                })
            };
            for range in self.part_ranges_of(*thread).iter() {
                let interest = new()?;
                if interest.from >= interest.until || !interest.meets(range.from, range.to) {
                    continue;
                }
                for range in self.finest_ranges(*range, cancel)? {
                    let interest = new()?;
                    let met = |p: Arc<IndexPart>| interest.is_met_by(&p);
                    if interest.meets(range.from, range.to)
                        && !self.part_if_built(range).is_some_and(met)
                    {
                        wanted.push((range, interest));
                    }
                }
            }
        }
        let lengths = wanted.iter().map(|w| w.0.to - w.0.from);
        let total = lengths.fold(0, u64::saturating_add);
        let done = AtomicU64::new(0);
        for (range, interest) in &wanted {
            self.build_denser(*range, interest, &|n| {
                progress(done.fetch_add(n, Relaxed) + n, total);
                !cancel.is_cancelled()
            })?;
        }
        Ok(wanted.len())
    }
}

impl Engine {
    /// Makes the index of a part anew, and saves it.
    fn build_denser(
        self: &Arc<Self>,
        range: PartRange,
        interest: &Interest,
        progress: &index::Progress,
    ) -> Result<()> {
        let old = self.part_if_built(range);
        let span = index::span(self, range.thread);
        let borders = interest.borders(range, old.as_deref(), span);
        let budget = Budget::new(self.budget(range), range.to - range.from);
        let draft = self.draft_with(range, &borders, &budget, None, progress)?;
        let encoded = draft.encode()?;
        drop(draft);
        self.hold(&Arc::new(IndexPart::made(range, &encoded)?));
        if self.sidecar.add(range, &encoded, For::Index, None)? {
            return Ok(());
        }
        Err(Error::Index {
            path: self.sidecar.path.display().to_string(),
            what:
                "it has no room for a range as dense as this; delete it, or make the range sparser"
                    .into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ThreadId;
    use crate::index::Level;

    #[test]
    fn a_range_has_no_more_intervals_than_fit() {
        let thread = ThreadId(1);
        for (from, until) in [(0, 5000), (7, 1 << 26), (3, 1 << 40), (9, u64::MAX)] {
            let interval = shortest(from, until);
            assert!(interval >= SHORTEST && (until - from).div_ceil(interval) <= MOST);
            let interest = Interest {
                from,
                until,
                interval,
            };
            let range = PartRange {
                thread,
                chunk: 0,
                until: 1,
                stepped: false,
                from: 0,
                to: until,
                last: true,
                level: Level::Only,
            };
            let borders = interest.borders(range, None, u64::MAX);
            // Two more: the part's first border, and the range's end.
            assert!(borders.len() as u64 <= MOST + 2, "{}", borders.len());
        }
        assert_eq!(shortest(5, 4), SHORTEST);
    }
}
