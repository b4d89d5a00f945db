//! Measures what recording and replaying cost, and compares recorded programs with native ones.

mod bench;
mod breakpath;
mod commands;
mod fidelity;
mod fixes;
mod folder;
mod hindsight;
mod instructions;
mod machine;
mod process;
mod rerun;
mod scale;
mod servers;
mod soak;
mod states;
mod stats;
mod table;
mod tasks;
mod travel;
mod workload;

use clap::{Args, Parser, Subcommand};
use hindsight::Hindsight;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workload::Aim;

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure CPU, time, memory and trace size of the workloads: native, recorded and replayed.
    Bench(Bench),
    /// Compare ordinary commands, native and recorded: output, status and files. Verify the recordings.
    Fidelity(Fidelity),
    /// Record programs with planted bugs, and run them again with right and wrong fixes. The verdicts must be right.
    Fixes(Fixes),
    /// Run recorded programs again. Each must agree with its recording to the end.
    Rerun(Rerun),
    /// Measure questions about a recording: seeks, steps back, memory, last writes, searches.
    Travel(Travel),
    /// Ask random questions about recordings. Compare the answers with a plain replay that logs everything.
    Questions(Questions),
    /// Have gdb lead live programs to random steps of their recordings, in as many stops as were promised.
    Breakpath(Breakpath),
    /// Measure what state points cost: for how long the program stands, and how much less it does.
    States(States),
    /// Decode all code of the programs and libraries in folders. Say which instructions neither translator nor interpreter
    /// knows, and why. The status is 1 if there is one without a reason.
    Instructions(Instructions),
    /// Run a mixed load for a long time. The memory of recorder and collector must stay flat, and everything
    /// must verify.
    Soak(Soak),
}

#[derive(Args)]
struct Common {
    /// The hindsight program to use [default: beside this one].
    #[arg(long, env = "HINDSIGHT")]
    hindsight: Option<PathBuf>,
    /// Option for `hindsight record`, for example --option=--predictor=cache:64k. Repeatable.
    #[arg(long = "option", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Print results as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Bench {
    #[command(flatten)]
    common: Common,
    /// Rounds per workload.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Only these workloads and servers, by name, separated by commas. `startup` is the start-up measurement.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// JSON file with workloads to use instead of the built-in ones.
    #[arg(long, env = "HINDSIGHT_BENCH_WORKLOADS")]
    workloads: Option<PathBuf>,
    /// Also write the report to this file.
    #[arg(long)]
    write: Option<PathBuf>,
}

#[derive(Args)]
struct Fidelity {
    #[command(flatten)]
    common: Common,
    /// About this many commands, from all parts of the list, instead of all.
    #[arg(long)]
    sample: Option<usize>,
    /// Only commands that contain this text.
    #[arg(long, default_value = "")]
    only: String,
    /// File of commands to use instead of the built-in list.
    #[arg(long)]
    cases: Option<PathBuf>,
    /// Words that run what verifies the recordings, such as `hindsight --processor interpreter`, or
    /// `qemu-aarch64 FILE` with a build for that machine. Default: what records.
    #[arg(long)]
    player: Option<String>,
    /// Show only failures.
    #[arg(long)]
    misses: bool,
}

