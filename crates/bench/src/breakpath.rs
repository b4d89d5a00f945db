//! Has gdb lead live programs to random steps of their recordings, and compares stops and registers with those of the
//! recording.

use crate::hindsight::Hindsight;
use crate::process::ENVIRONMENT;
use crate::stats::{median, range};
use crate::table::markdown;
use hindsight_lab::live::{Arrived, State, lead};
use hindsight_random::Rng;
use hindsight_timeline::{Options, Position, Timeline};
use serde_json::Value;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// What is led where.
pub struct Plan<'a> {
    pub places: u32,
    pub seed: u64,
    /// Instructions before each place whose data counts.
    pub limit: u64,
    /// Only programs whose names contain this text.
    pub only: &'a str,
}

/// A program: its name, its file, and its arguments. `FILE` stands for a file of text.
type Program = (&'static str, &'static str, &'static [&'static str]);

const PROGRAMS: [Program; 12] = [
    (
        "python",
        "/usr/bin/python3",
        &[
            "-S",
            "-c",
            "d={}\nfor i in range(40000): d[i%977]=d.get(i%977,0)+i*3%7\nprint(len(d))",
        ],
    ),
    (
        "sqlite",
        "/usr/bin/sqlite3",
        &[
            ":memory:",
            "create table t(a,b); with recursive n(i) as (select 1 union all select i+1 from n where i<5000) insert into t select i, i*7%1000 from n; create index x on t(b); select count(*), sum(a) from t where b<500 group by b%7;",
        ],
    ),
    ("gzip", "/usr/bin/gzip", &["-c", "FILE"]),
    (
        "bash",
        "/usr/bin/bash",
        &[
            "-c",
            "s=0; for ((i=0; i<5000; i++)); do s=$((s+i%7)); done; echo $s",
        ],
    ),
    (
        "perl",
        "/usr/bin/perl",
        &[
            "-e",
            "my %h; $h{$_ % 977} += $_ for 1..50000; print scalar(keys %h), \"\\n\"",
        ],
    ),
    (
        "lua",
        "/usr/bin/lua5.4",
        &[
            "-e",
            "local t={} for i=1,100000 do t[i%977]=(t[i%977] or 0)+i end print(#t)",
        ],
    ),
    (
        "gawk",
        "/usr/bin/gawk",
        &[
            "{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) s += n[w]; print s }",
            "FILE",
        ],
    ),
    (
        "sed",
        "/usr/bin/sed",
        &["-n", "s/\\([a-z]*\\) \\([a-z]*\\)/\\2 \\1/p", "FILE"],
    ),
    ("sort", "/usr/bin/sort", &["--parallel=1", "FILE"]),
    ("bc", "/usr/bin/bc", &["-l", "FILE.bc"]),
    (
        "cc1",
        "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
        &["-quiet", "-O2", "-o", "/dev/null", "FILE.c"],
    ),
    ("tar", "/usr/bin/tar", &["-cf", "-", "FILE"]),
];

/// What became of the places of one program.
#[derive(Default)]
struct Done {
    instructions: u64,
    reached: u32,
    /// Why, and where first.
    parted: Vec<String>,
    refused: Vec<String>,
    stops: Vec<f64>,
    settings: Vec<f64>,
    /// For finding the ways, and for going them.
    seconds: Vec<f64>,
    live: Vec<f64>,
    /// Places at which a register held something that differs in each live run.
    varying: u32,
}

