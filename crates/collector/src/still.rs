//! Which threads do not come to the recorder.

use std::time::{Duration, Instant};

/// Between two looks at for how long a thread has run that does not come to the recorder.
const EVERY: Duration = Duration::from_millis(150);

/// A thread that has run for this long without coming is summoned. Each time costs it some fifty
/// microseconds. Thousands of threads that wait for a processor run for less.
const RUN: Duration = Duration::from_millis(100);

/// Since when a thread has not come to the recorder.
pub struct Still {
    position: u64,
    /// When the last look was.
    since: Instant,
    /// For how long it had run when it began to count. `None`: nobody has looked yet.
    ran: Option<Duration>,
}

impl Still {
    /// Nothing is known yet.
    pub fn new() -> Still {
        Still {
            position: u64::MAX,
            since: Instant::now(),
            ran: None,
        }
    }

    /// Whether the thread, which stands at `position` as it says itself, has run for [`RUN`] and
    /// has not come meanwhile. If so, its time begins anew. `ran` tells for how long it has run
    /// since its beginning. Where that cannot be known, all the time counts.
    pub fn is_over(
        &mut self,
        position: u64,
        now: Instant,
        ran: impl FnOnce() -> Option<Duration>,
    ) -> bool {
        if position != self.position {
            (self.position, self.since, self.ran) = (position, now, None);
            return false;
        }
        let waited = now - self.since;
        if waited < EVERY {
            return false;
        }
        self.since = now;
        let ran = ran().unwrap_or(self.ran.unwrap_or_default() + waited);
        let before = *self.ran.get_or_insert(ran);
        let over = ran.saturating_sub(before) >= RUN;
        if over {
            self.ran = Some(ran);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_still_when_it_has_run_for_long_without_coming() {
        let mut s = Still::new();
        let begin = Instant::now();
        let mut is_over = |position, at: u64, ran: u64| {
            let ms = Duration::from_millis;
            s.is_over(position, begin + ms(at), || Some(ms(ran)))
        };
        assert!(!is_over(7, 0, 1000));
        assert!(!is_over(7, 150, 1150), "from here on its time counts");
        assert!(!is_over(7, 250, 1250), "it is too early to look again");
        assert!(is_over(7, 300, 1300));
        // It is not asked again at once.
        assert!(!is_over(7, 350, 1350));
        assert!(is_over(7, 450, 1450));
        // It has come in between.
        assert!(!is_over(8, 600, 1600));
        assert!(!is_over(8, 750, 1750));
        // It waits for a processor most of the time.
        assert!(!is_over(8, 900, 1755));
        assert!(!is_over(8, 1900, 1849));
        assert!(is_over(8, 2900, 1850));
    }

    #[test]
    fn where_nobody_knows_how_long_it_ran_all_time_counts() {
        let mut s = Still::new();
        let begin = Instant::now();
        let over = [0, 150, 300, 450].map(|at| {
            let now = begin + Duration::from_millis(at);
            s.is_over(7, now, || None)
        });
        assert_eq!(over, [false, false, true, true]);
    }
}
