//! How many bytes the index file may have, and how parts of the fine level share them.

use super::{Engine, Options};
use crate::ThreadId;
use crate::index::{self, Level, Limits, PartRange};
use crate::recording::Recording;
use hindsight_trace::Trace;

/// A part of the fine level that a question makes has at most this share of the file.
const FINE_SHARE: u64 = 2;
/// An index may have twice the bytes of its trace, and this many more, besides what follows from the program's memory and its
/// instructions.
pub const INDEX_CONSTANT: u64 = 256 << 20;

/// It may have a byte for `PER_MEMORY` bytes of memory that the program had, and at most `MOST_FOR_MEMORY` of these. A large
/// program may change all of its memory at random.
const PER_MEMORY: u64 = 1;
const MOST_FOR_MEMORY: u64 = 2 << 30;
/// Where the coarse level takes more room than it should, the rest has this part of its own room at least.
const BESIDE: u64 = 4;
/// It may have one more byte for this many instructions. A program that changes all of its memory again and again needs
/// them.
const PER_BYTE: u64 = 512;

/// Who wants the whole fine level gets this many bytes more for each coarse interval. Half a billion instructions of python
/// take 0.1 to 10 MB, and where it works through a large memory up to 400 MB.
const FINE: u64 = 16 << 20;
/// A part of the fine level that is made ahead has at most this many times an even share.
const UNEVEN: u64 = 32;

/// The number of bytes that the index of a recording may have.
pub fn limits(recording: &Recording, options: &Options) -> Limits {
    let trace = &recording.trace;
    let usual = match options.index_size {
        0 => most(recording),
        n => n,
    };
    let each = match options.fine_size {
        0 => FINE,
        n => n,
    };
    let parts = instructions(trace).div_ceil(index::coarse_span(recording));
    Limits {
        usual,
        full: usual.saturating_add(parts.saturating_mul(each)),
        beside: (options.index_size == 0).then_some(usual / BESIDE),
    }
}

fn most(recording: &Recording) -> u64 {
    let trace = &recording.trace;
    let had = recording.memory().unwrap_or(0);
    let for_memory = (had / PER_MEMORY).min(MOST_FOR_MEMORY);
    2 * trace.len() + INDEX_CONSTANT + for_memory + instructions(trace) / PER_BYTE
}

/// The number of instructions of all threads.
fn instructions(trace: &Trace) -> u64 {
    let lengths = trace.threads().into_iter().map(|t| length(trace, t));
    lengths.fold(0, u64::saturating_add)
}

/// The number of instructions of a thread.
fn length(trace: &Trace, thread: u32) -> u64 {
    let chunks = trace.chunks(thread);
    let ends = chunks.first().zip(chunks.last());
    ends.map_or(0, |(first, last)| last.last_pos - first.first_pos)
}

impl Engine {
    /// The number of bytes that the index of a part may have that a question needs: its share of the whole.
    pub fn budget(&self, range: PartRange) -> u64 {
        let most = self.sidecar.limits.usual;
        if let Level::Fine { .. } = range.level {
            return most / FINE_SHARE;
        }
        let lengths = (self.threads.iter()).map(|ThreadId(t)| length(&self.trace, *t));
        let total = lengths.fold(0, u64::saturating_add);
        let share = range.len() as f64 / total.max(1) as f64;
        // Some parts of a long thread change much memory, and others next to none.
        let share = match range.level {
            Level::Coarse => (share * 1.5).min(1.0),
            _ => share,
        };
        // The rest of the file, around the parts, is small. A part that is larger than a record cannot be saved.
        ((most as f64 * share).min(index::MAX_RECORD as f64) * 0.9) as u64
    }
}

/// The room that parts of the fine level share which are still to be made.
pub struct Room {
    pub bytes: u64,
    pub instructions: u64,
    /// How many parts are made at the same time.
    pub jobs: u64,
}

impl Room {
    /// What a part of so many instructions may have. Most parts need little, and some much. So it is more than an even
    /// share, and those that are made later get what is left.
    pub fn take(&mut self, instructions: u64) -> u64 {
        let even = self.bytes as u128 * instructions as u128 / self.instructions.max(1) as u128;
        let most = u64::try_from(even * UNEVEN as u128).unwrap_or(u64::MAX);
        let share = most.min(self.bytes / self.jobs.max(1));
        self.bytes -= share;
        self.instructions = self.instructions.saturating_sub(instructions);
        share
    }

    /// Notes how much of its share a part took. It may have taken more.
    pub fn give_back(&mut self, share: u64, took: u64) {
        self.bytes = self.bytes.saturating_add(share).saturating_sub(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_what_earlier_parts_took() {
        let mut room = Room {
            bytes: 1000,
            instructions: 100,
            jobs: 2,
        };
        assert_eq!(room.take(1), 320);
        // While that one is made, another one takes from the rest.
        assert_eq!(room.take(11), 340, "the others have a half");
        // The first took less than its share, the second more.
        room.give_back(320, 20);
        room.give_back(340, 390);
        assert_eq!((room.bytes, room.instructions), (590, 88));
        room.jobs = 1;
        assert_eq!(room.take(88), 590, "there is no more");
        room.give_back(590, 2000);
        assert_eq!((room.bytes, room.take(1)), (0, 0));
    }
}
