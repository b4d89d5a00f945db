//! Measures what travel in a recording costs: milliseconds for each question, at random places.

use crate::hindsight::Hindsight;
use crate::process::{ExitStatus, Run, Spec, run as run_program};
use crate::stats::{median, range};
use crate::workload;
use hindsight_isa::regs::RSP;
use hindsight_random::Rng;
use hindsight_timeline::breakpath::{Breakpath, StopCandidate};
use hindsight_timeline::expression::{Binary, Expression, Operand};
use hindsight_timeline::{
    Breakpoint, Cancel, Candidates, Condition, Cursor, Depth, Direction, Options, Reason, Result,
    RouteLimits, Scope, Stops, ThreadId, Timeline, Watch as Access, Watchpoint,
};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The rare watchpoint is for bytes that are written after about this many instructions.
const EARLY: u64 = 1_000_000;
/// Longest time of a program, native or recorded.
const LIMIT: Duration = Duration::from_secs(300);
/// Number of times that a condition is evaluated.
const MILLION: u64 = 1_000_000;

/// Records the programs in `dir` and measures travel in them. Says whether all goals are met.
pub fn programs(tool: &Hindsight, dir: &Path, pairs: u32, rounds: usize) -> io::Result<bool> {
    let mut met = true;
    for w in workload::travelled(dir)? {
        let native = Spec {
            argv: w.argv,
            cwd: dir.into(),
            limit: LIMIT,
            ..Spec::default()
        };
        let trace = dir.join(&w.name).with_extension("hst");
        run_well("recorded", &tool.recorded(&native, &trace))?;
        println!("{}: {}", w.name, w.what);
        let mut table = Table::begin();
        open(&trace, &mut table).map_err(io::Error::other)?;
        index_by_turns(tool, &native, &trace, pairs, &mut table)?;
        questions(&trace, rounds, &mut table).map_err(io::Error::other)?;
        met &= table.met;
        println!();
    }
    Ok(met)
}

/// Measures and prints a table for a trace, one line for each question. Makes the trace's index if it does
/// not exist. Says whether all goals are met.
pub fn one(trace: &Path, rounds: usize) -> Result<bool> {
    let mut table = Table::begin();
    open(trace, &mut table)?;
    index_here(trace, &mut table)?;
    questions(trace, rounds, &mut table)?;
    Ok(table.met)
}

/// Runs a command that must succeed.
fn run_well(what: &str, spec: &Spec) -> io::Result<Run> {
    let run = run_program(spec)?;
    match run.end {
        ExitStatus::Exit(0) => Ok(run),
        end => Err(io::Error::other(format!("{what}: {end}"))),
    }
}

fn open(trace: &Path, table: &mut Table) -> Result<()> {
    let watch = Watch::begin();
    let t = Timeline::open(trace, Options::default())?;
    t.cursor()?.registers()?;
    table.one("open to first registers", watch.end(), Some(1000.0), "");
    Ok(())
}

/// Makes the index in this process.
fn index_here(trace: &Path, table: &mut Table) -> Result<()> {
    // Memory used before does not count.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let t = Timeline::open(trace, Options::default())?;
    let status = t.index_status();
    let watch = Watch::begin();
    let built = t.build_index(Depth::Coarse, &|_, _| {}, &Cancel::new())?;
    let spent = watch.end();
    let bytes = format!("{} bytes for a trace of {}", built.bytes, t.trace().len());
    if status.present == status.parts {
        println!("| index | | | | | | was there: {bytes} |");
        return Ok(());
    }
    table.one("index", spent, None, &bytes);
    if let Some(peak) = peak() {
        table.figure("peak memory, MiB", peak, 2048.0);
    }
    Ok(())
}

/// Runs the program and makes the index, in turn, each in a process of its own. The result is the median of
/// their ratio: a machine with neighbours is not equally fast in each minute.
fn index_by_turns(
    tool: &Hindsight,
    native: &Spec,
    trace: &Path,
    pairs: u32,
    table: &mut Table,
) -> io::Result<()> {
    let sidecar = trace.with_extension("hsx");
    let (mut programs, mut indexes, mut times, mut peak) =
        (Times::default(), Times::default(), Vec::new(), 0);
    for _ in 0..pairs {
        let program = run_well("native", native)?;
        if sidecar.exists() {
            std::fs::remove_file(&sidecar)?;
        }
        let index = run_well("index", &tool.index(trace, LIMIT))?;
        times.push(index.wall / program.wall);
        peak = peak.max(index.max_rss_kib);
        programs.0.push(Spent::of(&program));
        indexes.0.push(Spent::of(&index));
    }
    let bytes = format!(
        "{} bytes for a trace of {}",
        std::fs::metadata(&sidecar)?.len(),
        std::fs::metadata(trace)?.len()
    );
    table.many("the program by itself", programs, None);
    table.many("index", indexes, None);
    let (least, most) = range(&times);
    let figures = [
        format!("{:.2}", median(&times)),
        String::new(),
        format!("{most:.2}"),
        String::new(),
    ];
    let more = format!("{least:.2} to {most:.2}; {bytes}");
    table.row(
        "index, times the program",
        figures,
        median(&times),
        Some(4.0),
        &more,
    );
    table.figure("peak memory, MiB", peak as f64 / 1024.0, 2048.0);
    Ok(())
}

