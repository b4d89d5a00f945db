//! Which instant of a thread is which of the other recording's thread.

use crate::Both;
use crate::model::Reason;
use std::ops::Range;

/// A stretch in which two threads did different things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Apart {
    from: Both<u64>,
    to: Both<u64>,
    reason: Reason,
}

/// What an instant is in the other recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Like {
    /// This count.
    At(u64),
    /// It is in a stretch in which the threads did different things, for this reason.
    Apart(Reason),
}

/// What is known of two threads that were compared, so far.
#[derive(Clone, Default, Debug)]
pub struct Alignment {
    /// Where handlers of signals ran that came when they came. Counts are without them here.
    handlers: Both<Vec<Range<u64>>>,
    begin: Both<u64>,
    apart: Vec<Apart>,
    open: Option<(Both<u64>, Reason)>,
}

impl Alignment {
    /// Of two threads with these handlers, which begin at these counts.
    pub fn new(handlers: Both<Vec<Range<u64>>>, begin: Both<u64>) -> Alignment {
        let mut new = Alignment {
            handlers,
            ..Alignment::default()
        };
        new.begin = [0, 1].map(|s| new.plain(s, begin[s]));
        new
    }

    /// Whether a handler runs there.
    pub fn is_handler(&self, side: usize, count: u64) -> bool {
        let n = self.handlers[side].partition_point(|h| h.end <= count);
        self.handlers[side]
            .get(n)
            .is_some_and(|h| h.contains(&count))
    }

    /// A count without what handlers did.
    pub fn plain(&self, side: usize, count: u64) -> u64 {
        let before = self.handlers[side].iter().take_while(|h| h.start < count);
        count - before.map(|h| h.end.min(count) - h.start).sum::<u64>()
    }

    /// The count with what handlers did.
    pub fn full(&self, side: usize, plain: u64) -> u64 {
        let mut count = plain;
        for h in &self.handlers[side] {
            if h.start > count {
                break;
            }
            count = count.saturating_add(h.end - h.start);
        }
        count
    }

    /// The threads go different ways, and perhaps come together again.
    pub fn part(&mut self, from: Both<u64>, to: Option<Both<u64>>, reason: Reason) {
        self.open = Some((from, reason));
        if let Some(to) = to {
            self.meet(to);
        }
    }

    /// The threads are together again, if they were not.
    pub fn meet(&mut self, to: Both<u64>) {
        if let Some((from, reason)) = self.open.take() {
            let plain = |c: Both<u64>| [0, 1].map(|s| self.plain(s, c[s]));
            let (from, to) = (plain(from), plain(to));
            self.apart.push(Apart { from, to, reason });
        }
    }

    /// What an instant of a side is in the other recording.
    pub fn like(&self, side: usize, count: u64) -> Like {
        let plain = self.plain(side, count);
        if let Some((from, reason)) = self.open
            && plain >= self.plain(side, from[side])
        {
            return Like::Apart(reason);
        }
        let n = self.apart.partition_point(|a| a.from[side] <= plain);
        let since = match self.apart[..n].last() {
            Some(a) if plain < a.to[side] => return Like::Apart(a.reason),
            Some(a) => a.to,
            None => self.begin,
        };
        let other = plain.saturating_sub(since[side]);
        let other = other.saturating_add(since[1 - side]);
        Like::At(self.full(1 - side, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "one handler ran")]
    fn instants_have_their_like() {
        let mut a = Alignment::new([vec![20..30], vec![]], [0, 0]);
        assert_eq!(a.like(0, 10), Like::At(10));
        assert_eq!(a.like(0, 35), Like::At(25));
        assert_eq!(a.like(1, 25), Like::At(35));
        assert!(a.is_handler(0, 20) && a.is_handler(0, 29) && !a.is_handler(0, 30));
        a.part([50, 40], Some([60, 43]), Reason::Address);
        assert_eq!(a.like(0, 49), Like::At(39));
        assert_eq!(a.like(0, 50), Like::Apart(Reason::Address));
        assert_eq!(a.like(0, 60), Like::At(43));
        assert_eq!(a.like(1, 44), Like::At(61));
        a.part([70, 53], None, Reason::Data);
        assert_eq!(a.like(0, 90), Like::Apart(Reason::Data));
        a.meet([100, 100]);
        assert_eq!(a.like(0, 101), Like::At(101));
    }
}
