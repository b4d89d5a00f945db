//! Parts of streams. Each part is replayed independently.

use hindsight_replay::{Difference, Error, Machine, Source, Stop, StreamEnd, differing, excerpt};
use hindsight_trace::{ChunkMeta, Completeness, StreamId, Trace};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Instructions between two reports of progress by one worker.
const STEP: u64 = 1 << 25;
/// Parts of a stream for each worker. With several, all workers end at about the same time.
const PARTS: u64 = 4;

/// The chunks of a part of a stream.
pub struct StreamPart {
    pub stream: StreamId,
    /// The program image whose code it executes.
    pub image: u32,
    chunks: std::ops::Range<usize>,
    /// Position of the key frame at which the next part begins. `None` for the last part.
    pub until: Option<u64>,
}

impl StreamPart {
    /// The chunks of the part.
    pub fn chunks<'a>(&self, trace: &'a Trace) -> &'a [ChunkMeta] {
        &trace.chunks(self.stream)[self.chunks.clone()]
    }
}

/// The events of a part.
pub fn source<'a>(trace: &'a Trace, part: &StreamPart) -> Box<dyn Source + 'a> {
    excerpt(
        trace,
        part.stream,
        part.chunks.clone(),
        part.until.is_some(),
    )
}

/// The result of replaying a part.
pub enum Outcome {
    Equal {
        end: Option<StreamEnd>,
        last: bool,
    },
    /// The trace ends before the part does. The text says where.
    Cut(String),
    Failed(Error),
}

/// Number of instructions in the chunks of a stream.
pub fn length(chunks: &[ChunkMeta]) -> u64 {
    match chunks {
        [first, .., last] => last.last_pos - first.first_pos,
        [one] => one.last_pos - one.first_pos,
        [] => 0,
    }
}

/// Describes the thread of a stream for people: process, program and thread id.
pub fn who(trace: &Trace, stream: StreamId) -> String {
    let Some(info) = trace.stream_info(stream) else {
        return format!("stream {stream}");
    };
    let command = trace.command(info.image);
    let mut out = format!("process {}", info.pid);
    if !command.is_empty() {
        out += &format!(" ({command})");
    }
    out + &format!(", thread {} (stream {stream})", info.tid)
}

/// Cuts a stream at key frames into parts of about equal length.
pub fn split(trace: &Trace, stream: StreamId, jobs: usize) -> Vec<StreamPart> {
    let chunks = trace.chunks(stream);
    let image = trace.stream_info(stream).map_or(0, |i| i.image);
    let last = length(chunks);
    let wanted = if jobs == 1 { 1 } else { jobs as u64 * PARTS };
    let share = (last / wanted).max(1);
    let mut starts = vec![0];
    let mut from = chunks.first().map_or(0, |c| c.first_pos);
    if wanted > 1 {
        for (i, c) in chunks.iter().enumerate().skip(1) {
            if c.keyframe && c.first_pos - from >= share {
                starts.push(i);
                from = c.first_pos;
            }
        }
    }
    let ends = starts.iter().skip(1).copied().map(Some).chain([None]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| StreamPart {
            stream,
            image,
            chunks: *start..end.unwrap_or(chunks.len()),
            until: end.map(|e| chunks[e].first_pos),
        })
        .collect()
}

/// The machine that plays, and one with another processor that must come to the same.
pub type Machines<'m, 'a> = (&'m mut Machine<'a>, Option<&'m mut Machine<'a>>);

/// Plays a part.
pub fn play<'a>(
    machines: Machines<'_, 'a>,
    trace: &'a Trace,
    part: &StreamPart,
    done: &AtomicU64,
    skip: &dyn Fn() -> bool,
) -> Outcome {
    match play_part(machines, trace, part, done, skip) {
        Ok(end) => Outcome::Equal {
            end,
            last: part.until.is_none(),
        },
        Err(Error::MissingCode { position, pc })
            if trace.completeness() != Completeness::Complete =>
        {
            let who = who(trace, part.stream);
            Outcome::Cut(format!(
                "{who} was verified up to position {position}: the code at {pc:#x} is in the missing part of the trace"
            ))
        }
        Err(Error::MissingCode { position, pc }) => {
            Outcome::Failed(Error::Difference(Box::new(Difference {
                position,
                pc,
                expected: "recorded code".into(),
                found: "a jump to code that the trace does not have".into(),
                unread: false,
            })))
        }
        Err(e) => Outcome::Failed(e),
    }
}

fn play_part<'a>(
    (machine, mut second): Machines<'_, 'a>,
    trace: &'a Trace,
    part: &StreamPart,
    done: &AtomicU64,
    skip: &dyn Fn() -> bool,
) -> Result<Option<StreamEnd>, Error> {
    machine.from_keyframe(source(trace, part))?;
    if let Some(second) = &mut second {
        second.from_keyframe(source(trace, part))?;
    }
    loop {
        let before = machine.position();
        let target = part
            .until
            .unwrap_or(u64::MAX)
            .min(before.saturating_add(STEP));
        let stop = machine.run_to(target);
        done.fetch_add(machine.position().saturating_sub(before), Relaxed);
        let stop = stop?;
        if let Some(second) = &mut second {
            follow(machine, second, target, &stop)?;
        }
        match stop {
            Stop::Position if part.until == Some(machine.position()) => {
                machine.finish_at_keyframe()?;
                if let Some(second) = &mut second {
                    second.finish_at_keyframe()?;
                }
                return Ok(None);
            }
            Stop::Position if skip() => return Ok(None),
            Stop::Position | Stop::Break => {}
            Stop::Ended(end) => return Ok(Some(end)),
            Stop::OutOfEvents => return Ok(None),
        }
    }
}

/// Runs the second machine to where the first one is, and compares their registers.
fn follow(machine: &Machine, second: &mut Machine, target: u64, stop: &Stop) -> Result<(), Error> {
    let other = second.run_to(target)?;
    let (a, b) = (machine.state(), second.state());
    let differ = match differing((&a.cpu, &a.vec), (&b.cpu, &b.vec)) {
        None if a.position == b.position && *stop == other => return Ok(()),
        None => (
            format!("{stop:?} at {}", a.position),
            format!("{other:?} at {}", b.position),
        ),
        Some(differ) => differ,
    };
    Err(Error::Difference(Box::new(Difference {
        position: b.position,
        pc: b.cpu.rip,
        expected: format!("what the native processor has, {}", differ.0),
        found: format!("what the interpreter has, {}", differ.1),
        unread: false,
    })))
}
