//! Runs a mixed load for a long time. The memory of recorder and collector must not grow, and everything that
//! is recorded must verify.
//!
//! Two recordings run all the time, one into a file and one with `--ring`. Their program has threads and
//! processes that come and go. Beside them, short programs are recorded and verified one by one.

use crate::hindsight::Hindsight;
use crate::process::{ENVIRONMENT, ExitStatus, Spec, run};
use crate::stats::slope;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The share of the time for warming up: caches, arenas of threads, a ring that fills.
const WARM: f64 = 0.25;

/// Growth after warming up that may be chance, in MiB. Losing a hundred bytes for each thread makes this much
/// in two minutes.
const CHANCE: f64 = 4.0;

/// Time between samples.
const EVERY: Duration = Duration::from_millis(250);

/// Longest time that a step may take beyond its own time.
const LIMIT: Duration = Duration::from_secs(1800);

/// The program that is recorded all the time. Each second it makes hundreds of threads and processes, by fork
/// and by execve. They read what cannot be predicted. The program's own memory is flat.
const LONG: &str = r#"
import hashlib, os, subprocess, sys, threading, time
def visit():
    block = os.urandom(4096)
    for _ in range(20): block = hashlib.sha256(block).digest() * 64
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    group = [threading.Thread(target=visit) for _ in range(8)]
    for t in group: t.start()
    for t in group: t.join()
    subprocess.run(["ls", "-l", "/etc"], stdout=subprocess.DEVNULL, check=True)
    if os.fork() == 0: os._exit(0)
    os.wait()
    time.sleep(0.02)
"#;

/// The programs that are recorded and verified beside it, in turn. Lines for a shell.
const SHORT: [&str; 6] = [
    "seq 1 20000 | sort -r | tr 0-9 a-j | gzip -c | cksum",
    "printf 'int f(int n) { return n * n; }\n' > f.c; printf 'all: f.o g.o\ng.c: f.c\n\tcp f.c g.c\n' > Makefile; \
     rm -f f.o g.o g.c; make -s -j2",
    "head -c 3000000 /dev/urandom | pigz -p3 | pigz -dc | wc -c",
    "sqlite3 :memory: 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000) \
     select count(*), max(hex(i)) from n;'",
    "python3 -c 'import re, json; print(len(json.dumps([re.sub(\"a\", \"b\", \"banana\" * i) for i in range(300)])))'",
    "find /usr/share/doc -name 'c*' | head -500 | xargs -n 50 -P 3 ls -ld | wc -l",
];

/// One of the long recordings.
struct Long {
    name: &'static str,
    child: Child,
    trace: PathBuf,
    /// Seconds since the beginning, and private memory in MiB: the collector's and the program's.
    samples: Vec<(f64, [f64; 2])>,
}

impl Long {
    fn start(
        tool: &Hindsight,
        name: &'static str,
        options: &[&str],
        dir: &Path,
        seconds: u64,
    ) -> io::Result<Long> {
        let trace = dir.join(name).with_extension("hst");
        let mut tool = tool.clone();
        tool.record_options
            .extend(options.iter().map(|o| o.to_string()));
        let seconds = seconds.to_string();
        let argv = ["python3", "-c", LONG, &seconds].map(OsString::from);
        let argv = tool.recorded_words(&argv, Some(&trace));
        let child = Command::new(&argv[0])
            .args(&argv[1..])
            .env_clear()
            .envs(ENVIRONMENT)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(trace.with_extension("messages"))?)
            .spawn()?;
        Ok(Long {
            name,
            child,
            trace,
            samples: Vec::new(),
        })
    }

    /// Takes a sample of the memory. Says whether the recording still runs.
    fn sample(&mut self, began: Instant) -> io::Result<bool> {
        if self.child.try_wait()?.is_some() {
            return Ok(false);
        }
        let front = self.child.id();
        let children = format!("/proc/{front}/task/{front}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let name = |pid: &str| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim().to_owned()
        };
        let mut all = children.split_whitespace();
        let collector = all.clone().find(|pid| name(pid) == "collector");
        let program = all.find(|pid| !["collector", "witness"].contains(&name(pid).as_str()));
        if let (Some(c), Some(p)) = (collector.and_then(own_memory), program.and_then(own_memory)) {
            self.samples.push((began.elapsed().as_secs_f64(), [c, p]));
        }
        Ok(true)
    }

    /// Prints the result and verifies the trace. Says whether all is well.
    fn judge(mut self, tool: &Hindsight) -> io::Result<bool> {
        let status = self.child.wait()?;
        let messages = crate::hindsight::tail(&self.trace.with_extension("messages"));
        if !status.success() {
            println!("{}: {status}: {messages}", self.name);
            return Ok(false);
        }
        let mut well = true;
        for (i, who) in ["collector", "program"].into_iter().enumerate() {
            let of: Vec<(f64, f64)> = self.samples.iter().map(|(t, m)| (*t, m[i])).collect();
            let growth = growth(&of);
            let (low, high) = crate::stats::range(&of.iter().map(|s| s.1).collect::<Vec<_>>());
            let flat = growth.is_some_and(|g| g <= CHANCE);
            println!(
                "{:5} {who:9} {low:6.1} to {high:6.1} MiB in {} samples, {:+.2} MiB since warm: {}",
                self.name,
                of.len(),
                growth.unwrap_or(f64::NAN),
                if flat { "flat" } else { "IT GROWS" },
            );
            well &= flat;
        }
        let facts = tool.facts(&self.trace)?;
        let checked = tool.verify(&self.trace, 2, LIMIT)?;
        println!(
            "{:5} {} instructions, trace of {:.1} MiB, verified in {:.1} s",
            self.name,
            facts.instructions,
            facts.trace_bytes as f64 / (1 << 20) as f64,
            checked.wall
        );
        Ok(well)
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        // This kills the recording if something else failed. One that has ended was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Private memory of a process, in MiB.
fn own_memory(pid: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024.0)
}