/// Asks questions at random places of a trace that has an index.
fn questions(trace: &Path, rounds: usize, table: &mut Table) -> Result<()> {
    let t = Timeline::open(trace, Options::default())?;
    let mut c = t.cursor()?;
    let threads = t.threads()?;
    let longest = threads.iter().max_by_key(|h| h.to - h.from);
    let Some(thread) = longest else {
        return Ok(());
    };
    let (id, from, to) = (thread.id, thread.from, thread.to);
    let all: u64 = threads.iter().map(|h| h.to - h.from).sum();
    println!(
        "| instructions of {} threads | | | {all} | | | |",
        threads.len()
    );
    let questions = at_random_places(&t, &mut c, rounds)?;
    for (what, times, most) in [
        ("seek", questions.seek, Some(50.0)),
        ("reverse step", questions.back, Some(20.0)),
        ("64 bytes of memory", questions.memory, Some(20.0)),
        ("the same, all writers", questions.named, None),
        ("last write to 8 bytes", questions.write, Some(150.0)),
    ] {
        table.many(what, times, most);
    }
    reverse_continue(&mut c, id, from, to, table)?;
    breakpath(&t, id, from, to, table)
}

/// Asks questions at random instants of any thread.
fn at_random_places(t: &Timeline, c: &mut Cursor, rounds: usize) -> Result<Question> {
    let threads = t.threads()?;
    let all: u64 = threads.iter().map(|h| h.to - h.from).sum();
    let mut random = Rng(1);
    let mut place = || {
        let mut n = random.u64() % all.max(1);
        for h in &threads {
            if n < h.to - h.from {
                return (h.id, h.from + n);
            }
            n -= h.to - h.from;
        }
        (threads[0].id, threads[0].from)
    };

    let mut questions = Question::default();
    for _ in 0..rounds {
        let (thread, count) = place();
        questions.seek.time(|| c.seek_count(thread, count))?;
        questions
            .back
            .time(|| c.step(Direction::Backward, Scope::Thread))?;
        questions
            .back
            .time(|| c.step(Direction::Backward, Scope::Thread))?;
        // Memory that the program is about to use, and a stack slot.
        let address = nearby(c)?;
        let (thread, count) = place();
        c.seek_count(thread, count)?;
        questions
            .memory
            .time(|| c.known_memory(address & !63, 64))?;
        questions.write.time(|| c.last_write(address & !7, 8))?;
    }
    // The same, with all other values that memory may have and their writers. At other places, where
    // nothing is cached.
    for _ in 0..rounds {
        let (thread, count) = place();
        c.seek_count(thread, count)?;
        let address = nearby(c)?;
        let (thread, count) = place();
        c.seek_count(thread, count)?;
        questions.named.time(|| c.memory(address & !63, 64))?;
    }
    Ok(questions)
}

/// An address that an instruction near the cursor accesses.
pub fn nearby(c: &mut Cursor) -> Result<u64> {
    for _ in 0..100 {
        if let Some(a) = c.accesses()?.first() {
            return Ok(a.address);
        }
        c.step(Direction::Forward, Scope::Thread)?;
    }
    Ok(c.registers()?.gpr[RSP])
}

/// Bytes that were written early, and if possible never again: the best of so many. Returns their address, and when they were
/// written last.
pub fn written_early(
    c: &mut Cursor,
    id: ThreadId,
    (from, to): (u64, u64),
    tries: u64,
) -> Result<Option<(u64, u64)>> {
    let mut best: Option<(u64, u64)> = None;
    for step in 0..tries {
        c.seek_count(id, (from + EARLY.min(to - from) + 1000 * step).min(to))?;
        let written = c.accesses()?.into_iter().find(|a| a.write);
        let Some(a) = written else { continue };
        let count = c.count();
        c.seek_count(id, to)?;
        let last = c.last_write(a.address, a.len.min(8))?;
        let at = last.map_or(u64::MAX, |w| w.count);
        if best.is_none_or(|b| at < b.1) {
            best = Some((a.address, at));
        }
        if at <= count {
            break;
        }
    }
    Ok(best)
}

