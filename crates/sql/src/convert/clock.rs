//! Times of instants, as the recording's clock tells them.

use super::read::each;
use crate::engine::Engine;
use anyhow::Result;

/// Between two calls whose times are known, instructions take as long as each other. More pairs than these are thinned out.
const MOST: usize = 1 << 20;

/// Knows when instants were. Times never go back, also where clocks of several processors did.
pub struct Clock {
    /// Time in instructions, and in nanoseconds since the beginning.
    known: Vec<(i64, f64)>,
}

impl Clock {
    /// The clock of a recording. Without any time in it, an instruction takes a nanosecond.
    pub fn new(engine: &Engine) -> Result<Clock> {
        let mut known: Vec<(i64, f64)> = Vec::new();
        let (mut step, mut seen) = (1, 0u64);
        let query = "SELECT time, seconds FROM syscalls WHERE seconds IS NOT NULL ORDER BY time";
        each(engine, query, &mut |row| {
            seen += 1;
            if let (Some(time), Some(seconds)) = (row.int(0), row.float(1))
                && seen.is_multiple_of(step)
            {
                let before = known.last().copied();
                let nanos = (seconds * 1e9).max(before.map_or(0.0, |b| b.1));
                if before.is_none_or(|b| b.0 < time) {
                    known.push((time, nanos));
                }
            }
            if known.len() >= MOST {
                let mut keep = false;
                known.retain(|_| {
                    keep = !keep;
                    keep
                });
                step *= 2;
            }
            Ok(())
        })?;
        Ok(Clock { known })
    }

    /// Whether the recording says when anything was.
    pub fn is_real(&self) -> bool {
        self.known.len() > 1
    }

    /// Nanoseconds since the beginning.
    pub fn nanos(&self, time: i64) -> i64 {
        let (Some(first), Some(last)) = (self.known.first(), self.known.last()) else {
            return time;
        };
        if !self.is_real() {
            return time;
        }
        let n = self.known.partition_point(|k| k.0 <= time);
        let (before, after) = match n {
            // Before the first one, and behind the last one, they go on as on average.
            0 => return ((first.1 - (first.0 - time) as f64 * self.average()).max(0.0)) as i64,
            n if n == self.known.len() => {
                return (last.1 + (time - last.0) as f64 * self.average()) as i64;
            }
            n => (self.known[n - 1], self.known[n]),
        };
        let part = (time - before.0) as f64 / (after.0 - before.0) as f64;
        (before.1 + (after.1 - before.1) * part) as i64
    }

    /// Nanoseconds for an instruction.
    fn average(&self) -> f64 {
        match (self.known.first(), self.known.last()) {
            (Some(a), Some(b)) if b.0 > a.0 => (b.1 - a.1) / (b.0 - a.0) as f64,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_between_those_that_are_known() {
        let clock = Clock {
            known: vec![(10, 100.0), (20, 300.0), (30, 300.0), (40, 1000.0)],
        };
        assert_eq!(clock.nanos(10), 100);
        assert_eq!(clock.nanos(15), 200);
        assert_eq!(clock.nanos(25), 300);
        assert_eq!(clock.nanos(39), 930);
        assert_eq!(clock.nanos(50), 1300);
        assert_eq!(clock.nanos(0), 0);
        assert!((0..60).map(|t| clock.nanos(t)).is_sorted());
        let none = Clock { known: Vec::new() };
        assert_eq!(none.nanos(77), 77);
    }
}
