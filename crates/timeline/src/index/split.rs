//! Makes the index of a part on several processors. A machine without marks is several times as fast. It runs ahead to
//! where the others begin.

use super::budget::Budget;
use super::build::{Progress, Start, build};
use super::draft::Draft;
use super::ranges::{PartRange, chunk_of};
use super::sidecar::Stream;
use crate::base::STRIDE;
use crate::base::sync::{joined, lock, spawn};
use crate::model::error::replay;
use crate::recording::{Chunks, Recording};
use crate::scan::Scan;
use crate::{Error, Result};
use hindsight_replay::Stop;
use hindsight_trace::Completeness;
use std::sync::{Arc, Mutex};

/// The time of a replay without marks, relative to one with marks; approximately.
const AHEAD: f64 = 0.6;
/// A stretch has at least this many intervals.
const LEAST: u64 = 4;
/// There are at most this many stretches.
const MOST: usize = 8;
/// `MEMORY` is how many bytes of memory all stretches may take together. Each holds the program's memory `TIMES` times: in
/// its window, in the marks of reads, in those of writes, and in what its packer knows.
const MEMORY: u64 = 2 << 30;
const TIMES: u64 = 4;
/// The same for a part with a coarse level. What changed in its long intervals comes on top.
const TIMES_COARSE: u64 = 8;

/// Makes the index of a part within a budget. Up to `jobs` threads play, and as many pack. `stream` takes the sections
/// as they are made, if there is one stretch only.
pub fn by_several(
    recording: &Arc<Recording>,
    range: PartRange,
    scan: &Scan,
    budget: &Budget,
    jobs: usize,
    stream: Option<&mut Stream>,
    progress: &Progress,
) -> Result<Draft> {
    let least = LEAST * range.span(recording);
    // One of three processors packs.
    let stretches = (2 * jobs / 3).min(affordable(recording)).clamp(1, MOST);
    let starts = starts(range, stretches, least);
    if starts.len() == 1 {
        return build(
            recording,
            range,
            scan,
            budget,
            &[],
            None,
            true,
            stream,
            progress,
        );
    }
    let drafts = Mutex::new(vec![None; starts.len()]);
    let stretch = |i: usize, start: Option<Start>| -> Result<()> {
        let from = starts[i];
        let to = starts.get(i + 1).copied().unwrap_or(range.to);
        let part = PartRange {
            from,
            to,
            chunk: match i {
                0 => range.chunk,
                _ => chunk_of(recording, range.thread, from),
            },
            ..range
        };
        let draft = build(
            recording,
            part,
            scan,
            budget,
            &[],
            start,
            false,
            None,
            progress,
        )?;
        lock(&drafts)[i] = Some(draft);
        Ok(())
    };
    std::thread::scope(|s| {
        let stretch = &stretch;
        let mut others = vec![spawn(s, move || stretch(0, None))];
        let mut begin = |i, start| {
            others.push(spawn(s, move || stretch(i, Some(start))));
        };
        let ahead = run_ahead(recording, range, &starts, progress, &mut begin);
        let mine = ahead.and_then(|last| match last {
            Some(start) => stretch(starts.len() - 1, Some(start)),
            None => Ok(()),
        });
        // If the machine that runs ahead fails, the other one fails at the same place and says where.
        others.into_iter().try_for_each(joined).and(mine)
    })?;
    let mut all: Option<Draft> = None;
    for draft in drafts.into_inner().unwrap_or_else(|e| e.into_inner()) {
        match (&mut all, draft) {
            (None, draft) => all = draft,
            // After the place where the stream was cut, nothing follows.
            (Some(all), Some(draft)) if all.intervals.last().map(|i| i.to) == Some(draft.from) => {
                all.intervals.extend(draft.intervals);
            }
            _ => break,
        }
    }
    let mut all = all.ok_or(Error::Cancelled)?;
    // This also holds for a stream that was cut.
    all.to = range.to;
    Ok(all)
}

