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

/// A part begins with all that memory holds. So it is to have this many instructions for each byte that the program had.
const PER_BYTE: u64 = 200;

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
    let had = (recording.trace.summary()).map_or(0, |s| s.peak_memory_kib.saturating_mul(1024));
    let least = match recording.interval {
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
