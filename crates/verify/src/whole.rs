//! Replays a whole trace and compares everything that can be compared.

use crate::cost::{Watch, thread_time};
use crate::part::{self, Outcome, StreamPart};
use crate::suspects::{self, Suspect};
use crate::symbols::{self, Location};
use hindsight_events::event::tag;
use hindsight_isa::{Executed, Predictor};
use hindsight_replay::{
    Choice, Code, Counts, Difference, Error, Library, Machine, Model, Numbers, Sequence, StreamEnd,
};
use hindsight_text::Shown;
use hindsight_trace::{Completeness, StreamId, Trace};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checks {
    /// Everything that the recording says twice. Besides [`Checks::Digests`] this is:
    ///
    /// - system calls with their arguments;
    /// - the bytes that the program wrote to files and others;
    /// - the order numbers, which must be unique and grow;
    /// - the copies of the program's files.
    #[default]
    Full,
    /// The digests of registers, the registers at key frames, and the kind of the instruction at each event.
    /// Replay could not continue without the last one.
    Digests,
}

/// Which processors replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Processors {
    #[default]
    Native,
    Interpreter,
    /// Both, with their registers compared at every digest.
    Both,
}

/// How to verify.
#[derive(Clone, Debug)]
pub struct Options {
    pub checks: Checks,
    /// Number of threads that replay at the same time.
    pub jobs: usize,
    /// Whether to count the memory operands that are read. It takes a tenth more time.
    pub count: bool,
    /// Only the native processor can count.
    pub processors: Processors,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            checks: Checks::Full,
            jobs: hindsight_guard::processors(),
            count: false,
            processors: Processors::Native,
        }
    }
}

/// The first difference of a trace, and where in the program it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    pub stream: StreamId,
    /// Process, program and thread, as text for people.
    pub who: String,
    pub difference: Difference,
    pub location: Option<Location>,
    /// In the quiet regime: system calls that may have written memory without the recording having it, the
    /// likeliest first.
    pub suspects: Vec<Suspect>,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let d = &self.difference;
        write!(
            f,
            "{}, position {}, address {:#x}",
            Shown(&self.who),
            d.position,
            d.pc
        )?;
        if let Some(p) = &self.location {
            write!(f, " ({p})")?;
        }
        let (expected, found) = (Shown(&d.expected), Shown(&d.found));
        write!(f, ": expected {expected}, found {found}")?;
        if let Some((first, others)) = self.suspects.split_first() {
            write!(
                f,
                "\nsomething that was not recorded may have changed memory, most likely {first}"
            )?;
            for s in others {
                write!(f, "\nor {s}")?;
            }
        }
        Ok(())
    }
}

/// The result of a verification.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Number of replayed instructions.
    pub instructions: u64,
    /// What was executed, if it was counted.
    pub executed: Option<Executed>,
    /// Numbers of events that were compared or applied, by tag.
    pub events: Counts,
    /// Number of stretches that were not recorded.
    pub gaps: u64,
    /// Number of instructions in these stretches.
    pub skipped: u64,
    /// Number of threads of all processes.
    pub threads: usize,
    /// Number of program images: processes, and programs that they executed.
    pub images: usize,
    /// Number of parts that were replayed independently.
    pub parts: usize,
    /// How each thread ended, as far as the trace says.
    pub ends: Vec<(StreamId, Option<StreamEnd>)>,
    /// Why the result does not cover the whole recording, as text.
    pub warnings: Vec<String>,
    /// Where replay and recording differ, if they do.
    pub difference: Option<Located>,
    pub elapsed: Duration,
    /// Processor time of all workers, without `verifying`.
    pub replaying: Duration,
    /// Processor time of comparisons and other checks.
    pub verifying: Duration,
}

impl Report {
    /// Whether something was replayed and every comparison came out equal.
    pub fn verified(&self) -> bool {
        self.difference.is_none() && !self.is_empty()
    }

    /// Whether the recording has no instruction that can be replayed. Then nothing is known to be equal.
    pub fn is_empty(&self) -> bool {
        self.difference.is_none() && self.instructions == 0
    }

