//! Where the parts of the index lie, in which levels they are made, and how long their intervals are.

use crate::ThreadId;
use crate::recording::Recording;

/// Instructions in an interval.
pub const SPAN: u64 = 32 << 20;
/// Instructions in an interval where threads share memory, and intervals have steps. Threads may then write at the same
/// time. A search finds such writes by replaying the steps that wrote there.
const SHARED_SPAN: u64 = 8 << 20;

/// Instructions in an interval of the coarse level.
const COARSE: u64 = 16 * SPAN;
/// A thread that is longer than this many coarse intervals is long: its parts are made in levels. One level of a shorter
/// one is made in less time than two, and what it takes is small.
const LONG: u64 = 16;

/// A program with so many bytes of memory is large. To lead all of it to a border takes long. Of a smaller one, frames would take
/// more room than they save time.
const LARGE: u64 = 512 << 20;
/// An interval of the coarse level of a large program that accesses so many pages, 64 MiB, accesses much memory.
const MUCH: usize = 16 << 10;
/// The same where somebody chose the length of coarse intervals. The programs of tests are small.
const MUCH_IF_CHOSEN: usize = 32;

/// How many pages are much memory for an interval of the coarse level. `None`: no number is.
pub fn much(recording: &Recording) -> Option<usize> {
    match recording.coarse {
        0 if recording.memory().unwrap_or(0) < LARGE => None,
        0 => Some(MUCH),
        _ => Some(MUCH_IF_CHOSEN),
    }
}

/// Which intervals the index of a range has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Those of the usual length. There is no other level.
    Only,
    /// Long ones. Each has a part of the fine level, which is made when it is needed.
    Coarse,
    /// Those of the usual length, in one interval of a coarse part. That part begins at instruction `of`.
    Fine { of: u64 },
}

/// Instructions in an interval of the coarse level.
pub fn coarse_span(recording: &Recording) -> u64 {
    match recording.coarse {
        0 => COARSE,
        n => n,
    }
}

/// Instructions in an interval of a thread. Intervals get longer if the index would become too large.
pub fn span(recording: &Recording, thread: ThreadId) -> u64 {
    match recording.interval {
        0 if recording.has_steps(thread) => SHARED_SPAN,
        0 => SPAN,
        n => n,
    }
}

/// The range of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartRange {
    pub thread: ThreadId,
    /// The number of its first chunk in the thread's stream.
    pub chunk: usize,
    /// The number of the chunk behind its last one. The thread of a recording that is still being written may have more
    /// events at the same instruction later, so `to` does not say where the part ends.
    pub until: usize,
    pub from: u64,
    pub to: u64,
    /// The part ends with the thread, not with a key frame.
    pub last: bool,
    /// Its intervals are made in steps.
    pub stepped: bool,
    pub level: Level,
}

impl PartRange {
    /// The number of instructions.
    pub fn len(&self) -> u64 {
        self.to - self.from
    }

    /// Whether this is the coarse level.
    pub fn is_coarse(&self) -> bool {
        self.level == Level::Coarse
    }

    /// The range of the fine level for an interval of this coarse part.
    pub fn fine(self, recording: &Recording, (from, to): (u64, u64)) -> PartRange {
        PartRange {
            chunk: match from == self.from {
                true => self.chunk,
                false => chunk_of(recording, self.thread, from),
            },
            from,
            to,
            level: Level::Fine { of: self.from },
            ..self
        }
    }

    /// Instructions in an interval of its index.
    pub fn span(&self, recording: &Recording) -> u64 {
        match self.level {
            Level::Coarse => coarse_span(recording),
            _ => span(recording, self.thread),
        }
    }
}

/// The first chunk that a replay from instruction `from` on needs.
pub fn chunk_of(recording: &Recording, thread: ThreadId, from: u64) -> usize {
    let chunks = recording.trace.chunks(thread.0);
    chunks.partition_point(|c| c.last_pos < from)
}