/// Prints a table. Returns whether each place that was promised was reached in as many stops, and each program reached one.
///
/// # Errors
/// A program cannot be recorded, or `hindsight` fails.
pub fn run(tool: &Hindsight, dir: &Path, plan: &Plan) -> io::Result<bool> {
    files(dir)?;
    let head = [
        "program",
        "Minstr",
        "reached",
        "refused",
        "parted",
        "stops, median",
        "most",
        "settings, most",
        "varying",
        "search, s",
        "live, s",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    let mut right = true;
    let mut ran = 0;
    for (name, program, args) in PROGRAMS.iter().filter(|p| p.0.contains(plan.only)) {
        if !Path::new(program).is_file() {
            eprintln!("{name}: {program} is not installed");
            continue;
        }
        ran += 1;
        let done = one(tool, dir, (name, program, args), plan)?;
        for why in &done.parted {
            eprintln!("{name}: {why}");
        }
        if let Some(why) = done.refused.first() {
            eprintln!("{name}: {} refused, such as: {why}", done.refused.len());
        }
        right &= done.parted.is_empty() && done.reached > 0;
        rows.push(vec![
            (*name).to_owned(),
            (done.instructions / 1_000_000).to_string(),
            done.reached.to_string(),
            done.refused.len().to_string(),
            done.parted.len().to_string(),
            format!("{:.0}", median(&done.stops)),
            format!("{:.0}", range(&done.stops).1.max(0.0)),
            format!("{:.0}", range(&done.settings).1.max(0.0)),
            done.varying.to_string(),
            format!("{:.1}", median(&done.seconds)),
            format!("{:.1}", median(&done.live)),
        ]);
    }
    if ran == 0 {
        let none = format!(
            "no program that is installed has a name with {:?}",
            plan.only
        );
        return Err(io::Error::other(none));
    }
    println!("{}", markdown(&rows));
    Ok(right)
}

fn one(tool: &Hindsight, dir: &Path, program: Program, plan: &Plan) -> io::Result<Done> {
    let (name, file, args) = program;
    let trace = dir.join(format!("{name}.hst"));
    let mut words = vec![file.into()];
    words.extend(args.iter().map(|a| a.replace("FILE", "text").into()));
    let argv = tool.recorded_words(&words, Some(&trace));
    let mut command = Command::new(&argv[0]);
    let recorded = silent(command.args(&argv[1..]), dir).output()?;
    if !recorded.status.success() {
        return Err(io::Error::other(format!("{name}: {}", said(&recorded))));
    }
    let (thread, to, timeline) = first_thread(&trace).map_err(io::Error::other)?;
    let mut done = Done {
        instructions: to,
        ..Done::default()
    };
    let mut random = Rng(plan.seed);
    let all = words.iter().map(|w| w.to_str().unwrap_or_default());
    let argv: Vec<&str> = all.collect();
    for _ in 0..plan.places {
        let at = timeline.position(thread, 1 + random.below(to.max(2) - 1));
        let at = at.map_err(io::Error::other)?;
        let (trace, limit) = (trace.as_path(), plan.limit);
        let place = Place {
            tool,
            dir,
            trace,
            at,
            limit,
            argv: &argv,
        };
        place.go(&mut done)?;
    }
    Ok(done)
}

fn first_thread(
    trace: &Path,
) -> hindsight_timeline::Result<(hindsight_timeline::ThreadId, u64, Timeline)> {
    let timeline = Timeline::open(trace, Options::default())?;
    let process = timeline.processes()?.into_iter().next();
    let thread = process.and_then(|p| p.threads.first().copied());
    let thread = thread.ok_or(hindsight_timeline::Error::Empty)?;
    let to = timeline.thread(thread)?.to;
    Ok((thread, to, timeline))
}

/// One place of a recording.
struct Place<'a> {
    tool: &'a Hindsight,
    dir: &'a Path,
    trace: &'a Path,
    at: Position,
    limit: u64,
    argv: &'a [&'a str],
}