    /// Millions of instructions per second.
    pub fn mips(&self) -> f64 {
        self.instructions as f64 / 1e6 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Names and numbers of the events that occurred.
    pub fn events_by_name(&self) -> Vec<(&'static str, u64)> {
        const NAMES: [&str; tag::COUNT] = [
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
            "sequence",
            "gap begin",
            "gap end",
            "mark",
            "code of the parent",
            "code of a module",
            "memory",
            "file without content",
            "file",
            "move",
            "regime",
            "digest of output",
            "time",
            "memory changed",
            "memory restated",
            "x87 results",
            "patches of lines",
            "common cells",
            "fresh memory",
        ];
        NAMES
            .into_iter()
            .zip(self.events.0)
            .filter(|(_, n)| *n != 0)
            .collect()
    }
}

/// Names the processes of a recording that have no instruction to replay.
fn left_out(trace: &Trace) -> Vec<String> {
    /// How many processes are named.
    const NAMED: usize = 10;
    let mut out = Vec::new();
    for i in trace.images() {
        // Only whole processes count: a single thread may be killed before it does anything.
        let empty = |s: &StreamId| part::length(trace.chunks(*s)) == 0;
        if i.threads.iter().all(empty) {
            out.push(format!(
                "nothing of process {} (program image {}) is recorded; nothing of it was verified",
                i.pid, i.number
            ));
        }
    }
    if out.len() > NAMED {
        let more = out.split_off(NAMED).len();
        out.push(format!("nor of {more} more processes"));
    }
    out
}

/// What the workers of a verification share.
struct Job<'a> {
    trace: &'a Trace,
    options: &'a Options,
    parts: Vec<StreamPart>,
    codes: Codes,
    library: Option<Arc<Library>>,
    order: Arc<Sequence>,
    /// The next part to play.
    next: AtomicUsize,
    /// Parts behind the first one that failed do not matter.
    first_bad: AtomicUsize,
    /// Instructions done.
    done: AtomicU64,
    skipped: AtomicU64,
    gaps: AtomicU64,
    executed: Mutex<Executed>,
    results: Mutex<Vec<Played>>,
    /// Processor time of replaying, and of comparing.
    times: Mutex<(Duration, Duration)>,
}

/// What came of a part: its index, its outcome, its events by kind, and its order numbers.
type Played = (usize, Outcome, (Counts, Option<Numbers>));

impl<'a> Job<'a> {
    fn new(trace: &'a Trace, options: &'a Options, threads: &[StreamId]) -> Job<'a> {
        let jobs = options.jobs.max(1);
        let mut parts: Vec<StreamPart> = threads
            .iter()
            .flat_map(|s| part::split(trace, *s, jobs))
            .collect();
        // The parts of one image, and the images of one program, come together. So a worker seldom needs other
        // code.
        parts.sort_by_cached_key(|p| (program(trace, p.image), p.image));
        // A single worker that plays a single image has nobody to share blocks with.
        let workers = jobs.min(parts.len()).max(1);
        let alone = workers == 1 && parts.iter().all(|p| p.image == parts[0].image);
        Job {
            trace,
            options,
            codes: Codes::new(&parts),
            library: (!alone).then(Arc::<Library>::default),
            parts,
            order: Arc::default(),
            next: AtomicUsize::new(0),
            first_bad: AtomicUsize::new(usize::MAX),
            done: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            executed: Mutex::default(),
            results: Mutex::default(),
            times: Mutex::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.options.checks == Checks::Full
    }

    /// What executes instructions.
    fn model(&self) -> Model {
        let choice = match self.options.processors {
            Processors::Native | Processors::Both => Choice::Native,
            Processors::Interpreter => Choice::Interpreter,
        };
        Model::of(choice, self.trace.header())
    }

    fn workers(&self) -> usize {
        self.options.jobs.max(1).min(self.parts.len()).max(1)
    }

