//! How long intervals are. The packer decides it, and the replay is some intervals ahead of the packer. How far it is ahead makes
//! no difference: the same recording has the same intervals whenever its index is made with the same room.

use crate::base::sync::lock;
use std::sync::{Condvar, Mutex, PoisonError};

/// An interval follows from what was decided when this many intervals before it had been packed. So the replay need not wait.
const BEHIND: usize = 3;

/// What the packer decided after each interval: instructions in those to come.
pub struct Spans {
    first: u64,
    decided: Mutex<Decided>,
    more: Condvar,
}

#[derive(Default)]
struct Decided {
    spans: Vec<u64>,
    /// There will be no more.
    over: bool,
}

impl Spans {
    pub fn new(first: u64) -> Spans {
        Spans {
            first,
            decided: Mutex::default(),
            more: Condvar::new(),
        }
    }

    /// What was decided last.
    pub fn last(&self) -> u64 {
        lock(&self.decided)
            .spans
            .last()
            .copied()
            .unwrap_or(self.first)
    }

    /// Decides after the next interval.
    pub fn decide(&self, span: u64) {
        lock(&self.decided).spans.push(span);
        self.more.notify_one();
    }

    /// Nothing is decided any more when what this returns is dropped.
    pub fn ending(&self) -> Ending<'_> {
        Ending(self)
    }

    /// Instructions in an interval, by its number. It waits for the decision.
    pub fn of(&self, interval: usize) -> u64 {
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
        let spans = Spans::new(10);
        assert_eq!((0..BEHIND).map(|i| spans.of(i)).max(), Some(10));
        spans.decide(20);
        spans.decide(30);
        let later = [BEHIND, BEHIND + 1].map(|i| spans.of(i));
        assert_eq!((later, spans.of(0), spans.last()), ([20, 30], 10, 30));
        std::thread::scope(|s| {
            let waits = s.spawn(|| spans.of(BEHIND + 2));
            spans.decide(40);
            assert_eq!(waits.join().unwrap(), 40);
        });
        drop(spans.ending());
        assert_eq!(spans.of(BEHIND + 9), 10, "nobody decides");
    }
}