impl Place<'_> {
    /// Leads the program there.
    fn go(&self, done: &mut Done) -> io::Result<()> {
        let limit = self.limit.to_string();
        let begin = Instant::now();
        let way = self.says("breakpath", &["--gdb", "--limit", &limit])?;
        if !way.status.success() {
            let why = said(&way);
            // Some places are in no file, or in the middle of a string instruction's work.
            if !why.contains("nothing that may be set") {
                return Err(io::Error::other(why));
            }
            done.refused.push(why);
            return Ok(());
        }
        let seconds = begin.elapsed().as_secs_f64();
        let script = String::from_utf8_lossy(&way.stdout).into_owned();
        let (promised, settings) = promised(&script)
            .ok_or_else(|| io::Error::other(format!("no script for {}: {script}", self.at)))?;
        let begin = Instant::now();
        let live = match self.lead(&script, false) {
            Ok(live) => live,
            Err(why) => {
                done.parted.push(format!("{}: {why}", self.at));
                return Ok(());
            }
        };
        let took = begin.elapsed().as_secs_f64();
        if promised != live.stops {
            let why = format!("{}: {} stops, not {promised}", self.at, live.stops);
            done.parted.push(why);
            return Ok(());
        }
        match self.unlike(&script, &live)? {
            Unlike::No => {}
            Unlike::Varies => done.varying += 1,
            Unlike::Yes(why) => {
                done.parted.push(format!("{}: {why}", self.at));
                return Ok(());
            }
        }
        done.reached += 1;
        done.stops.push(live.stops as f64);
        done.settings.push(settings as f64);
        done.seconds.push(seconds);
        done.live.push(took);
        Ok(())
    }

    /// Whether the live program's registers are unlike the recorded ones.
    fn unlike(&self, script: &str, live: &Arrived) -> io::Result<Unlike> {
        let json = |out: Output| serde_json::from_slice::<Value>(&out.stdout);
        let at = json(self.says("at", &["--json"])?)?;
        let maps = json(self.says("maps", &["--json"])?)?;
        let info = json(self.says("info", &["--json"])?)?;
        let pid = info["images"][0]["pid"].as_u64().unwrap_or(0);
        let recorded = State::recorded(&at, &maps, pid)
            .ok_or_else(|| io::Error::other(format!("no registers at {}", self.at)))?;
        let mut unlike = recorded.differences(&live.state);
        // What is made of times or of addresses differs from one live run to the next, too.
        for _ in 0..3 {
            if unlike.is_empty() {
                break;
            }
            let Ok(other) = self.lead(script, true) else {
                break;
            };
            let varies = other.state.differences(&live.state);
            unlike.retain(|(name, _)| varies.iter().all(|v| v.0 != *name));
            if unlike.is_empty() {
                return Ok(Unlike::Varies);
            }
        }
        Ok(match unlike.first() {
            None => Unlike::No,
            Some((name, both)) => Unlike::Yes(format!("{name}: {both}")),
        })
    }

    fn lead(&self, script: &str, random: bool) -> Result<Arrived, String> {
        lead(self.dir, script, self.argv, random, |gdb| {
            match silent(gdb, self.dir).output() {
                Ok(out) => said(&out),
                Err(e) => format!("gdb: {e}"),
            }
        })
    }

    /// What a command says of the place.
    fn says(&self, command: &str, options: &[&str]) -> io::Result<Output> {
        let mut c = Command::new(&self.tool.program);
        c.arg(command).args(options).arg(self.trace);
        if command != "info" {
            c.arg(self.at.to_string());
        }
        silent(&mut c, self.dir).stdout(Stdio::piped()).output()
    }
}

/// The stops that a script promises, and its number of settings.
fn promised(script: &str) -> Option<(u64, usize)> {
    let (_, rest) = script.lines().next()?.split_once(" recording in ")?;
    let (_, way) = script.split_once("WAY = [")?;
    let (way, _) = way.split_once("\n]")?;
    Some((
        rest.split(' ').next()?.parse().ok()?,
        way.lines().count() - 1,
    ))
}

/// What is known of registers that are not the same.
enum Unlike {
    /// All are the same.
    No,
    /// Those that are not differ from one live run to the next.
    Varies,
    Yes(String),
}

/// The same surroundings for the recorded and the live program. The messages of `hindsight` are kept where the program says
/// nothing on its standard error.
fn silent<'a>(command: &'a mut Command, dir: &Path) -> &'a mut Command {
    command
        .env_clear()
        .envs(ENVIRONMENT)
        .env("XDG_CACHE_HOME", dir)
        .env("XDG_DATA_HOME", dir)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).trim().to_owned()
}

/// The files that programs read.
fn files(dir: &Path) -> io::Result<()> {
    let mut random = Rng(7);
    let mut text = io::BufWriter::new(std::fs::File::create(dir.join("text"))?);
    for _ in 0..4_000 {
        for _ in 0..8 {
            let word = random.below(5_000);
            write!(text, "w{}{} ", (b'a' + (word % 26) as u8) as char, word)?;
        }
        writeln!(text)?;
    }
    text.flush()?;
    std::fs::write(dir.join("text.bc"), "scale=150\ns(1)+4*a(1)\n")?;
    let mut c = String::from("int f0(int x) { return x; }\n");
    for i in 1..30 {
        c += &format!(
            "int f{i}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += f{}(i) * {i}; return s; }}\n",
            i - 1
        );
    }
    std::fs::write(dir.join("text.c"), c)
}
