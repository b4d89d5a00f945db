//! When instants of a recording were, by the clock.
//!
//! The collector notes when it looked at what threads say. So an event is known to have happened between
//! two looks: a millisecond apart when much happens or the program has just begun, 50 ms apart when it has
//! little to say. Between events time is taken to go with the instructions.

use crate::scan::Scan;
use crate::{Error, Position, Result, Timeline};
use std::fmt;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

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

impl Scan {
    /// When this many instructions were completed; `None` where the trace does not say.
    fn moment(&self, count: u64) -> Option<Moment> {
        let i = self.times.partition_point(|s| s.last < count);
        let s = *self.times.get(i)?;
        let before = i.checked_sub(1).map(|i| self.times[i]);
        // The events themselves, or what is executed before the first of them.
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

    /// Instructions that were completed at a time, in microseconds; `None` before the thread began.
    fn count_at_time(&self, at: u64) -> Option<u64> {
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

impl Timeline {
    /// When a position was; `None` where the trace does not say, as at the end of one that was cut off.
    pub fn when(&self, at: Position) -> Result<Option<Moment>> {
        let (thread, count) = self.locate(at)?;
        Ok(self.0.scan(thread)?.moment(count))
    }

    /// When the recording was started, in milliseconds since 1970 (UTC).
    pub fn started_ms(&self) -> u64 {
        self.0.trace.header().started_ms
    }

    /// The last position, in a program image or the whole recording, that was reached at a time since the
    /// start of the recording, as far as is known; the first one for what is before it.
    ///
    /// # Errors
    /// [`Error::NoPlace`] behind the end, and where the trace says nothing of times.
    pub fn at_time(&self, at: Duration, image: Option<u32>) -> Result<Position> {
        let scans = self.scans()?.iter();
        let scans: Vec<_> = scans
            .filter(|(t, _)| image.is_none_or(|i| self.0.image(**t) == i))
            .collect();
        let last = scans.iter().filter_map(|(_, s)| s.times.last());
        let last = last.map(|s| s.until).max();
        let last = last.ok_or_else(|| Error::NoPlace("time: the trace says of none".into()))?;
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        if micros > last {
            return Err(Error::NoPlace(format!(
                "time {}s: the end is at {}s",
                at.as_secs_f64(),
                Duration::from_micros(last).as_secs_f64()
            )));
        }
        let reached = scans.iter().filter_map(|(t, s)| {
            let count = s.count_at_time(micros)?;
            Some(self.0.position(**t, s, count))
        });
        match reached.max() {
            Some(p) => Ok(p),
            None => Ok(self.ends_of(image)?.0),
        }
    }

    /// The same for a time of day, where this machine is: the first such time that is not before the start.
    pub(crate) fn at_clock(&self, clock: Duration, image: Option<u32>) -> Result<Position> {
        let started = Duration::from_millis(self.started_ms());
        let first = time_of_day(started);
        let after = match clock >= first {
            true => clock - first,
            false => clock + DAY - first,
        };
        self.at_time(after, image)
    }
}

/// The time of day where this machine is, of a time since 1970.
fn time_of_day(at: Duration) -> Duration {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let mut tm = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: valid pointers; all-zero is a valid `tm`.
    let tm = unsafe {
        libc::localtime_r(&seconds, tm.as_mut_ptr());
        tm.assume_init()
    };
    let seconds = (tm.tm_hour * 60 + tm.tm_min) * 60 + tm.tm_sec;
    Duration::new(seconds.max(0) as u64, at.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Stretch;

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

    #[test]
    fn time_goes_with_instructions_between_events() {
        let stretch = |first, last, since, until| Stretch {
            first,
            last,
            since,
            until,
        };
        // Events at 0 to 100 in a millisecond, 1900 instructions in 98 ms, a call that waits for a second.
        let mut s = Scan::default();
        s.to = 2000;
        s.times = vec![
            stretch(0, 100, 1000, 2000),
            stretch(2000, 2000, 100_000, 101_000),
            stretch(2000, 2000, 1_100_000, 1_101_000),
        ];
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
