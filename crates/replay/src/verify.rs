//! Replays a whole trace and compares everything that can be compared.

use crate::queue::{Counts, Source};
use crate::symbols::{self, Place};
use crate::{Code, Difference, End, Error, Machine, Stop};
use hindsight_isa::Predictor;
use hindsight_trace::{ChunkMeta, Completeness, StreamId, Trace};
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Instructions between two reports of progress by one worker.
const STEP: u64 = 1 << 25;
/// Parts into which a stream is cut per worker, so that all end at about the same time.
const PARTS: u64 = 4;

/// How to verify.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that replay at the same time.
    pub jobs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            jobs: std::thread::available_parallelism().map_or(1, |n| n.get()),
        }
    }
}

/// The first difference of a trace, and where in the program it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    pub stream: StreamId,
    pub difference: Difference,
    pub place: Option<Place>,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let d = &self.difference;
        write!(
            f,
            "thread {}, position {}, address {:#x}",
            self.stream, d.position, d.pc
        )?;
        if let Some(p) = &self.place {
            write!(f, " ({p})")?;
        }
        write!(f, ": expected {}, found {}", d.expected, d.found)
    }
}

/// What a verification found out.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Instructions replayed.
    pub instructions: u64,
    /// Memory operands read, string instructions not counted.
    pub reads: u64,
    /// Events compared or applied, by their tag.
    pub events: Counts,
    /// Threads of the program.
    pub threads: usize,
    /// Parts that were replayed independently.
    pub parts: usize,
    /// How each thread ended, as far as the trace says.
    pub ends: Vec<(StreamId, Option<End>)>,
    /// What keeps the result from covering the whole recording.
    pub warnings: Vec<String>,
    /// Where replay and recording disagree, if they do.
    pub difference: Option<Located>,
    pub elapsed: Duration,
}

impl Report {
    /// Whether every comparison came out equal.
    pub fn verified(&self) -> bool {
        self.difference.is_none()
    }

    /// Millions of instructions per second.
    pub fn mips(&self) -> f64 {
        self.instructions as f64 / 1e6 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Events by name, those that occurred.
    pub fn events_by_name(&self) -> Vec<(&'static str, u64)> {
        const NAMES: [&str; 16] = [
            "patch",
            "patch bytes",
            "system call",
            "system call result",
            "registers",
            "string chunk",
            "signal",
            "state",
            "zero",
            "key frame",
            "digest",
            "code epoch",
            "end",
            "code",
            "map",
            "unmap",
        ];
        NAMES
            .into_iter()
            .zip(self.events)
            .filter(|(_, n)| *n != 0)
            .collect()
    }
}

/// The chunks of a part of a stream, and the first one of the part that follows.
struct Part {
    stream: StreamId,
    chunks: std::ops::Range<usize>,
    /// Position of the key frame at which the next part begins.
    until: Option<u64>,
}

struct Chunks<'a> {
    trace: &'a Trace,
    rest: std::slice::Iter<'a, ChunkMeta>,
}

impl Source for Chunks<'_> {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.rest
            .next()
            .map(|c| Ok(self.trace.load(c)?))
            .transpose()
    }
}

/// What became of a part.
enum Outcome {
    Equal {
        end: Option<End>,
        last: bool,
    },
    /// The trace ends before the part does.
    Cut(String),
    Failed(Error),
}

