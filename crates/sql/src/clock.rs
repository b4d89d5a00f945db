//! Instants as single numbers.

use anyhow::Result;
use hindsight_timeline::{Position, Segment, Timeline};

/// A segment, and when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// The segment.
    pub segment: Segment,
    /// The time of its first instant.
    pub time: i64,
}

impl Stretch {
    /// How many instructions it has.
    pub fn len(&self) -> i64 {
        let n = self.segment.to.saturating_sub(self.segment.from);
        i64::try_from(n).unwrap_or(i64::MAX)
    }

    /// The time of its last instant.
    pub fn end(&self) -> i64 {
        self.time.saturating_add(self.len())
    }

    /// The time at which its thread has completed `count` instructions.
    pub fn at(&self, count: u64) -> i64 {
        let past = i64::try_from(count.saturating_sub(self.segment.from)).unwrap_or(i64::MAX);
        self.time.saturating_add(past.min(self.len()))
    }
}

/// Numbers all instants of a recording. The *time* of a position is the number of instructions that all threads together
/// complete in positions before it. So times are ordered as positions are, and one instruction takes one unit of time.
pub struct Clock {
    /// All segments, by their order numbers.
    stretches: Vec<Stretch>,
}

impl Clock {
    /// The clock of a recording.
    pub fn new(timeline: &Timeline) -> Result<Clock> {
        let mut segments: Vec<Segment> = Vec::new();
        for t in timeline.threads()? {
            segments.extend(timeline.segments(t.id)?);
        }
        segments.sort_by_key(|s| s.opens);
        let mut time = 0i64;
        let stretches = (segments.into_iter())
            .map(|segment| {
                let s = Stretch { segment, time };
                time = time.saturating_add(s.len());
                s
            })
            .collect();
        Ok(Clock { stretches })
    }

    /// All segments in the order of time.
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// The time of the end: that many instructions are recorded.
    pub fn end(&self) -> i64 {
        self.stretches.last().map_or(0, Stretch::end)
    }

    /// The number of the first segment that has an instant at this time or after it.
    pub fn first_at(&self, time: i64) -> usize {
        self.stretches.partition_point(|s| s.end() < time)
    }

    /// When a position is.
    pub fn time(&self, at: Position) -> i64 {
        let n = self
            .stretches
            .partition_point(|s| s.segment.opens <= at.segment);
        let Some(s) = n.checked_sub(1).and_then(|n| self.stretches.get(n)) else {
            return 0;
        };
        match s.segment.opens == at.segment {
            true => {
                let past = at.offset.saturating_sub(s.segment.left_out);
                let past = i64::try_from(past).unwrap_or(i64::MAX);
                s.time.saturating_add(past.min(s.len()))
            }
            // Segments without instructions are not listed.
            false => s.end(),
        }
    }

    /// The last position of a time, which is where what follows begins. `None`: the recording does not have that time.
    pub fn last_position(&self, time: i64) -> Option<Position> {
        let n = self.stretches.partition_point(|s| s.time <= time);
        let s = self.stretches.get(n.checked_sub(1)?)?;
        (time <= s.end()).then(|| s.segment.position(s.segment.from + (time - s.time) as u64))
    }

    /// The position of a time: the earliest one, if there are several. `None`: the recording does not have that time.
    pub fn position(&self, time: i64) -> Option<Position> {
        let s = self.stretches.get(self.first_at(time.max(0)))?;
        (time >= s.time).then(|| {
            let count = s.segment.from.saturating_add((time - s.time) as u64);
            s.segment.position(count)
        })
    }
}