/// Runs back from `to` to the last write of a byte. Says whether there was one.
pub fn watch_back(c: &mut Cursor, id: ThreadId, to: u64, address: u64) -> Result<(Spent, bool)> {
    c.seek_count(id, to)?;
    let mut stops = Stops {
        watchpoints: vec![Watchpoint {
            id: 0,
            address,
            len: 1,
            watch: Access::Write,
            image: None,
        }],
        ..Stops::default()
    };
    let watch = Watch::begin();
    let stop = c.run(Direction::Backward, Scope::Thread, &mut stops)?;
    let hit = matches!(stop.reason, Reason::Watchpoint { .. });
    Ok((watch.end(), hit))
}

fn reverse_continue(
    c: &mut Cursor,
    id: ThreadId,
    from: u64,
    to: u64,
    table: &mut Table,
) -> Result<()> {
    if let Some((address, at)) = written_early(c, id, (from, to), 200)? {
        let (spent, hit) = watch_back(c, id, to, address)?;
        let hit = match hit {
            true => format!("hit at {at}"),
            false => "no hit".into(),
        };
        table.one("reverse-continue, watch", spent, Some(1000.0), &hit);
    }
    // An address that is executed often enough. The condition never holds.
    for part in 1..20 {
        c.seek_count(id, from + (to - from) / 20 * part)?;
        let pc = c.registers()?.rip;
        let evaluated = std::cell::Cell::new(0);
        let mut b = Breakpoint::at(0, pc);
        let seen = &evaluated;
        b.condition = Some(Condition::code(move |v| {
            seen.set(seen.get() + 1);
            // The last one ends the run.
            v.registers().rip == 0 || seen.get() == MILLION
        }));
        let mut stops = Stops {
            breakpoints: vec![b],
            ..Stops::default()
        };
        c.seek_count(id, to)?;
        let watch = Watch::begin();
        c.run(Direction::Backward, Scope::Thread, &mut stops)?;
        let spent = watch.end();
        drop(stops);
        if evaluated.get() >= MILLION / 2 {
            let n = format!("{} evaluations", evaluated.get());
            table.one("reverse-continue, condition in code", spent, None, &n);
            let at = c.count();
            let spent = never(c, id, (at, Direction::Forward), pc)?;
            let n = format!(
                "the same, through {:.1} G instructions",
                (to - at) as f64 / 1e9
            );
            table.one(
                "continue, condition as an expression",
                spent,
                Some(3000.0),
                &n,
            );
            let spent = never(c, id, (to, Direction::Backward), pc)?;
            table.one("reverse-continue through everything", spent, None, "");
            break;
        }
    }
    Ok(())
}

/// Runs from an instant to the end or the beginning, with a breakpoint at `pc` whose condition is an expression that never
/// holds.
pub fn never(
    c: &mut Cursor,
    id: ThreadId,
    (from, way): (u64, Direction),
    pc: u64,
) -> Result<Spent> {
    let mut b = Breakpoint::at(0, pc);
    b.condition = Some(Expression::compare(Operand::Rip, Binary::Equal, 0).into());
    let mut stops = Stops {
        breakpoints: vec![b],
        ..Stops::default()
    };
    c.seek_count(id, from)?;
    let watch = Watch::begin();
    c.run(way, Scope::Thread, &mut stops)?;
    Ok(watch.end())
}

/// Number of steps for which the path with the fewest stops is prepared.
const STEPS: u64 = 10_000_000;
/// Different instructions and words of data that are made up for it.
const INSTRUCTIONS: u64 = 21_000;
const DATA: u64 = 100_000;
/// The same with the replay that finds what would stop at each step.
const REPLAYED: u64 = 2_000_000;

/// Prepares the path to a step. Once for made-up loops of some instructions, half of which access memory, and
/// once for the recording itself.
fn breakpath(t: &Timeline, id: ThreadId, from: u64, to: u64, table: &mut Table) -> Result<()> {
    let mut random = Rng(7);
    let watch = Watch::begin();
    let mut path = Breakpath::new(STEPS, 1);
    // Instructions, then data.
    (0..INSTRUCTIONS + DATA).for_each(|_| {
        path.setting(0);
    });
    let (mut pc, mut begin, mut left) = (0, 0, 0);
    let touch = |setting: u64| StopCandidate {
        setting: setting as u32,
        exact: true,
    };
    for step in (1..=STEPS).rev() {
        if left == 0 {
            (begin, left) = (
                random.u64() % (INSTRUCTIONS - 1000),
                20 + random.u64() % 400,
            );
        }
        left -= 1;
        pc = if step % 23 == 0 { begin } else { pc + 1 };
        let data = INSTRUCTIONS + random.u64() % DATA;
        let touches = [touch(pc), touch(data)];
        path.push(step, &touches[..1 + (step % 2) as usize]);
    }
    let spent = watch.end();
    let stops: u64 = path.way().map_or(0, |w| w.iter().map(|l| l.hits).sum());
    let more = format!("{stops} stops; {STEPS} steps");
    table.one("breakpath, 10 million steps", spent, Some(1000.0), &more);
    // Only if the recording begins at the program's start.
    if from == 0 {
        let at = t.position(id, REPLAYED.min(to))?;
        let watch = Watch::begin();
        if let Ok(route) = t.route(
            at,
            RouteLimits::new(STEPS),
            &Candidates::All,
            &Cancel::new(),
        ) {
            let more = format!("{} stops; {} steps", route.stops, route.steps);
            table.one("breakpath with replay", watch.end(), None, &more);
        }
    }
    Ok(())
}

