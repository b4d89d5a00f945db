//! When instants of a recording were, by the clock.
//!
//! The collector notes when it looked at what threads say. So an event is known to have happened between
//! two looks: a millisecond apart when much happens or the program has just begun, 50 ms apart when it has
//! little to say. Between events time is taken to go with the instructions.

use std::fmt;
use std::time::Duration;

/// When an instant was, in time since the recording was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Not before this.
    pub since: Duration,
    /// Not after this.
    pub until: Duration,
    /// Most likely this.
    pub estimate: Duration,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [at, since, until] = [self.estimate, self.since, self.until].map(|d| d.as_secs_f64());
        write!(f, "{at:.6}s (from {since:.6}s to {until:.6}s)")
    }
}

/// Lets times go on as what happened did, one thing after the other: what is known of one is known of those before
/// and behind it, too. What happened in one thread is not ordered by the clock against what happened in another one
/// between the same two system calls; there, too, no time is before the last.
pub fn in_order(moments: &mut [Option<Moment>]) {
    let mut until = Duration::MAX;
    for m in moments.iter_mut().rev().flatten() {
        until = until.min(m.until);
        m.until = until;
    }
    let (mut since, mut last) = (Duration::ZERO, Duration::ZERO);
    for m in moments.iter_mut().flatten() {
        since = since.max(m.since);
        last = last.max(m.estimate.min(m.until)).max(since);
        (m.since, m.estimate, m.until) = (since, last, m.until.max(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_on_as_what_happened_did() {
        let moment = |since, estimate, until| {
            let [since, estimate, until] = [since, estimate, until].map(Duration::from_micros);
            Some(Moment {
                since,
                until,
                estimate,
            })
        };
        let mut all = [
            moment(0, 10, 100),
            moment(50, 60, 70),
            None,
            moment(0, 20, 100),
            moment(0, 65, 68),
            // The clocks contradict each other.
            moment(0, 1, 2),
        ];
        in_order(&mut all);
        let [mut since, mut estimate, mut until] = [Duration::ZERO; 3];
        for m in all.iter().flatten() {
            assert!(
                m.since >= since && m.estimate >= estimate && m.until >= until,
                "{all:?}"
            );
            assert!(m.since <= m.estimate && m.estimate <= m.until, "{all:?}");
            (since, estimate, until) = (m.since, m.estimate, m.until);
        }
        let mut all = [
            moment(0, 10, 100),
            moment(50, 60, 70),
            None,
            moment(0, 20, 100),
        ];
        in_order(&mut all);
        let want = [
            moment(0, 10, 70),
            moment(50, 60, 70),
            None,
            moment(50, 60, 100),
        ];
        assert_eq!(all, want);
        in_order(&mut []);
    }
}
