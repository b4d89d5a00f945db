//! Converts between instructions of a thread and the clock.

use super::Scan;
use crate::Moment;
use std::time::Duration;

impl Scan {
    /// When this many instructions were completed. `None`: the trace does not say.
    pub fn moment(&self, count: u64) -> Option<Moment> {
        let i = self.times.partition_point(|s| s.last < count);
        let s = *self.times.get(i)?;
        let before = i.checked_sub(1).map(|i| self.times[i]);
        // Either the events themselves, or the instructions before the first of them.
        let (since, from, to) = match before {
            _ if count > s.first => (s.since, (s.first, s.since), (s.last, s.until)),
            Some(b) => (b.since, (b.last, b.until), (s.first, s.since)),
            None => (s.since, (self.from, s.since), (s.first, s.since)),
        };
        let part = count.saturating_sub(from.0) as u128;
        let of = to.0.saturating_sub(from.0).max(1) as u128;
        let estimate = from.1 + ((to.1.saturating_sub(from.1)) as u128 * part / of) as u64;
        Some(Moment {
            since: Duration::from_micros(since),
            until: Duration::from_micros(s.until),
            estimate: Duration::from_micros(estimate.clamp(since, s.until)),
        })
    }

    /// How many instructions were completed at a time, in microseconds. `None`: the thread had not begun.
    pub fn count_at_time(&self, at: u64) -> Option<u64> {
        let i = self.times.partition_point(|s| s.since <= at);
        let s = self.times[i.checked_sub(1)?];
        let (from, to) = match self.times.get(i) {
            _ if at < s.until => ((s.first, s.since), (s.last, s.until)),
            Some(next) => ((s.last, s.until), (next.first, next.since)),
            None => return Some(self.to),
        };
        let part = (at - from.1) as u128;
        let of = (to.1 - from.1).max(1) as u128;
        let done = from.0 + ((to.0.saturating_sub(from.0)) as u128 * part / of) as u64;
        Some(done.clamp(self.from, self.to))
    }
}

#[cfg(test)]
mod tests {
    use super::super::TimeSpan;
    use super::*;

    #[test]
    fn time_goes_with_instructions_between_events() {
        let stretch = |first, last, since, until| TimeSpan {
            first,
            last,
            since,
            until,
        };
        // Three stretches: events at 0 to 100 in a millisecond, 1900 instructions in 98 ms, a call that waits for a
        // second.
        let s = Scan {
            to: 2000,
            times: vec![
                stretch(0, 100, 1000, 2000),
                stretch(2000, 2000, 100_000, 101_000),
                stretch(2000, 2000, 1_100_000, 1_101_000),
            ],
            ..Scan::default()
        };
        let micros = |count| {
            let m = s.moment(count).unwrap();
            [m.since, m.estimate, m.until].map(|d| d.as_micros() as u64)
        };
        assert_eq!(micros(0), [1000, 1000, 2000]);
        assert_eq!(micros(50), [1000, 1500, 2000]);
        assert_eq!(micros(1050), [1000, 51_000, 101_000]);
        assert_eq!(micros(2000), [1000, 100_000, 101_000]);
        assert_eq!(s.moment(2001), None);
        for (at, count) in [
            (999, None),
            (1000, Some(0)),
            (1500, Some(50)),
            (2000, Some(100)),
            (51_000, Some(1050)),
            (100_500, Some(2000)),
            (900_000, Some(2000)),
            (9_000_000, Some(2000)),
        ] {
            assert_eq!(s.count_at_time(at), count, "{at}");
        }
    }
}