    /// One worker: plays parts until there are no more.
    fn work(&self) -> Result<(), Error> {
        let watch = Watch::start();
        let bits = self.trace.header().predictor_bits;
        let model = self.model();
        let predictor = Predictor { bits };
        let mut machine = Machine::with(model.clone(), Arc::default(), predictor)?;
        let mut second = match self.options.processors {
            Processors::Both => {
                machine.stop_at_digests();
                Some(second(model, predictor, self.is_full())?)
            }
            _ => None,
        };
        match self.is_full() {
            true => {
                machine.check_order(Arc::clone(&self.order));
                machine.compare_memory();
            }
            false => machine.digests_only(),
        }
        if self.options.count {
            machine.count();
        }
        if let Some(l) = &self.library {
            machine.share(Arc::clone(l));
        }
        loop {
            let i = self.next.fetch_add(1, Relaxed);
            let Some(part) = self.parts.get(i) else {
                add(&self.executed, &machine.counted());
                self.skipped.fetch_add(machine.skipped(), Relaxed);
                self.gaps.fetch_add(machine.gaps, Relaxed);
                let (all, compared) = watch.stop(machine.compared());
                let mut t = self.times.lock().unwrap_or_else(|e| e.into_inner());
                t.0 += all.saturating_sub(compared);
                t.1 += compared;
                return Ok(());
            };
            let skip = || i > self.first_bad.load(Relaxed);
            if skip() {
                continue;
            }
            let code = self.codes.of(self.trace, part.image)?;
            if let Some(m) = &mut second {
                m.set_code(Arc::clone(&code));
            }
            machine.set_code(code);
            let machines = (&mut machine, second.as_mut());
            let outcome = part::play(machines, self.trace, part, &self.done, &skip);
            if !matches!(outcome, Outcome::Equal { .. }) {
                self.first_bad.fetch_min(i, Relaxed);
            }
            self.codes.done(part.image);
            let seen = (*machine.event_counts(), machine.numbers());
            self.results
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .push((i, outcome, seen));
        }
    }

    /// Has all parts played. Meanwhile calls `progress`, and looks for damaged modules: returns these, and
    /// the time that took.
    fn run(&self, progress: &mut dyn FnMut(u64)) -> Result<(Vec<String>, Duration), Error> {
        let begin = Instant::now();
        let (mut damaged, mut modules) = (Vec::new(), Duration::ZERO);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.workers())
                .map(|_| scope.spawn(|| self.work()))
                .collect();
            if self.is_full() {
                let before = thread_time();
                damaged = damaged_modules(self.trace);
                modules = thread_time().saturating_sub(before);
            }
            while !workers.iter().all(|w| w.is_finished()) {
                progress(self.done.load(Relaxed));
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
            Ok::<(), Error>(())
        })?;
        Ok((damaged, modules))
    }

    /// Adds to `report` what came of the parts, up to the first difference.
    fn report(&self, results: Vec<Played>, report: &mut Report) -> Result<(), Error> {
        let mut before: Option<(StreamId, Numbers)> = None;
        for (i, outcome, (counts, numbers)) in results {
            let stream = self.parts[i].stream;
            let outcome = match (before, numbers) {
                (Some((s, b)), Some(n)) if self.is_full() && s == stream && b.last >= n.first => {
                    Outcome::Failed(Error::Difference(Box::new(Difference {
                        position: n.pos,
                        pc: 0,
                        expected: format!("an order number above {}", b.last),
                        found: n.first.to_string(),
                        unread: false,
                    })))
                }
                _ => outcome,
            };
            before = numbers.map(|n| (stream, n)).or(before);
            report
                .events
                .0
                .iter_mut()
                .zip(counts.0)
                .for_each(|(a, b)| *a += b);
            match outcome {
                Outcome::Equal { last: false, .. } => {}
                Outcome::Equal { end, last: true } => {
                    report.ends.push((stream, end));
                }
                Outcome::Cut(warning) => {
                    report.warnings.push(warning);
                    report.ends.push((stream, None));
                }
                Outcome::Failed(Error::Difference(d)) => {
                    report.difference = Some(self.locate(&self.parts[i], *d)?);
                    break;
                }
                Outcome::Failed(e) => return Err(e),
            }
        }
        report.ends.sort_by_key(|(stream, _)| *stream);
        Ok(())
    }

    /// Where a difference is in the program, and what may have led to it.
    fn locate(&self, part: &StreamPart, d: Difference) -> Result<Located, Error> {
        let location = symbols::location(self.trace, part.image, d.pc);
        let code = Arc::new(Code::from_trace(self.trace, part.image)?);
        Ok(Located {
            stream: part.stream,
            who: part::who(self.trace, part.stream),
            // The difference is reported even if no suspects can be found.
            suspects: match d.unread {
                true => Vec::new(),
                false => suspects::find(self.model(), self.trace, code, part, d.position)
                    .unwrap_or_default(),
            },
            difference: d,
            location,
        })
    }
}

