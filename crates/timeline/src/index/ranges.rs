//! Where the parts of the index lie, and how long their intervals are.

use crate::ThreadId;
use crate::recording::Recording;

/// Instructions of an interval.
pub const SPAN: u64 = 32 << 20;
/// Where several threads share memory, and intervals are made in steps: what one of them may have written at the same time
/// as another is found by replaying from the steps that wrote there.
const SHARED_SPAN: u64 = 8 << 20;

/// Instructions of an interval of a thread, unless its index would become too large.
pub fn span(recording: &Recording, thread: ThreadId) -> u64 {
    match recording.interval {
        0 if recording.has_steps(thread) => SHARED_SPAN,
        0 => SPAN,
        n => n,
    }
}

/// Where a part lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartRange {
    pub thread: ThreadId,
    /// Its first chunk.
    pub chunk: usize,
    pub from: u64,
    pub to: u64,
    /// The thread ends there, and not with a key frame.
    pub last: bool,
}

/// The parts of a thread.
pub fn places(recording: &Recording, thread: ThreadId) -> Vec<PartRange> {
    let chunks = recording.trace.chunks(thread.0);
    let end = chunks.last().map_or(0, |c| c.last_pos);
    let mut starts: Vec<usize> = (0..chunks.len()).filter(|i| chunks[*i].keyframe).collect();
    if starts.is_empty() && !chunks.is_empty() {
        starts.push(0);
    }
    // Where the quiet regime ends at a key frame there are two; only what comes behind the last is of use.
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
