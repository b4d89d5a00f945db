//! The levels of the index. A long part has a coarse level. Each of its intervals has a part of the fine level, which is
//! made when somebody needs it. Which of them there are is nothing but a matter of time: questions get the same answers.

use super::Engine;
use crate::index::{IndexPart, PartRange};
use crate::{Cancel, Result, ThreadId};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Gets the part of the fine level in an interval of a part.
type Finer<'a> = dyn Fn(&IndexPart, usize) -> Result<Option<Arc<IndexPart>>> + 'a;

/// An interval that somebody looked for.
pub struct Looked {
    pub part: Arc<IndexPart>,
    /// Its number in the part.
    pub interval: usize,
    /// It has what was looked for, and is of the finest level that there is. Otherwise no finer interval in it has that.
    pub touched: bool,
}

impl Looked {
    /// Where the interval begins, and where it ends.
    pub fn bounds(&self) -> (u64, u64) {
        self.part.bounds(self.interval)
    }
}

impl Engine {
    /// The part of the fine level in an interval of a coarse part. `None`: the part is not coarse.
    pub fn fine(
        self: &Arc<Self>,
        part: &IndexPart,
        interval: usize,
        cancel: &Cancel,
    ) -> Result<Option<Arc<IndexPart>>> {
        let range = self.fine_range(part, interval);
        range.map(|r| self.part(r, cancel)).transpose()
    }

    /// Where that part lies.
    pub fn fine_range(&self, part: &IndexPart, interval: usize) -> Option<PartRange> {
        let coarse = part.range.is_coarse();
        coarse.then(|| part.range.fine(self, part.bounds(interval)))
    }

    /// The ranges of the finest level in a part.
    pub fn finest_ranges(
        self: &Arc<Self>,
        range: PartRange,
        cancel: &Cancel,
    ) -> Result<Vec<PartRange>> {
        if !range.is_coarse() {
            return Ok(vec![range]);
        }
        let part = self.part(range, cancel)?;
        let all = 0..part.borders.len();
        Ok(all.filter_map(|i| self.fine_range(&part, i)).collect())
    }

    /// The finest index that is there for instruction `count` of a range.
    pub fn nearest_if_built(&self, range: PartRange, count: u64) -> Option<Arc<IndexPart>> {
        let part = self.part_if_built(range)?;
        let fine = self.fine_range(&part, part.interval(count));
        fine.and_then(|f| self.part_if_built(f)).or(Some(part))
    }

    /// The finest index for instruction `count` of a range.
    pub fn finest(
        self: &Arc<Self>,
        range: PartRange,
        count: u64,
        cancel: &Cancel,
    ) -> Result<Arc<IndexPart>> {
        let part = self.part(range, cancel)?;
        let fine = self.fine(&part, part.interval(count), cancel)?;
        Ok(fine.unwrap_or(part))
    }

    /// Looks for the interval that has instruction `count` of a range. A finer one is only looked at, and made, if
    /// `touched` says of the coarser one that it has what is looked for.
    pub fn look(
        self: &Arc<Self>,
        range: PartRange,
        count: u64,
        cancel: &Cancel,
        touched: &mut dyn FnMut(&IndexPart, usize) -> Result<bool>,
    ) -> Result<Looked> {
        self.look_with(range, count, cancel, touched, &|part, i| {
            self.fine(part, i, cancel)
        })
    }

    /// The same without making a part of the fine level. Where it is missing, a coarse interval may have what is looked for.
    pub fn look_at_built(
        self: &Arc<Self>,
        range: PartRange,
        count: u64,
        cancel: &Cancel,
        touched: &mut dyn FnMut(&IndexPart, usize) -> Result<bool>,
    ) -> Result<Looked> {
        self.look_with(range, count, cancel, touched, &|part, i| {
            let range = self.fine_range(part, i);
            Ok(range.and_then(|r| self.part_if_built(r)))
        })
    }

    /// The same. `finer` gets the part of the fine level.
    fn look_with(
        self: &Arc<Self>,
        range: PartRange,
        count: u64,
        cancel: &Cancel,
        touched: &mut dyn FnMut(&IndexPart, usize) -> Result<bool>,
        finer: &Finer,
    ) -> Result<Looked> {
        let mut part = self.part(range, cancel)?;
        loop {
            let interval = part.interval(count);
            let touched = touched(&part, interval)?;
            let finer = match touched {
                true => finer(&part, interval)?,
                false => None,
            };
            part = match finer {
                Some(finer) => finer,
                None => {
                    return Ok(Looked {
                        part,
                        interval,
                        touched,
                    });
                }
            };
        }
    }

    /// The intervals that have instructions `from..to` of a thread. Coarse ones are among them if they lie in it as a
    /// whole.
    pub fn intervals(
        self: &Arc<Self>,
        thread: ThreadId,
        (from, to): (u64, u64),
        cancel: &Cancel,
    ) -> Result<Vec<(Arc<IndexPart>, RangeInclusive<usize>)>> {
        let mut out: Vec<(Arc<IndexPart>, RangeInclusive<usize>)> = Vec::new();
        let mut at = from;
        while at < to
            && let Some(part) = self.part_at(thread, at, cancel)?
        {
            let mut list = Vec::new();
            for i in part.interval(at)..=part.interval(to - 1) {
                let (begin, end) = part.bounds(i);
                let cut = begin < from || to < end;
                let fine = match cut {
                    true => self.fine(&part, i, cancel)?,
                    false => None,
                };
                list.push(match fine {
                    Some(fine) => {
                        let its = fine.interval(at.max(begin))
                            ..=fine.interval(to.min(end).saturating_sub(1));
                        (fine, its)
                    }
                    None => (Arc::clone(&part), i..=i),
                });
            }
            at = part.to.max(at + 1);
            // Neighbours of one part are asked together.
            for (part, its) in list {
                match out.last_mut() {
                    Some((before, have)) if Arc::ptr_eq(before, &part) => {
                        *have = *have.start()..=*its.end();
                    }
                    _ => out.push((part, its)),
                }
            }
        }
        Ok(out)
    }
}
