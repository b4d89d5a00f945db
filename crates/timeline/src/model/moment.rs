//! When instants of a recording were, by the clock.
//!
//! The collector notes when it looks into the rings. So an event lies between two looks. These are a millisecond apart
//! when much happens or the program has just begun. They are 50 ms apart when it has little to say. Between events,
//! time is estimated in proportion to the instructions.

use std::fmt;
use std::time::Duration;

/// When an instant was. All times count from the start of the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The earliest that it can have been.
    pub since: Duration,
    /// The latest that it can have been.
    pub until: Duration,
    /// The best estimate.
    pub estimate: Duration,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [at, since, until] = [self.estimate, self.since, self.until].map(|d| d.as_secs_f64());
        write!(f, "{at:.6}s (from {since:.6}s to {until:.6}s)")
    }
}

/// Makes the times of a list of events consistent with their order. What bounds one event also bounds those before and
/// after it.
///
/// The clock does not order events of two threads between the same two system calls. Their times never go backwards
/// either.
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
