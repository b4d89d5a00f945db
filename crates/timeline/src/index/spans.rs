//! How long intervals are. The packer decides it, and the replay is some intervals ahead of the packer. How far it is ahead makes
//! no difference: the same recording has the same intervals whenever its index is made with the same room.

use super::codec::LINE;
use crate::base::sync::lock;
use std::sync::{Condvar, Mutex, PoisonError};

/// An interval follows from what was decided when this many intervals before it had been packed. So the replay need not wait.
const BEHIND: usize = 3;
/// Nobody knows yet what the first ones take. The lines of the frame of each may take this part of the room, before they are packed.
const FIRST_SHARE: u64 = 16;

/// Instructions in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub usual: u64,
    /// An interval of the coarse level that accesses much memory may end behind so many, and its frame may have so many lines.
    pub least: u64,
    pub lines: usize,
}

/// What the packer decided after each interval: how long those to come are.
pub struct Spans {
    first: Span,
    decided: Mutex<Decided>,
    more: Condvar,
}

#[derive(Default)]
struct Decided {
    spans: Vec<Span>,
    /// There will be no more.
    over: bool,
}

impl Spans {
    /// The first intervals have `first` instructions. All of them may have `room` bytes in the file.
    pub fn new(first: u64, room: u64) -> Spans {
        let lines = room / FIRST_SHARE / LINE as u64;
        Spans {
            first: Span {
                usual: first,
                least: 0,
                lines: usize::try_from(lines).unwrap_or(usize::MAX),
            },
            decided: Mutex::default(),
            more: Condvar::new(),
        }
    }

    /// What was decided last.
    pub fn last(&self) -> Span {
        lock(&self.decided)
            .spans
            .last()
            .copied()
            .unwrap_or(self.first)
    }

    /// Decides after the next interval.
    pub fn decide(&self, span: Span) {
        lock(&self.decided).spans.push(span);
        self.more.notify_one();
    }

    /// Nothing is decided any more when what this returns is dropped.
    pub fn ending(&self) -> Ending<'_> {
        Ending(self)
    }

    /// How long an interval is, by its number. It waits for the decision.
    pub fn of(&self, interval: usize) -> Span {
        let Some(after) = interval.checked_sub(BEHIND) else {
            return self.first;
        };
        let mut decided = lock(&self.decided);
        loop {
            match (decided.spans.get(after), decided.over) {
                (Some(span), _) => return *span,
                (None, true) => return self.first,
                (None, false) => {
                    let woken = self.more.wait(decided);
                    decided = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// See [`Spans::ending`].
pub struct Ending<'a>(&'a Spans);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        lock(&self.0.decided).over = true;
        self.0.more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_the_replay_is_ahead_makes_no_difference() {
        let spans = Spans::new(10, 16 * 64 * 5);
        let span = |usual, least| Span {
            usual,
            least,
            lines: 5,
        };
        assert!((0..BEHIND).all(|i| spans.of(i) == span(10, 0)));
        spans.decide(span(20, 7));
        spans.decide(span(30, 8));
        let later = [BEHIND, BEHIND + 1].map(|i| spans.of(i));
        assert_eq!(later, [span(20, 7), span(30, 8)]);
        assert_eq!([spans.of(0), spans.last()], [span(10, 0), span(30, 8)]);
        std::thread::scope(|s| {
            let waits = s.spawn(|| spans.of(BEHIND + 2));
            spans.decide(span(40, 9));
            assert_eq!(waits.join().unwrap(), span(40, 9));
        });
        drop(spans.ending());
        assert_eq!(spans.of(BEHIND + 9), span(10, 0), "nobody decides");
    }
}
