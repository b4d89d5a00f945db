//! Converts between positions and the clock.

use crate::ThreadInstant;
use crate::{Error, Moment, Position, Result, Timeline};
use std::time::Duration;

/// A day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Timeline {
    /// When a position was. `None`: the trace does not say, for example at the end of a trace that was cut off.
    pub fn when(&self, at: Position) -> Result<Option<Moment>> {
        let ThreadInstant { thread, count } = self.locate(at)?;
        Ok(self.0.scan(thread)?.moment(count))
    }

    /// When the recording was started, in milliseconds since 1970 (UTC).
    pub fn started_ms(&self) -> u64 {
        self.0.trace.header().started_ms
    }

    /// The last position that was reached at a time since the start of the recording, as far as is known. It is in one
    /// program image, or in the whole recording. A time before the first position gives the first one.
    ///
    /// # Errors
    /// [`Error::NoPlace`] for a time after the end, and where the trace has no times.
    pub fn at_time(&self, at: Duration, image: Option<u32>) -> Result<Position> {
        let scans = self.0.scans()?.iter();
        let scans: Vec<_> = scans
            .filter(|(t, _)| image.is_none_or(|i| self.0.image(**t) == i))
            .collect();
        let last = scans.iter().filter_map(|(_, s)| s.times.last());
        let last = last.map(|s| s.until).max();
        let last = last.ok_or_else(|| Error::NoPlace("time: the trace has no times".into()))?;
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
            Some(self.0.position_in(**t, s, count))
        });
        match reached.max() {
            Some(p) => Ok(p),
            None => Ok(self.ends_of(image)?.0),
        }
    }

    /// Like [`Timeline::at_time`], for a time of day in this machine's time zone. It is the first such time after the
    /// start.
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

/// The time of day of a time since 1970, in UTC: this host knows no time zones.
#[cfg(not(unix))]
fn time_of_day(at: Duration) -> Duration {
    Duration::new(at.as_secs() % DAY.as_secs(), at.subsec_nanos())
}

/// The time of day of a time since 1970, in this machine's time zone.
#[cfg(unix)]
fn time_of_day(at: Duration) -> Duration {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let mut tm = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: valid pointers; all-zero is a valid `tm`.
    let tm = unsafe {
        libc::localtime_r(&seconds, tm.as_mut_ptr());
        tm.assume_init()
    };
    let seconds = (tm.tm_hour * 60 + tm.tm_min) * 60 + tm.tm_sec;
    Duration::new(seconds.max(0) as u64, at.subsec_nanos())
}
