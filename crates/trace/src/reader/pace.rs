//! Whether a recording can be as long as it claims.
//!
//! Between two events of a thread there may be any number of instructions: a loop that only computes causes
//! no events. So a few bytes can ask for a replay of years. But execution takes time, and the recording says
//! how much. The summary has the time that the recording took. Without a summary, the thread's last
//! [`Event::Time`] has it. A processor executes only so many instructions in that time. A recording that
//! claims more was not made by recording.

use super::{ChunkMeta, Trace};
use crate::Error;
use hindsight_events::{Decoder, Event};
use std::time::Duration;

/// Instructions of one thread in a second that no processor reaches: forty in each cycle. Instructions like
/// `nop` are counted but need no execution unit, so a few of them fit one cycle.
const FASTEST: u64 = 200_000_000_000;

/// For all threads together: as if this many of them had run all the time. No machine comes near to that: the
/// largest have hundreds of processors.
const ALL_TOGETHER: u64 = 1024;

/// Time that is added: nobody measured the last events.
const SLACK: Duration = Duration::from_secs(1);

/// How many of a thread's last chunks are searched for the time. A full chunk always has it, and others nearly
/// always.
const CHUNKS: usize = 4;

impl Trace {
    /// Checks that the program can have executed its instructions in the time that the trace says.
    ///
    /// # Errors
    /// It cannot. Replay of the trace would practically never end.
    pub fn check_pace(&self) -> Result<(), Error> {
        let mut all = 0u64;
        for (stream, chunks) in &self.streams {
            let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
                continue;
            };
            let instructions = last.last_pos - first.first_pos;
            all = all.saturating_add(instructions);
            // Any machine executes this many quickly, so a claim of them does no harm.
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

    /// How long the recording had taken at the last of these chunks that says so.
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

/// Most instructions of a thread in this time.
fn most(time: Duration) -> u64 {
    let n = time.as_nanos() * (FASTEST / 1_000_000_000) as u128;
    u64::try_from(n).unwrap_or(u64::MAX)
}
