//! The segments of a thread. A segment lies between two of the thread's order numbers.

use super::Scan;
use crate::{Segment, ThreadId};

impl Scan {
    /// The segment in which the thread has completed `count` instructions. If there are several, it is the last.
    pub fn segment(&self, thread: ThreadId, count: u64) -> Segment {
        let i = self.numbers.partition_point(|n| n.1 <= count);
        self.nth(thread, i)
    }

    /// The segment with index `i`. No number of the stream opens the first one. If the beginning of the stream was left out,
    /// it may be known which one did.
    pub fn nth(&self, thread: ThreadId, i: usize) -> Segment {
        let closes = self.numbers.get(i);
        let (opens, from) = match i.checked_sub(1) {
            Some(i) => self.numbers[i],
            None => (self.opener.map_or(0, |o| o.number), self.from),
        };
        let begins = self.opener.filter(|_| i == 0).map_or(from, |o| o.at);
        Segment {
            thread,
            opens,
            closes: closes.map(|n| n.0),
            from,
            to: closes.map_or(self.to, |n| n.1),
            left_out: from.saturating_sub(begins),
        }
    }

    /// The instructions of the thread in segments that may have run between `seen` and `now`. These were not over when
    /// `seen` began, and had begun when `now` ended.
    pub fn concurrent(&self, thread: ThreadId, seen: &Segment, now: &Segment) -> (u64, u64) {
        let first = self.numbers.partition_point(|n| n.0 <= seen.opens);
        let end = match now.closes {
            Some(c) => self.numbers.partition_point(|n| n.0 < c),
            None => self.numbers.len(),
        };
        let later = |s: Segment| now.closes.is_some_and(|c| s.opens >= c && c != 0);
        if end == 0 && (!self.begins_without_number() || later(self.nth(thread, 0))) || first > end
        {
            return (0, 0);
        }
        (self.nth(thread, first).from, self.nth(thread, end).to)
    }

    /// The segment that this number opens, if the number is this thread's. 0 names the segment before any number.
    pub fn opened_by(&self, thread: ThreadId, number: u64) -> Option<Segment> {
        let first = self.nth(thread, 0);
        if number == first.opens {
            return (self.begins_without_number()).then_some(first);
        }
        let i = self.numbers.binary_search_by_key(&number, |n| n.0).ok()?;
        Some(self.nth(thread, i + 1))
    }

    /// Whether the thread ran before the first number of its stream, as a recording's first thread does.
    pub fn begins_without_number(&self) -> bool {
        self.numbers.first().is_none_or(|n| n.1 > self.from)
    }
}