/// A part begins with all that memory holds. So it is to have this many instructions for each byte that the program had.
const PER_BYTE: u64 = 200;
/// The same in a long thread. A question there waits for the part that it needs, not for all of them. Laying out memory
/// is then a small part of the time.
const PER_BYTE_OF_LONG: u64 = 20;

/// Whether a thread is long. Where threads share memory, searches begin at steps. An interval of the coarse level would
/// need thousands.
fn is_long(recording: &Recording, thread: ThreadId) -> bool {
    let coarse = coarse_span(recording);
    let chunks = recording.trace.chunks(thread.0);
    let ends = chunks.first().zip(chunks.last());
    let len = ends.map_or(0, |(first, last)| last.last_pos - first.first_pos);
    !recording.has_steps(thread)
        && coarse > span(recording, thread)
        && len > coarse.saturating_mul(LONG)
}

/// Leaves out key frames that restate only what has changed since another one, where parts would be short. The numbers of
/// their chunks are `starts`.
fn leave_out_based(recording: &Recording, thread: ThreadId, starts: &mut Vec<usize>) {
    if starts.len() < 2 {
        return;
    }
    // If it cannot be read, all that needs it fails, too.
    let Ok(scan) = recording.scan(thread) else {
        return;
    };
    let chunks = recording.trace.chunks(thread.0);
    let had = recording.memory().unwrap_or(0);
    let least = match recording.interval {
        0 if is_long(recording, thread) => had
            .saturating_mul(PER_BYTE_OF_LONG)
            .max(2 * coarse_span(recording)),
        0 => had.saturating_mul(PER_BYTE).max(SPAN),
        n => n,
    };
    let positions: Vec<u64> = starts.iter().map(|s| chunks[*s].first_pos).collect();
    // Where the quiet regime ends, there may be two. The last one restates nothing.
    let twice =
        |at| positions.partition_point(|p| *p <= at) - positions.partition_point(|p| *p < at) > 1;
    let mut last = 0;
    starts.retain(|s| {
        let at = chunks[*s].first_pos;
        let based = scan.is_based(at) && !twice(at);
        let begins = !based || at.saturating_sub(last) >= least;
        if begins {
            last = at;
        }
        begins
    });
}

/// The parts of a thread.
pub fn part_ranges(recording: &Recording, thread: ThreadId) -> Vec<PartRange> {
    let chunks = recording.trace.chunks(thread.0);
    let end = chunks.last().map_or(0, |c| c.last_pos);
    let mut starts: Vec<usize> = (0..chunks.len()).filter(|i| chunks[*i].keyframe).collect();
    if starts.is_empty() && !chunks.is_empty() {
        starts.push(0);
    }
    // Where the quiet regime ends, two key frames have the same position. Only what follows the last one is of use.
    let at = |s: &usize| chunks[*s].first_pos;
    leave_out_based(recording, thread, &mut starts);
    let mut next = starts
        .iter()
        .skip(1)
        .map(at)
        .collect::<Vec<_>>()
        .into_iter();
    starts.retain(|s| next.next() != Some(at(s)));
    let ends = starts.iter().skip(1).map(|s| (*s, chunks[*s].first_pos));
    let ends: Vec<(usize, u64)> = ends.chain([(chunks.len(), end)]).collect();
    let stepped = recording.has_steps(thread);
    let (long, coarse) = (is_long(recording, thread), coarse_span(recording));
    let level = |len: u64| match long && len > coarse {
        true => Level::Coarse,
        false => Level::Only,
    };
    (starts.iter().zip(&ends).enumerate())
        .map(|(i, (chunk, (until, to)))| PartRange {
            thread,
            chunk: *chunk,
            until: *until,
            stepped,
            from: chunks[*chunk].first_pos,
            to: *to,
            last: i + 1 == starts.len(),
            level: level(to.saturating_sub(chunks[*chunk].first_pos)),
        })
        .collect()
}
