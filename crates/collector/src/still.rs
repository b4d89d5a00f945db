//! Which threads do not come to the recorder.

use hindsight_trace::StreamId;
use std::time::{Duration, Instant};

/// A thread that has not come to the recorder for this long is summoned. Each time costs it some
/// fifty microseconds.
const STILL: Duration = Duration::from_millis(250);

/// Since when a thread has not come to the recorder.
pub struct Still {
    position: u64,
    since: Instant,
    /// A stream, and when its thread began, in clock ticks. The thread's process was seen to have the
    /// control file.
    pub known: Option<(StreamId, u64)>,
}

impl Still {
    /// Nothing is known yet.
    pub fn new() -> Still {
        Still {
            position: u64::MAX,
            since: Instant::now(),
            known: None,
        }
    }

    /// Whether the thread, which stands at `position` as it says itself, has not come for
    /// [`STILL`]. If so, its time begins anew.
    pub fn is_over(&mut self, position: u64, now: Instant) -> bool {
        let over = position == self.position && now - self.since >= STILL;
        if over || position != self.position {
            (self.position, self.since) = (position, now);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_still_when_it_has_not_moved_for_long() {
        let mut s = Still::new();
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        assert!(!s.is_over(7, at(0)));
        assert!(!s.is_over(7, at(249)));
        assert!(s.is_over(7, at(250)));
        // It is not asked again at once.
        assert!(!s.is_over(7, at(400)));
        assert!(s.is_over(7, at(500)));
        // It has come in between.
        assert!(!s.is_over(8, at(740)));
        assert!(!s.is_over(8, at(989)));
        assert!(s.is_over(8, at(990)));
    }
}