/// Replays all threads of `trace`. `progress` is called now and then with the numbers of
/// instructions done and to do. An error means that the trace cannot be replayed; a difference
/// is part of the report.
pub fn verify(
    trace: &Trace,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, Error> {
    let begin = Instant::now();
    let bits = trace.header().predictor_bits;
    if !(12..=32).contains(&bits) {
        return Err(Error::Corrupt {
            position: 0,
            what: "the predictor's size makes no sense",
        });
    }
    let code = Arc::new(Code::from_trace(trace)?);
    let jobs = options.jobs.max(1);
    let threads: Vec<StreamId> = trace.streams().into_iter().filter(|s| *s != 0).collect();
    let parts: Vec<Part> = threads
        .iter()
        .flat_map(|s| split(*s, trace.chunks(*s), jobs))
        .collect();
    let total = threads
        .iter()
        .filter_map(|s| trace.chunks(*s).last())
        .map(|c| c.last_pos)
        .sum();

    let next = AtomicUsize::new(0);
    // Parts behind the first one that failed are of no interest.
    let first_bad = AtomicUsize::new(usize::MAX);
    let done = AtomicU64::new(0);
    let reads = AtomicU64::new(0);
    let results = Mutex::new(Vec::new());
    let work = || -> Result<(), Error> {
        let mut machine = Machine::new(Arc::clone(&code), Predictor { bits })?;
        loop {
            let i = next.fetch_add(1, Relaxed);
            let Some(part) = parts.get(i) else {
                reads.fetch_add(machine.reads(), Relaxed);
                return Ok(());
            };
            if i > first_bad.load(Relaxed) {
                continue;
            }
            let skip = || i > first_bad.load(Relaxed);
            let outcome = play(&mut machine, trace, part, &done, &skip);
            if !matches!(outcome, Outcome::Equal { .. }) {
                first_bad.fetch_min(i, Relaxed);
            }
            let counts = *machine.event_counts();
            results
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .push((i, outcome, counts));
        }
    };
    let mut damaged = Vec::new();
    let worked: Result<(), Error> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.min(parts.len()).max(1))
            .map(|_| scope.spawn(work))
            .collect();
        damaged = damaged_modules(trace);
        while !workers.iter().all(|w| w.is_finished()) {
            progress(done.load(Relaxed), total);
            let wait = if begin.elapsed() < Duration::from_millis(50) {
                1
            } else {
                20
            };
            std::thread::sleep(Duration::from_millis(wait));
        }
        for w in workers {
            match w.join() {
                Ok(r) => r?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    });
    worked?;

    let mut report = Report {
        threads: threads.len(),
        parts: parts.len(),
        warnings: damaged,
        ..Report::default()
    };
    report.instructions = done.load(Relaxed);
    report.reads = reads.load(Relaxed);
    match trace.completeness() {
        Completeness::Complete => {}
        c => report
            .warnings
            .push(format!("the trace is {c}; what is there was verified")),
    }
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|r| r.0);
    for (i, outcome, counts) in results {
        let stream = parts[i].stream;
        report
            .events
            .iter_mut()
            .zip(counts)
            .for_each(|(a, b)| *a += b);
        match outcome {
            Outcome::Equal { last: false, .. } => {}
            Outcome::Equal { end, last: true } => {
                if end.is_none() && trace.completeness() == Completeness::Complete {
                    report
                        .warnings
                        .push(format!("the stream of thread {stream} has no end"));
                }
                report.ends.push((stream, end));
            }
            Outcome::Cut(warning) => {
                report.warnings.push(warning);
                report.ends.push((stream, None));
            }
            Outcome::Failed(Error::Difference(d)) => {
                let place = symbols::place(trace, d.pc);
                report.difference = Some(Located {
                    stream,
                    difference: *d,
                    place,
                });
                break;
            }
            Outcome::Failed(e) => return Err(e),
        }
    }
    report.elapsed = begin.elapsed();
    progress(report.instructions, total);
    Ok(report)
}

/// What is wrong with the module files that a trace contains. Replay does not need them, but a
/// reader of the trace does.
fn damaged_modules(trace: &Trace) -> Vec<String> {
    let mut checked = HashSet::new();
    let mut warnings = Vec::new();
    for m in trace.modules() {
        if checked.insert(m.hash)
            && let Err(e) = trace.module_bytes(m.hash)
        {
            warnings.push(format!("the copy of {} in the trace: {e}", m.path));
        }
    }
    warnings
}

/// Cuts a stream at key frames into parts of about equal length.
fn split(stream: StreamId, chunks: &[ChunkMeta], jobs: usize) -> Vec<Part> {
    let last = chunks.last().map_or(0, |c| c.last_pos);
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
        .map(|(start, end)| Part {
            stream,
            // The next part's first chunk begins with the key frame that this part ends at.
            chunks: *start..end.map_or(chunks.len(), |e| e + 1),
            until: end.map(|e| chunks[e].first_pos),
        })
        .collect()
}

fn play<'a>(
    machine: &mut Machine<'a>,
    trace: &'a Trace,
    part: &Part,
    done: &AtomicU64,
    skip: &dyn Fn() -> bool,
) -> Outcome {
    match play_part(machine, trace, part, done, skip) {
        Ok(end) => Outcome::Equal {
            end,
            last: part.until.is_none(),
        },
        Err(Error::MissingCode { position, pc })
            if trace.completeness() != Completeness::Complete =>
        {
            let stream = part.stream;
            Outcome::Cut(format!(
                "thread {stream} was verified up to position {position}: the code at {pc:#x} is in the missing part of the trace"
            ))
        }
        Err(Error::MissingCode { position, pc }) => {
            Outcome::Failed(Error::Difference(Box::new(Difference {
                position,
                pc,
                expected: "recorded code".into(),
                found: "a jump to where the trace has none".into(),
            })))
        }
        Err(e) => Outcome::Failed(e),
    }
}

fn play_part<'a>(
    machine: &mut Machine<'a>,
    trace: &'a Trace,
    part: &Part,
    done: &AtomicU64,
    skip: &dyn Fn() -> bool,
) -> Result<Option<End>, Error> {
    let rest = trace.chunks(part.stream)[part.chunks.clone()].iter();
    machine.from_keyframe(Box::new(Chunks { trace, rest }))?;
    loop {
        let before = machine.position();
        let target = part
            .until
            .unwrap_or(u64::MAX)
            .min(before.saturating_add(STEP));
        let stop = machine.run_to(target);
        done.fetch_add(machine.position().saturating_sub(before), Relaxed);
        match stop? {
            Stop::Position if part.until == Some(machine.position()) => {
                machine.finish_at_keyframe()?;
                return Ok(None);
            }
            Stop::Position if skip() => return Ok(None),
            Stop::Position => {}
            Stop::Ended(end) => return Ok(Some(end)),
            Stop::OutOfEvents => return Ok(None),
        }
    }
}
