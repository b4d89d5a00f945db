//! The total order: segments and positions.

use super::Recording;
use crate::ThreadInstant;
use crate::model::contents::{Segment, ThreadId};
use crate::{Ending, Error, Position, Result};

impl Recording {
    /// The segments of a thread, in order. Empty ones are left out.
    pub fn segments(&self, thread: ThreadId) -> Result<impl Iterator<Item = Segment> + '_> {
        let scan = self.scan(thread)?;
        let all = (0..=scan.numbers.len()).map(move |i| scan.nth(thread, i));
        Ok(all.filter(|s| s.from < s.to))
    }

    /// The segment in which a thread has completed `count` instructions.
    pub fn segment(&self, thread: ThreadId, count: u64) -> Result<Segment> {
        Ok(self.scan(thread)?.segment(thread, count))
    }

    /// The position at which a thread has completed `count` instructions.
    pub fn position(&self, thread: ThreadId, count: u64) -> Result<Position> {
        let scan = self.scan(thread)?;
        Ok(self.position_in(thread, scan, count))
    }

    /// The thread that runs at a position, and how many instructions it has completed there.
    pub fn locate(&self, position: Position) -> Result<ThreadInstant> {
        for (t, scan) in self.scans()? {
            if let Some(s) = scan.opened_by(*t, position.segment) {
                let count = s.count(position.offset);
                return Ok(ThreadInstant {
                    thread: *t,
                    count: count.ok_or(Error::NoPosition(position))?,
                });
            }
        }
        Err(Error::NoPosition(position))
    }

    /// The number of instructions that a thread has completed at a position of the total order. `None`: it has not
    /// begun.
    ///
    /// The thread may be in a segment that was opened before the position. Then the whole segment counts as completed.
    pub fn count_at(&self, thread: ThreadId, position: Position) -> Result<Option<u64>> {
        let scan = self.scan(thread)?;
        if let Some(s) = scan.opened_by(thread, position.segment) {
            let into = position.offset.saturating_sub(s.left_out);
            return Ok(Some(s.from.saturating_add(into).min(s.to)));
        }
        let i = scan.numbers.partition_point(|n| n.0 <= position.segment);
        let before = scan.nth(thread, 0).opens;
        let begun = i > 0 || scan.begins_without_number() && before <= position.segment;
        Ok(begun.then(|| scan.nth(thread, i).to))
    }

    /// The same, where a system call counts only once it has returned: a thread that is in one at the position has not
    /// completed it.
    pub fn returned_at(&self, thread: ThreadId, position: Position) -> Result<Option<u64>> {
        let Some(count) = self.count_at(thread, position)? else {
            return Ok(None);
        };
        let scan = self.scan(thread)?;
        let goes_on_later = position < self.position_in(thread, scan, count);
        let in_call = goes_on_later && count > 0 && scan.calls(count - 1);
        Ok(Some(count - u64::from(in_call)))
    }

    /// Whether a thread has begun at a position and has not yet ended. A thread may wait in the kernel until its
    /// process ends. It has completed its last instruction then, but it lives: questions about deadlocks must see it.
    pub fn is_alive(&self, thread: ThreadId, position: Position) -> Result<bool> {
        let Some(count) = self.count_at(thread, position)? else {
            return Ok(false);
        };
        let scan = self.scan(thread)?;
        let ended_itself = matches!(self.ending(thread, scan), Ending::Exit(_) | Ending::Exec);
        Ok(count < scan.to || !ended_itself)
    }

    /// The first and the last position of the recording.
    pub fn range(&self) -> Result<(Position, Position)> {
        let scans = self.scans()?;
        let ends = scans.iter().map(|(t, s)| self.bounds(*t, s));
        let both = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        both.ok_or(Error::Empty)
    }

    /// The first segment with instructions that was opened after this number.
    pub fn opened_after(
        &self,
        number: u64,
        of: impl Fn(ThreadId) -> bool,
    ) -> Result<Option<Segment>> {
        let mut best: Option<Segment> = None;
        for (t, scan) in self.scans()?.iter().filter(|(t, _)| of(**t)) {
            // The segment that no number of the stream opens may be known to come later, too.
            let mut i = match scan.nth(*t, 0).opens > number {
                true => 0,
                false => scan.numbers.partition_point(|n| n.0 <= number) + 1,
            };
            while i <= scan.numbers.len() {
                let s = scan.nth(*t, i);
                if best.is_some_and(|b| b.opens < s.opens) {
                    break;
                }
                if s.from < s.to {
                    best = Some(s);
                    break;
                }
                i += 1;
            }
        }
        Ok(best)
    }

    /// The last segment with instructions that was opened before this number.
    pub fn opened_before(
        &self,
        number: u64,
        of: impl Fn(ThreadId) -> bool,
    ) -> Result<Option<Segment>> {
        let mut best: Option<Segment> = None;
        for (t, scan) in self.scans()?.iter().filter(|(t, _)| of(**t)) {
            let mut i = scan.numbers.partition_point(|n| n.0 < number);
            loop {
                let s = scan.nth(*t, i);
                if best.is_some_and(|b| b.opens > s.opens) {
                    break;
                }
                if s.from < s.to && s.opens < number {
                    best = Some(s);
                    break;
                }
                let Some(before) = i.checked_sub(1) else {
                    break;
                };
                i = before;
            }
        }
        Ok(best)
    }
}