/// The times of each kind of question.
#[derive(Default)]
pub struct Question {
    pub seek: Times,
    pub back: Times,
    pub memory: Times,
    /// Memory with the writers of all other values.
    pub named: Times,
    pub write: Times,
}

/// Milliseconds of elapsed time and of processor time.
#[derive(Clone, Copy)]
pub struct Spent {
    pub wall: f64,
    pub cpu: f64,
}

impl Spent {
    fn of(run: &Run) -> Spent {
        Spent {
            wall: run.wall * 1e3,
            cpu: run.cpu * 1e3,
        }
    }
}

/// Measures both from an instant on.
struct Watch(Instant, f64);

impl Watch {
    fn begin() -> Watch {
        Watch(Instant::now(), cpu())
    }

    fn end(&self) -> Spent {
        Spent {
            wall: self.0.elapsed().as_secs_f64() * 1e3,
            cpu: cpu() - self.1,
        }
    }
}

/// Processor time of this process, in milliseconds.
fn cpu() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills in the structure. If it does not, the structure stays zero.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

/// What questions of one kind took.
#[derive(Default)]
pub struct Times(Vec<Spent>);

impl Times {
    pub fn time<T>(&mut self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let watch = Watch::begin();
        let done = f()?;
        self.0.push(watch.end());
        Ok(done)
    }

    /// The 95th percentile of elapsed time, in milliseconds.
    pub fn high(&self) -> f64 {
        at(&self.by(|s| s.wall), 0.95)
    }

    /// The values of one of the two, sorted.
    fn by(&self, of: impl Fn(&Spent) -> f64) -> Vec<f64> {
        let mut all: Vec<f64> = self.0.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    }
}

/// The value that this part of all does not exceed. They are sorted.
fn at(all: &[f64], part: f64) -> f64 {
    let i = (all.len().saturating_sub(1) as f64 * part) as usize;
    all.get(i).copied().unwrap_or(0.0)
}

/// Compares measurements with goals, in milliseconds except for memory.
struct Table {
    /// Whether all goals are met.
    met: bool,
}

impl Table {
    fn begin() -> Table {
        println!("| | median | 95th percentile | most | processor time | goal | |");
        println!("|---|---|---|---|---|---|---|");
        Table { met: true }
    }

    fn row(
        &mut self,
        what: &str,
        figures: [String; 4],
        figure: f64,
        most: Option<f64>,
        more: &str,
    ) {
        let [median, high, all, cpu] = figures;
        let (goal, met) = match most {
            Some(m) if figure <= m => (format!("{m:.0}"), "met"),
            Some(m) => {
                self.met = false;
                (format!("{m:.0}"), "NOT MET")
            }
            None => ("".into(), ""),
        };
        let sep = if more.is_empty() || met.is_empty() {
            ""
        } else {
            "; "
        };
        println!("| {what} | {median} | {high} | {all} | {cpu} | {goal} | {met}{sep}{more} |");
    }

    fn figure(&mut self, what: &str, figure: f64, most: f64) {
        let figures = [
            String::new(),
            String::new(),
            format!("{figure:.1}"),
            String::new(),
        ];
        self.row(what, figures, figure, Some(most), "");
    }

    /// A row for something that happened once.
    fn one(&mut self, what: &str, s: Spent, most: Option<f64>, more: &str) {
        let none = String::new;
        let figures = [
            none(),
            none(),
            format!("{:.1}", s.wall),
            format!("{:.1}", s.cpu),
        ];
        self.row(what, figures, s.wall, most, more);
    }

    /// A row for something that happened often. The 95th percentile counts.
    fn many(&mut self, what: &str, times: Times, most: Option<f64>) {
        let (wall, cpu) = (times.by(|s| s.wall), times.by(|s| s.cpu));
        let high = at(&wall, 0.95);
        let figures = [at(&wall, 0.5), high, at(&wall, 1.0), at(&cpu, 0.95)];
        self.row(what, figures.map(|f| format!("{f:.2}")), high, most, "");
    }
}

/// Peak memory of this process, in MiB.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}