#[derive(Args)]
struct Fixes {
    /// The hindsight program to use [default: beside this one].
    #[arg(long, env = "HINDSIGHT")]
    hindsight: Option<PathBuf>,
    /// Only programs whose file or bug contains this text.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Args)]
struct Rerun {
    #[command(flatten)]
    common: Common,
    /// How often each is recorded and run again.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only so many programs, from the beginning of the list, where those are that take little time.
    #[arg(long)]
    first: Option<usize>,
    /// Only programs whose lines contain this text.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Args)]
struct Travel {
    /// Trace files to use instead of recordings of sqlite and of pigz with eight threads. Their indexes are made
    /// beside them if they do not exist.
    traces: Vec<PathBuf>,
    /// The hindsight program to use [default: beside this one].
    #[arg(long, env = "HINDSIGHT")]
    hindsight: Option<PathBuf>,
    /// How often the program runs and its index is made, in turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Measure how travel grows with the length of a recording and the size of the process, one line for each recording. The
    /// goals are not compared. Indexes beside trace files stay as they are.
    #[arg(long)]
    scale: bool,
    /// With --scale: also recordings that take hours.
    #[arg(long, requires = "scale", conflicts_with = "traces")]
    long: bool,
    /// With --scale: only recordings whose names contain this text.
    #[arg(
        long,
        requires = "scale",
        conflicts_with = "traces",
        default_value = ""
    )]
    only: String,
    /// Number of random places.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Args)]
struct Questions {
    /// Trace files. Their indexes are made again.
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// Seed of the questions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds for each trace, of some fifteen questions each.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Seconds for the questions about each trace.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Leave out recordings with more instructions than this: each instruction is kept in memory.
    #[arg(long, default_value_t = 20_000_000)]
    most: u64,
}

#[derive(Args)]
struct Breakpath {
    /// The hindsight program to use [default: beside this one].
    #[arg(long, env = "HINDSIGHT")]
    hindsight: Option<PathBuf>,
    /// Random steps of each program.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    places: u32,
    /// Seed of the steps.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instructions before each step whose data counts.
    #[arg(long, default_value_t = 100_000)]
    limit: u64,
    /// Only programs whose names contain this text.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Args)]
struct States {
    /// The hindsight program to use [default: beside this one].
    #[arg(long, env = "HINDSIGHT")]
    hindsight: Option<PathBuf>,
    /// How many times each is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Args)]
struct Instructions {
    /// Folders, which are looked through with all folders below.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// Only one file in so many.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
}

#[derive(Args)]
struct Soak {
    /// The hindsight program to use [default: beside this one].
    #[arg(long, env = "HINDSIGHT")]
    hindsight: Option<PathBuf>,
    /// Option for `hindsight record`. Repeatable.
    #[arg(long = "option", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Duration in seconds.
    #[arg(default_value_t = 3600, value_parser = clap::value_parser!(u64).range(10..))]
    seconds: u64,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Bench(o) => bench(&o),
        Task::Fidelity(o) => fidelity(&o),
        Task::Fixes(o) => prove(&o),
        Task::Rerun(o) => rerun_all(&o),
        Task::Questions(o) => ask(&o),
        Task::Soak(o) => soak(&o),
        Task::Instructions(o) => instructions::run(&o.folders, o.every as usize),
        Task::Breakpath(o) => lead(&o),
        Task::Travel(o) => travel(&o),
        Task::States(o) => state_points(&o),
    };
    done.unwrap_or_else(|e| {
        eprintln!("hindsight-bench: {e}");
        ExitCode::from(2)
    })
}

fn travel(o: &Travel) -> io::Result<ExitCode> {
    let rounds = o.rounds as usize;
    let mut met = true;
    if o.traces.is_empty() || o.scale {
        let tool = Hindsight::find(o.hindsight.clone(), Vec::new())?;
        let scratch = tempfile::Builder::new()
            .prefix("hindsight-travel-")
            .tempdir()?;
        match (o.scale, o.traces.is_empty()) {
            (true, true) => scale::programs(&tool, scratch.path(), o.long, &o.only, rounds)?,
            (true, false) => scale::recordings(&tool, scratch.path(), &o.traces, rounds)?,
            _ => met = travel::programs(&tool, scratch.path(), o.pairs, rounds)?,
        }
    } else {
        for trace in &o.traces {
            met &= travel::one(trace, rounds).map_err(io::Error::other)?;
        }
    }
    Ok(match met {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn ask(o: &Questions) -> io::Result<ExitCode> {
    let plan = hindsight_oracle::questions::Plan {
        seed: o.seed,
        rounds: o.rounds,
        limit: std::time::Duration::from_secs(o.seconds),
        most: o.most,
    };
    let mut right = true;
    for trace in &o.traces {
        let done = hindsight_oracle::questions::run(trace, &plan);
        right &=
            done.map_err(|e| io::Error::other(format!("{}: {e}", trace.display())))? != Some(false);
    }
    Ok(match right {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn lead(o: &Breakpath) -> io::Result<ExitCode> {
    let tool = Hindsight::find(o.hindsight.clone(), Vec::new())?;
    let scratch = tempfile::Builder::new()
        .prefix("hindsight-breakpath-")
        .tempdir()?;
    let plan = breakpath::Plan {
        places: o.places,
        seed: o.seed,
        limit: o.limit,
        only: &o.only,
    };
    Ok(match breakpath::run(&tool, scratch.path(), &plan)? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn state_points(o: &States) -> io::Result<ExitCode> {
    let tool = Hindsight::find(o.hindsight.clone(), Vec::new())?;
    Ok(match states::run(&tool, o.rounds)? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn soak(o: &Soak) -> io::Result<ExitCode> {
    let tool = Hindsight::find(o.hindsight.clone(), o.options.clone())?;
    let scratch = tempfile::Builder::new()
        .prefix("hindsight-soak-")
        .tempdir()?;
    soak::run_for(&tool, scratch.path(), o.seconds)
}

fn bench(o: &Bench) -> io::Result<ExitCode> {
    let tool = Hindsight::find(o.common.hindsight.clone(), o.common.options.clone())?;
    let scratch = tempfile::Builder::new()
        .prefix("hindsight-bench-")
        .tempdir()?;
    let dir = scratch.path();
    servers::open_to_all(dir)?;
    let (workloads, mut names) = match &o.workloads {
        Some(file) => {
            let list = workload::from_file(file, dir)?;
            let names = list.iter().map(|w| w.name.clone()).collect();
            (list, names)
        }
        None => workload::built_in(dir, &o.only)?,
    };
    if o.workloads.is_none() {
        names.extend(servers::NAMES.map(String::from));
    }
    names.push("startup".into());
    workload::all_known(&o.only, &names)?;
    let chosen = |name: &str| o.only.is_empty() || o.only.iter().any(|n| n == name);
    let mut measured = Vec::new();
    let mut failed = 0;
    for w in workloads.iter().filter(|w| chosen(&w.name)) {
        eprintln!("{}: {}", w.name, w.what);
        // Programs that only have to run take long.
        let pairs = match w.aim {
            Aim::Runs => o.pairs.min(2),
            _ => o.pairs,
        };
        match bench::measure(&tool, w, dir, pairs) {
            Ok(m) => {
                eprintln!(
                    "  recorded {:.2}x, replayed {:.2}x",
                    m.record_ratio(),
                    m.replay_ratio()
                );
                if let Some(miss) = &m.miss {
                    failed += 1;
                    eprintln!("  FAILED: {miss}");
                }
                measured.push(m);
            }
            Err(e) => {
                failed += 1;
                eprintln!("  FAILED: {e}");
            }
        }
    }
    let mut served = Vec::new();
    let wanted = |n: &&str| chosen(n) && o.workloads.is_none();
    for name in servers::NAMES.into_iter().filter(wanted) {
        let made = servers::make(name, dir, 1);
        let done = match &made {
            Ok(server) => {
                eprintln!("{name}: {}", server.what);
                servers::measure(&tool, server, dir, o.pairs.min(2))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                eprintln!("{name}: skipped: {e}");
                continue;
            }
            Err(e) => Err(io::Error::other(e.to_string())),
        };
        match done {
            Ok(s) => {
                eprintln!("  {:.0}% of the native throughput", s.share() * 100.0);
                served.push(s);
            }
            Err(e) => {
                failed += 1;
                eprintln!("  FAILED: {e}");
            }
        }
    }
    let startup = if chosen("startup") {
        Some(bench::startup(&tool, dir, 20)?)
    } else {
        None
    };
    let machine = machine::describe();
    let version = tool.version()?;
    let mut report = table::report(
        &machine,
        &version,
        &o.common.options,
        &measured,
        &served,
        startup.as_ref(),
    );
    if failed > 0 {
        report.push_str(&format!("\n{failed} workloads FAILED.\n"));
    }
    if o.common.json {
        let all = serde_json::json!({ "machine": machine, "version": version, "options": o.common.options,
            "workloads": measured, "servers": served, "startup": startup, "failed": failed });
        println!("{all:#}");
    } else {
        print!("{report}");
    }
    if let Some(file) = &o.write {
        write_report(file, &report)?;
    }
    Ok(if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Puts the report between the markers in `file`, or makes the file.
fn write_report(file: &Path, report: &str) -> io::Result<()> {
    const BEGIN: &str = "<!-- begin: written by scripts/bench --write -->\n";
    const END: &str = "<!-- end -->\n";
    let old =
        std::fs::read_to_string(file).unwrap_or_else(|_| format!("# Benchmarks\n\n{BEGIN}{END}"));
    let bounds = old.find(BEGIN).zip(old.find(END)).filter(|(b, e)| b < e);
    let (begin, end) =
        bounds.ok_or_else(|| io::Error::other(format!("{} has no markers", file.display())))?;
    let (head, tail) = (&old[..begin + BEGIN.len()], &old[end..]);
    std::fs::write(file, format!("{head}\n{report}\n{tail}"))
}

fn fidelity(o: &Fidelity) -> io::Result<ExitCode> {
    let mut tool = Hindsight::find(o.common.hindsight.clone(), o.common.options.clone())?;
    if let Some(player) = &o.player {
        let words = shlex::split(player).filter(|w| !w.is_empty());
        let words = words.ok_or_else(|| io::Error::other("--player: expected a command"))?;
        tool.player = words.into_iter().map(Into::into).collect();
    }
    let text = match &o.cases {
        Some(file) => std::fs::read_to_string(file)?,
        None => include_str!("../fidelity/cases.txt").to_owned(),
    };
    let mut cases = commands::containing(commands::parse(&text)?, &o.only)?;
    if let Some(n) = o.sample {
        cases = commands::sample(cases, n);
    }
    let scratch = tempfile::Builder::new()
        .prefix("hindsight-fidelity-")
        .tempdir()?;
    let ground = commands::Ground::prepare(scratch.path(), &["fidelity"])?;
    let mut outcomes = Vec::new();
    for case in &cases {
        let outcome = fidelity::check(&ground, &tool, case);
        if let Some(miss) = &outcome.miss {
            eprintln!("MISS {}: {miss}", case.line);
        }
        outcomes.push(outcome);
    }
    let misses = outcomes.iter().filter(|o| o.miss.is_some()).count();
    if o.common.json {
        println!(
            "{:#}",
            serde_json::json!({ "commands": outcomes, "misses": misses })
        );
    } else {
        print!("{}", fidelity::table(&outcomes, o.misses));
        println!(
            "\n{} of {} commands the same and verified",
            outcomes.len() - misses,
            outcomes.len()
        );
    }
    Ok(if misses > 0 || outcomes.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn prove(o: &Fixes) -> io::Result<ExitCode> {
    let tool = Hindsight::find(o.hindsight.clone(), Vec::new())?;
    Ok(match fixes::run(&tool, &o.only)? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn rerun_all(o: &Rerun) -> io::Result<ExitCode> {
    let tool = Hindsight::find(o.common.hindsight.clone(), o.common.options.clone())?;
    let cases = commands::parse(include_str!("../rerun/cases.txt"))?;
    let mut cases = commands::containing(cases, &o.only)?;
    cases.truncate(o.first.unwrap_or(usize::MAX));
    let scratch = tempfile::Builder::new()
        .prefix("hindsight-rerun-")
        .tempdir()?;
    servers::open_to_all(scratch.path())?;
    let ground = commands::Ground::prepare(scratch.path(), &["fidelity", "rerun"])?;
    let mut outcomes = Vec::new();
    for case in &cases {
        let outcome = rerun::check(&ground, &tool, case, o.rounds);
        let (skipped, miss) = (&outcome.skipped, &outcome.miss);
        match (skipped, miss) {
            (Some(why), _) => eprintln!("SKIPPED {}: {why}", case.line),
            (_, Some(miss)) => eprintln!("MISS {}: {miss}", case.line),
            _ => {}
        }
        outcomes.push(outcome);
    }
    let (summary, enough) = rerun::summary(&outcomes);
    match o.common.json {
        true => println!("{:#}", serde_json::json!({ "programs": outcomes })),
        false => println!("{}\n{summary}", rerun::table(&outcomes)),
    }
    Ok(match enough {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
