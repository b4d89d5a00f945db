//! Whether a recording can be as long as it claims.
//!
//! Between two events of a thread there may be any number of instructions: a loop that only computes has none. So a few
//! bytes can ask for a replay of years. But what a program executed took time, and the recording says how much: the time
//! that it lasted, in its summary, or in the last events 28 of the thread if it was not finished. A processor
//! executes no more than so many instructions in that time; a recording that claims more was not made by recording.

use super::{ChunkMeta, Trace};
use crate::Error;
use hindsight_events::{Decoder, Event};
use std::time::Duration;

/// Instructions of one thread in a second that no processor comes near to. That is forty in a cycle: what is counted but
/// not executed, like `nop`, can make a few.
const FASTEST: u64 = 200_000_000_000;

/// All threads together: as if so many of them had never waited for a processor. No machine comes near to that either,
/// and the largest have hundreds of processors.
const ALL_TOGETHER: u64 = 1024;

/// Time that is not counted: that of the last events, which nobody has measured.
const SLACK: Duration = Duration::from_secs(1);

/// Last chunks of a thread in which the time is looked for. Each that is full says it, and others nearly always.
const CHUNKS: usize = 4;

impl Trace {
    /// Whether the program can have executed as many instructions as the trace says in the time that it says.
    ///
    /// # Errors
    /// It cannot: replay would not come to the end of what nobody has recorded.
    pub fn check_pace(&self) -> Result<(), Error> {
        let mut all = 0u64;
        for (stream, chunks) in &self.streams {
            let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
                continue;
            };
            let instructions = last.last_pos - first.first_pos;
            all = all.saturating_add(instructions);
            // Quickly done by whomever.
            if instructions <= most(SLACK) {
                continue;
            }
            let time = self.lasted().or_else(|| self.until(chunks));
            let time = time.unwrap_or_default();
            if instructions > most(time + SLACK) {
                return Err(Error::TooFast {
                    stream: *stream,
                    instructions,
                    time,
                });
            }
        }
        match self.lasted() {
            Some(time) if all / ALL_TOGETHER > most(time + SLACK) => Err(Error::TooFast {
                stream: 0,
                instructions: all,
                time,
            }),
            _ => Ok(()),
        }
    }

    /// How long the recording took.
    fn lasted(&self) -> Option<Duration> {
        let s = self.summary.as_ref()?;
        Some(Duration::from_millis(s.wall_ms))
    }

    /// How long it took up to the last of these chunks that say so.
    fn until(&self, chunks: &[ChunkMeta]) -> Option<Duration> {
        chunks.iter().rev().take(CHUNKS).find_map(|c| {
            let wire = self.load(c).ok()?;
            let (mut decoder, mut at, mut last) = (Decoder::default(), 0, None);
            while let Some((_, event, n)) = decoder.decode(&wire[at..]) {
                if let Event::Time { until, .. } = event {
                    last = Some(Duration::from_micros(until));
                }
                at += n;
            }
            last
        })
    }
}

/// Instructions of a thread in this time.
fn most(time: Duration) -> u64 {
    let n = time.as_nanos() * (FASTEST / 1_000_000_000) as u128;
    u64::try_from(n).unwrap_or(u64::MAX)
}