/// How much memory grew after warming up, by a line through all samples. `None`: there are too few samples.
fn growth(samples: &[(f64, f64)]) -> Option<f64> {
    let end = samples.last()?.0;
    let warm: Vec<(f64, f64)> = samples
        .iter()
        .copied()
        .filter(|(t, _)| *t >= end * WARM)
        .collect();
    (warm.len() >= 20).then(|| slope(&warm) * (end - warm[0].0))
}

/// Records and verifies short programs until `over` is set. Returns their number.
fn short_ones(tool: &Hindsight, dir: &Path, over: &AtomicBool) -> io::Result<u64> {
    let trace = dir.join("short.hst");
    let mut n = 0;
    for line in SHORT.iter().cycle() {
        if over.load(Relaxed) {
            return Ok(n);
        }
        let native = Spec {
            argv: ["sh", "-c", line].map(OsString::from).to_vec(),
            cwd: dir.into(),
            stderr: Some(dir.join("short.messages")),
            limit: LIMIT,
            ..Spec::default()
        };
        let done = run(&tool.recorded(&native, &trace))?;
        if done.end != ExitStatus::Exit(0) {
            let messages = crate::hindsight::tail(&dir.join("short.messages"));
            return Err(io::Error::other(format!(
                "{line}: {}: {messages}",
                done.end
            )));
        }
        tool.verify(&trace, 1, LIMIT)
            .map_err(|e| io::Error::other(format!("{line}: {e}")))?;
        n += 1;
    }
    Ok(n)
}

/// Runs the load for `seconds`. Fails if memory grows or a recording does not verify.
pub fn run_for(tool: &Hindsight, dir: &Path, seconds: u64) -> io::Result<ExitCode> {
    let began = Instant::now();
    let mut all = [
        Long::start(tool, "file", &[], dir, seconds)?,
        Long::start(
            tool,
            "ring",
            &["--ring=4M", "--keep-on=always"],
            dir,
            seconds,
        )?,
    ];
    let over = AtomicBool::new(false);
    let beside = std::thread::scope(|s| {
        let beside = s.spawn(|| short_ones(tool, dir, &over));
        let mut sampling = || -> io::Result<()> {
            let limit = Duration::from_secs(seconds) + LIMIT;
            loop {
                let going = [all[0].sample(began)?, all[1].sample(began)?];
                if going == [false; 2] {
                    return Ok(());
                }
                if began.elapsed() > limit {
                    return Err(io::Error::other("a recording does not end"));
                }
                std::thread::sleep(EVERY);
            }
        };
        let sampled = sampling();
        over.store(true, Relaxed);
        let beside = beside
            .join()
            .map_err(|_| io::Error::other("the short recordings failed"))?;
        sampled.and(beside)
    })?;
    println!(
        "{beside} short programs recorded and verified in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    let mut well = true;
    for long in all {
        well &= long.judge(tool)?;
    }
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four samples a second for a minute: the values of `f`, with noise.
    fn samples(f: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let mut random = hindsight_random::Rng(5);
        let noise = |r: &mut hindsight_random::Rng| r.below(1000) as f64 / 1000.0;
        (0..240)
            .map(|i| i as f64 / 4.0)
            .map(|t| (t, f(t) + noise(&mut random)))
            .collect()
    }

    #[test]
    fn growth_is_told_from_noise_and_from_warming_up() {
        let flat = growth(&samples(|t| 20.0 + t.min(10.0))).unwrap();
        assert!(flat.abs() < 1.0, "{flat}");
        let slow = growth(&samples(|t| 20.0 + t / 5.0)).unwrap();
        assert!((8.0..10.0).contains(&slow), "{slow}");
        assert!(slow > CHANCE);
        assert_eq!(growth(&samples(|t| t)[..8]), None);
        assert_eq!(growth(&[]), None);
    }
}
