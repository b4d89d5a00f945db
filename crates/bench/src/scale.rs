//! Measures how travel grows with the length of a recording and with the size of the process. It prints one line for each
//! recording.

use crate::hindsight::Hindsight;
use crate::process::{ExitStatus, Run, Spec, argv, run};
use crate::travel::{Question, Times, at_random_places};
use hindsight_timeline::{Options, Timeline};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The program: Python, with this script.
const SCRIPT: &str = include_str!("../workloads/scale.py");
/// Longest time of a command.
const LIMIT: Duration = Duration::from_secs(3600);

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
    println!(
        "| recording | instructions, G | native s | recorded, times | streams, MB | first answer s, CPU s, MiB | index \
         s, CPU s, MiB | index, bit per instruction | seek p95 ms | step back | 64 bytes | last write |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
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
        println!("{}", row(tool, name, &native, &trace, rounds)?);
        for file in [&trace, &trace.with_extension("hsx")] {
            let _ = std::fs::remove_file(file);
        }
    }
    Ok(())
}

/// Measures one program.
fn row(
    tool: &Hindsight,
    name: &str,
    native: &Spec,
    trace: &Path,
    rounds: usize,
) -> io::Result<String> {
    let plain = must(run(native)?, "native")?;
    let recorded = must(run(&tool.recorded(native, trace))?, "recorded")?;
    let facts = tool.facts(trace)?;
    let first = must(run(&tool.at(trace, "77%", LIMIT))?, "at")?;
    let sidecar = trace.with_extension("hsx");
    let _ = std::fs::remove_file(&sidecar);
    let index = must(run(&tool.index(trace, LIMIT))?, "index")?;
    let bits = std::fs::metadata(&sidecar)?.len() as f64 * 8.0 / facts.instructions as f64;
    let q = questions(trace, rounds).map_err(io::Error::other)?;
    let p95 = |t: &Times| format!("{:.1}", t.high());
    let cost = |r: &Run| {
        let mib = r.max_rss_kib as f64 / 1024.0;
        format!("{:.1}, {:.1}, {mib:.0}", r.wall, r.cpu)
    };
    Ok(format!(
        "| {name} | {:.1} | {:.1} | {:.2} | {:.1} | {} | {} | {bits:.4} | {} | {} | {} | {} |",
        facts.instructions as f64 / 1e9,
        plain.cpu,
        recorded.cpu / plain.cpu,
        facts.stream_bytes as f64 / 1e6,
        cost(&first),
        cost(&index),
        p95(&q.seek),
        p95(&q.back),
        p95(&q.memory),
        p95(&q.write),
    ))
}

fn questions(trace: &Path, rounds: usize) -> hindsight_timeline::Result<Question> {
    let t = Timeline::open(trace, Options::default())?;
    at_random_places(&t, &mut t.cursor()?, rounds)
}

fn must(run: Run, what: &str) -> io::Result<Run> {
    match run.end {
        ExitStatus::Exit(0) => Ok(run),
        end => Err(io::Error::other(format!("{what}: {end}"))),
    }
}
