//! Ranges of interest: where the index has its frames denser.

use super::{Inner, Timeline, lock};
use crate::index::{Part, Place};
use crate::{Cancel, Position, Result, ThreadId};

/// A stretch of a thread whose intervals are to be short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest {
    pub thread: ThreadId,
    /// Instructions `from..until`.
    pub from: u64,
    pub until: u64,
    /// Instructions of an interval.
    pub interval: u64,
}

/// Shorter intervals take more for their frames than steps gain by them.
const SHORTEST: u64 = 1 << 10;

impl Interest {
    fn meets(&self, thread: ThreadId, from: u64, to: u64) -> bool {
        self.thread == thread && from < self.until && self.from < to
    }

    /// Whether a part has its intervals there as short as wanted.
    fn is_met_by(&self, part: &Part) -> bool {
        (0..part.borders.len())
            .map(|i| part.bounds(i))
            .filter(|(from, to)| self.meets(part.thread, *from, *to))
            .all(|(from, to)| to - from <= self.interval)
    }
}

impl Inner {
    /// Where an interval that begins at `from` ends; elsewhere they have `span` instructions.
    pub fn interval_end(&self, thread: ThreadId, from: u64, span: u64) -> u64 {
        let mut end = from.saturating_add(span);
        for i in lock(&self.interests).iter() {
            if i.meets(thread, from, end) {
                // Up to where the range begins, or within it.
                end = match i.from > from {
                    true => i.from,
                    false => end.min(from.saturating_add(i.interval)),
                };
            }
        }
        end
    }
}

impl Timeline {
    /// Announces that the instants `from..until` will be looked at closely: there the index gets frames every
    /// `interval` instructions (at least 1024), so that steps back and seeks replay no more than that. The parts of
    /// the index in which the range lies are made anew, and saved beside the trace; the range holds for as long as
    /// the recording is open. Where the index would become larger than it may, frames are made rarer again.
    /// `progress` is told the numbers of instructions done and to do.
    ///
    /// Returns the number of parts that were made.
    pub fn interest(
        &self,
        from: Position,
        until: Position,
        interval: u64,
        progress: &dyn Fn(u64, u64),
        cancel: &Cancel,
    ) -> Result<usize> {
        let inner = &self.0;
        let mut wanted: Vec<(Place, Interest)> = Vec::new();
        for (thread, scan) in self.scans()? {
            let new = Interest {
                thread: *thread,
                from: self.count_at(*thread, from)?.unwrap_or(scan.from),
                until: self.count_at(*thread, until)?.unwrap_or(scan.from),
                interval: interval.max(SHORTEST),
            };
            if new.from >= new.until {
                continue;
            }
            lock(&inner.interests).push(new);
            let places = inner.places_of(*thread);
            let its = places.iter().filter(|p| new.meets(p.thread, p.from, p.to));
            wanted.extend(its.map(|p| (*p, new)));
        }
        let met = |(place, interest): &(Place, Interest)| {
            let part = inner.part_if_built(*place);
            part.is_some_and(|p| interest.is_met_by(&p))
        };
        wanted.retain(|w| !met(w));
        let total = wanted.iter().map(|w| w.0.to - w.0.from).sum();
        let done = std::cell::Cell::new(0);
        for (place, _) in &wanted {
            inner.build(*place, &|n| {
                done.set(done.get() + n);
                progress(done.get(), total);
                !cancel.is_cancelled()
            })?;
        }
        Ok(wanted.len())
    }
}
