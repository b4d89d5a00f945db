//! Measures how travel grows with the length of a recording and with the size of the process. It prints one line for each
//! recording.

use crate::hindsight::Hindsight;
use crate::process::{ExitStatus, Run, Spec, argv, run};
use crate::travel::{Question, Times, nearby, watch_back, written_early};
use hindsight_random::Rng;
use hindsight_timeline::{Cursor, Direction, Options, Scope, Stop, Timeline};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program: Python, with this script.
const SCRIPT: &str = include_str!("../workloads/scale.py");
/// Longest time of a command.
const LIMIT: Duration = Duration::from_secs(3600);

/// A place is warm when so many questions of each kind were asked around it. So many more of them are measured, each at most `NEAR`
/// instructions before it.
const BEFORE: usize = 4;
const AGAIN: usize = 3;
const NEAR: u64 = 100_000_000;

/// Bytes to watch are chosen from this many.
const TRIES: u64 = 20;

/// What is recorded: a name, and the script's arguments.
type Case = (&'static str, &'static [&'static str]);

/// What is measured without `--long`.
const SHORT: &[Case] = &[
    ("7 G, 50 MiB", &["work", "6"]),
    ("28 G, 50 MiB", &["work", "23"]),
    ("58 G, 50 MiB", &["work", "46"]),
    ("100 MiB", &["memory", "100", "8000000"]),
    ("1 GiB", &["memory", "1000", "8000000"]),
];

/// What `--long` adds. It takes hours.
const LONG: &[Case] = &[
    ("240 G, 50 MiB", &["work", "192"]),
    ("1000 G, 50 MiB", &["work", "800"]),
    ("4 GiB", &["memory", "4000", "8000000"]),
];

/// Records the programs in `dir`, and measures. `only`: the names of cases that contain this text.
pub fn programs(
    tool: &Hindsight,
    dir: &Path,
    long: bool,
    only: &str,
    rounds: usize,
) -> io::Result<()> {
    let script = dir.join("scale.py");
    std::fs::write(&script, SCRIPT)?;
    head();
    let longer = if long { LONG } else { &[] };
    for (name, arguments) in SHORT.iter().chain(longer).filter(|c| c.0.contains(only)) {
        let mut words = argv(&["/usr/bin/python3"]);
        words.push(script.clone().into());
        words.extend(arguments.iter().map(OsString::from));
        let native = Spec {
            argv: words,
            cwd: dir.into(),
            limit: LIMIT,
            ..Spec::default()
        };
        let trace = dir.join("scale.hst");
        let plain = must(run(&native)?, "native")?;
        let recorded = must(run(&tool.recorded(&native, &trace))?, "recorded")?;
        println!(
            "{}",
            row(tool, name, Some([plain.cpu, recorded.cpu]), &trace, rounds)?
        );
        remove(&trace)?;
    }
    Ok(())
}

/// Measures recordings. Their indexes are made in `dir`: those beside them stay as they are.
pub fn recordings(
    tool: &Hindsight,
    dir: &Path,
    traces: &[PathBuf],
    rounds: usize,
) -> io::Result<()> {
    head();
    for from in traces {
        let trace = dir.join("scale.hst");
        std::fs::copy(from, &trace)?;
        let name = from.file_stem().unwrap_or_default().to_string_lossy();
        println!("{}", row(tool, &name, None, &trace, rounds)?);
        remove(&trace)?;
    }
    Ok(())
}

fn remove(trace: &Path) -> io::Result<()> {
    std::fs::remove_file(trace)?;
    std::fs::remove_file(trace.with_extension("hsx"))
}

fn head() {
    println!(
        "| recording | instructions, G | program, MiB | native s | recorded, times | streams, MB | `at 50%` without an index s, \
         MiB | index s, CPU s, MiB | index, MB, bit per instruction | seek p95 ms, cold, warm | step back | 64 bytes | last \
         write | watch over all ms, cold, warm |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
}

/// Measures one recording. `spent`: the processor time of the program, native and recorded.
fn row(
    tool: &Hindsight,
    name: &str,
    spent: Option<[f64; 2]>,
    trace: &Path,
    rounds: usize,
) -> io::Result<String> {
    let facts = tool.facts(trace)?;
    let first = must(run(&tool.at(trace, "50%", LIMIT))?, "at")?;
    let sidecar = trace.with_extension("hsx");
    let _ = std::fs::remove_file(&sidecar);
    let index = must(run(&tool.index(trace, LIMIT))?, "index")?;
    let bytes = std::fs::metadata(&sidecar)?.len() as f64;
    let bits = bytes * 8.0 / facts.instructions as f64;
    let asked = questions(trace, rounds).map_err(io::Error::other)?;
    let both = |of: fn(&Question) -> &Times| {
        let [cold, warm] = [&asked.cold, &asked.warm].map(|q| of(q).high());
        format!("{cold:.0}, {warm:.1}")
    };
    let mib = |kib: u64| kib / 1024;
    let [native, times] = match spent {
        Some([plain, recorded]) => [format!("{plain:.1}"), format!("{:.2}", recorded / plain)],
        None => ["", ""].map(String::from),
    };
    Ok(format!(
        "| {name} | {:.1} | {} | {native} | {times} | {:.1} | {:.1}, {} | {:.1}, {:.1}, {} | {:.0}, {bits:.4} | {} | {} | {} | \
         {} | {} |",
        facts.instructions as f64 / 1e9,
        mib(facts.peak_rss_kib),
        facts.stream_bytes as f64 / 1e6,
        first.wall,
        mib(first.max_rss_kib),
        index.wall,
        index.cpu,
        mib(index.max_rss_kib),
        bytes / 1e6,
        both(|q| &q.seek),
        both(|q| &q.back),
        both(|q| &q.memory),
        both(|q| &q.write),
        (asked.watch).map_or(String::new(), |[cold, warm]| format!(
            "{cold:.0}, {warm:.0}"
        )),
    ))
}

/// What questions took.
#[derive(Default)]
struct Asked {
    /// The first question of a session, at a place whose part of the fine level is not there.
    cold: Question,
    /// Questions around places where the session has asked before.
    warm: Question,
    /// Milliseconds that a watchpoint takes which is hit near the beginning: the first time, and again.
    watch: Option<[f64; 2]>,
}

/// Questions at random places of the longest thread. There is no fine level yet, and none is saved.
fn questions(trace: &Path, rounds: usize) -> hindsight_timeline::Result<Asked> {
    let open = || {
        let options = Options {
            unsaved: true,
            ..Options::default()
        };
        let t = Timeline::open(trace, options)?;
        t.threads()?;
        Ok::<_, hindsight_timeline::Error>((t.cursor()?, t))
    };
    let mut asked = Asked::default();
    let (mut c, t) = open()?;
    let threads = t.threads()?;
    let Some(longest) = threads.iter().max_by_key(|h| h.to - h.from) else {
        return Ok(asked);
    };
    let (id, from, to) = (longest.id, longest.from, longest.to);
    if let Some((address, _)) = written_early(&mut c, id, (from, to), TRIES)? {
        let (mut c, _t) = open()?;
        let [cold, warm] = [(); 2].map(|()| watch_back(&mut c, id, to, address));
        asked.watch = Some([cold?.0.wall, warm?.0.wall]);
    }
    let mut random = Rng(1);
    for _ in 0..rounds {
        let [there, here] = [(); 2].map(|()| from + random.u64() % (to - from).max(1));
        let (mut c, _t) = open()?;
        asked.cold.seek.time(|| c.seek_count(id, there))?;
        asked.cold.back.time(|| step_back(&mut c))?;
        // Memory that the program is about to use, seen from elsewhere.
        let address = nearby(&mut c)?;
        for which in [Which::Memory, Which::Write] {
            let (mut c, _t) = open()?;
            c.seek_count(id, here)?;
            ask(&mut c, which, address, &mut asked.cold)?;
        }
        let (mut c, _t) = open()?;
        for n in 0..BEFORE + AGAIN {
            let mut none = Question::default();
            let to = if n < BEFORE {
                &mut none
            } else {
                &mut asked.warm
            };
            // Each at a place of its own near `here`.
            let near = here.saturating_sub(random.u64() % NEAR).max(from);
            to.seek.time(|| c.seek_count(id, near))?;
            to.back.time(|| step_back(&mut c))?;
            ask(&mut c, Which::Memory, address, to)?;
            ask(&mut c, Which::Write, address, to)?;
        }
    }
    Ok(asked)
}

fn step_back(c: &mut Cursor) -> hindsight_timeline::Result<Stop> {
    c.step(Direction::Backward, Scope::Thread)
}

#[derive(Clone, Copy)]
enum Which {
    Memory,
    Write,
}

fn ask(
    c: &mut Cursor,
    which: Which,
    address: u64,
    to: &mut Question,
) -> hindsight_timeline::Result<()> {
    match which {
        Which::Memory => drop(to.memory.time(|| c.known_memory(address & !63, 64))?),
        Which::Write => {
            to.write.time(|| c.last_write(address & !7, 8))?;
        }
    }
    Ok(())
}

fn must(run: Run, what: &str) -> io::Result<Run> {
    match run.end {
        ExitStatus::Exit(0) => Ok(run),
        end => Err(io::Error::other(format!("{what}: {end}"))),
    }
}
