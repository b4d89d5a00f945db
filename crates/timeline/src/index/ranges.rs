//! Where the parts of the index lie, and how long their intervals are.

use crate::ThreadId;
use crate::recording::Recording;

/// Instructions in an interval.
pub const SPAN: u64 = 32 << 20;
/// Instructions in an interval where threads share memory, and intervals have steps. Threads may then write at the same
/// time. A search finds such writes by replaying the steps that wrote there.
const SHARED_SPAN: u64 = 8 << 20;

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
    pub from: u64,
    pub to: u64,
    /// The part ends with the thread, not with a key frame.
    pub last: bool,
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
    let mut next = starts
        .iter()
        .skip(1)
        .map(at)
        .collect::<Vec<_>>()
        .into_iter();
    starts.retain(|s| next.next() != Some(at(s)));
    let ends = starts.iter().skip(1).map(|s| chunks[*s].first_pos);
    let ends: Vec<u64> = ends.chain([end]).collect();
    (starts.iter().zip(&ends).enumerate())
        .map(|(i, (chunk, to))| PartRange {
            thread,
            chunk: *chunk,
            from: chunks[*chunk].first_pos,
            to: *to,
            last: i + 1 == starts.len(),
        })
        .collect()
}
