//! Measures how travel grows with the length of a recording and with the size of the process. It prints one line for each
//! recording.

use crate::hindsight::Hindsight;
use crate::process::{ExitStatus, Run, Spec, argv, run};
use crate::travel::{Question, Times, at_random_places, watch_back, written_early};
use hindsight_timeline::{Options, Timeline};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program: Python, with this script.
const SCRIPT: &str = include_str!("../workloads/scale.py");
/// Longest time of a command.
const LIMIT: Duration = Duration::from_secs(3600);

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
         MiB | index s, CPU s, MiB | index, MB, bit per instruction | seek p95 ms | step back | 64 bytes | last write | watch \
         over all, ms |"
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
    let (q, watch) = questions(trace, rounds).map_err(io::Error::other)?;
    let p95 = |t: &Times| format!("{:.1}", t.high());
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
        p95(&q.seek),
        p95(&q.back),
        p95(&q.memory),
        p95(&q.write),
        watch.map_or(String::new(), |w| format!("{w:.0}")),
    ))
}

/// Questions at random places, and the milliseconds that a watchpoint takes which is hit near the beginning.
fn questions(trace: &Path, rounds: usize) -> hindsight_timeline::Result<(Question, Option<f64>)> {
    let t = Timeline::open(trace, Options::default())?;
    let mut c = t.cursor()?;
    let asked = at_random_places(&t, &mut c, rounds)?;
    let threads = t.threads()?;
    let Some(longest) = threads.iter().max_by_key(|h| h.to - h.from) else {
        return Ok((asked, None));
    };
    let (id, from, to) = (longest.id, longest.from, longest.to);
    let watch = match written_early(&mut c, id, (from, to), TRIES)? {
        Some((address, _)) => Some(watch_back(&mut c, id, to, address)?.0.wall),
        None => None,
    };
    Ok((asked, watch))
}

fn must(run: Run, what: &str) -> io::Result<Run> {
    match run.end {
        ExitStatus::Exit(0) => Ok(run),
        end => Err(io::Error::other(format!("{what}: {end}"))),
    }
}