/// The machine that replays the same again. It does not look at order numbers, which are unique only once.
fn second<'a>(model: Model, predictor: Predictor, full: bool) -> Result<Machine<'a>, Error> {
    let choice = Choice::Interpreter;
    let mut machine = Machine::with(Model { choice, ..model }, Arc::default(), predictor)?;
    machine.stop_at_digests();
    match full {
        true => machine.compare_memory(),
        false => machine.digests_only(),
    }
    Ok(machine)
}

/// Replays all threads of `trace`. Now and then calls `progress` with the number of instructions done and the
/// number of all. A difference is part of the report.
///
/// # Errors
/// The trace cannot be replayed.
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
            what: "the size of the shadow memory is invalid",
        });
    }
    trace.check_pace()?;
    let threads = trace.threads();
    let total = threads
        .iter()
        .map(|s| part::length(trace.chunks(*s)))
        .fold(0, u64::saturating_add);
    let job = Job::new(trace, options, &threads);
    let (damaged, modules) = job.run(&mut |done| progress(done, total))?;

    let mut report = Report {
        threads: threads.len(),
        images: trace.images().len(),
        parts: job.parts.len(),
        warnings: damaged,
        ..Report::default()
    };
    report.warnings.extend(left_out(trace));
    let (replaying, compared) = *job.times.lock().unwrap_or_else(|e| e.into_inner());
    (report.replaying, report.verifying) = (replaying, compared + modules);
    report.skipped = job.skipped.load(Relaxed);
    report.instructions = job.done.load(Relaxed).saturating_sub(report.skipped);
    let executed = *job.executed.lock().unwrap_or_else(|e| e.into_inner());
    report.executed = options.count.then_some(executed);
    match trace.completeness() {
        Completeness::Complete => {}
        c => report.warnings.push(format!(
            "the trace is {c}; only the part that is there was verified"
        )),
    }
    let mut results = std::mem::take(&mut *job.results.lock().unwrap_or_else(|e| e.into_inner()));
    results.sort_by_key(|r| r.0);
    job.report(results, &mut report)?;
    report.gaps = job.gaps.load(Relaxed);
    report.elapsed = begin.elapsed();
    progress(job.done.load(Relaxed), total);
    Ok(report)
}

/// The program that an image executes, as its command line names it.
fn program(trace: &Trace, image: u32) -> String {
    let command = trace.command(image);
    command.split(' ').next().unwrap_or_default().to_string()
}

/// The code of program images. Each is held while parts that execute it are to be replayed.
struct Codes(Mutex<BTreeMap<u32, SharedCode>>);

/// The number of parts that still need the code, and the code once it is read.
type SharedCode = (usize, Option<Arc<Code>>);

impl Codes {
    fn new(parts: &[StreamPart]) -> Codes {
        let mut all = BTreeMap::new();
        for p in parts {
            all.entry(p.image).or_insert((0, None)).0 += 1;
        }
        Codes(Mutex::new(all))
    }

    /// The code of `image`. Other workers wait while it is read.
    fn of(&self, trace: &Trace, image: u32) -> Result<Arc<Code>, Error> {
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let (_, code) = all.entry(image).or_default();
        if let Some(code) = code {
            return Ok(Arc::clone(code));
        }
        let new = Arc::new(Code::from_trace(trace, image)?);
        *code = Some(Arc::clone(&new));
        Ok(new)
    }

    /// Says that a part of `image` is done.
    fn done(&self, image: u32) {
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((left, code)) = all.get_mut(&image) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                *code = None;
            }
        }
    }
}

/// What is wrong with the module files of a trace. Replay does not need the files, but a reader of the trace
/// does.
fn damaged_modules(trace: &Trace) -> Vec<String> {
    let mut checked = HashSet::new();
    let mut warnings = Vec::new();
    for m in trace.modules() {
        if checked.insert(m.hash)
            && let Err(e) = trace.check_module(m.hash)
        {
            warnings.push(format!("the copy of {} in the trace: {e}", m.path));
        }
    }
    for (path, why) in trace.modules_from_machine() {
        warnings.push(format!(
            "{why}; the file {path} of this machine has the same content and is used instead"
        ));
    }
    warnings
}

fn add(sum: &Mutex<Executed>, n: &Executed) {
    let mut sum = sum.lock().unwrap_or_else(|e| e.into_inner());
    sum.reads += n.reads;
    sum.writes += n.writes;
    sum.segments += n.segments;
    sum.indirect += n.indirect;
}