/// How many stretches may be made at the same time. Each takes a multiple of the program's memory.
fn affordable(recording: &Recording) -> usize {
    within_memory(recording, TIMES)
}

/// How many parts with a coarse level may be made at the same time.
pub fn affordable_coarse(recording: &Recording) -> usize {
    within_memory(recording, TIMES_COARSE)
}

/// How many machines may run at the same time that each hold the program's memory so many times.
pub fn within_memory(recording: &Recording, times: u64) -> usize {
    let had = recording.memory().map_or(u64::MAX, |had| had.max(1));
    usize::try_from(MEMORY / times / had).unwrap_or(1).max(1)
}

/// Where stretches are to begin. A stretch starts when the fast machine has reached it. The lengths are chosen so that
/// all are done at the same time.
fn starts(range: PartRange, jobs: usize, least: u64) -> Vec<u64> {
    let total = (range.to - range.from) as f64;
    let first = total * AHEAD / (1.0 - (1.0 - AHEAD).powi(jobs.max(1) as i32));
    let mut out = vec![range.from];
    let mut at = first;
    while out.len() < jobs && at >= least as f64 && total - at >= least as f64 {
        out.push(range.from + at as u64);
        at = first + (1.0 - AHEAD) * at;
    }
    out
}

/// Runs to the beginnings of stretches and starts a thread at each. The start of the last one is returned instead.
/// `None`: the stream ended before.
fn run_ahead(
    recording: &Arc<Recording>,
    range: PartRange,
    starts: &[u64],
    progress: &Progress,
    begin: &mut dyn FnMut(usize, Start),
) -> Result<Option<Start>> {
    let thread = range.thread;
    let fail = |e| replay(thread, e);
    let mut m = recording.machine(thread)?;
    let source = Chunks::new(recording, thread, range.chunk);
    // The other machines do the comparing.
    m.digests_only();
    m.from_keyframe(Box::new(source)).map_err(fail)?;
    let mut next = 1;
    loop {
        if !progress(0) {
            return Err(Error::Cancelled);
        }
        let to = starts[next].min(m.position().saturating_add(16 * STRIDE));
        match m.run_to(to) {
            Ok(Stop::Position | Stop::Break) => {}
            Ok(Stop::Ended(_) | Stop::OutOfEvents) => return Ok(None),
            // The code is missing because the trace is cut.
            Err(hindsight_replay::Error::MissingCode { .. })
                if recording.trace.completeness() != Completeness::Complete =>
            {
                return Ok(None);
            }
            Err(e) => return Err(fail(e)),
        }
        if m.position() < starts[next] {
            continue;
        }
        let start = Start {
            state: m.state(),
            content: m.content().map_err(fail)?,
        };
        if next + 1 == starts.len() {
            return Ok(Some(start));
        }
        begin(next, start);
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::ranges::Level;
    use super::*;
    use crate::ThreadId;

    #[test]
    fn stretches_end_at_the_same_time() {
        let range = PartRange {
            thread: ThreadId(1),
            chunk: 0,
            until: 1,
            stepped: false,
            from: 1000,
            to: 1_001_000,
            last: true,
            level: Level::Only,
        };
        for jobs in 1..8 {
            let starts = starts(range, jobs, 1000);
            assert_eq!((starts.len(), starts[0]), (jobs, 1000));
            let ends = starts[1..].iter().chain([&range.to]);
            let done = |(from, to): (&u64, &u64)| (from - 1000) as f64 * AHEAD + (to - from) as f64;
            let done: Vec<f64> = starts.iter().zip(ends).map(done).collect();
            let spread = done.iter().map(|d| (d - done[0]).abs()).fold(0.0, f64::max);
            assert!(spread < 10.0, "{jobs}: {done:?}");
        }
        assert_eq!(starts(range, 4, 600_000).len(), 1);
    }
}
