//! `hindsight record`.

use crate::face::Run;
use crate::launch::{BEAT, Watch};
use crate::numbers::grouped;
use crate::numbers::size;
use crate::program::Program;
use crate::sink::{Out, Target};
use crate::status::FAILED;
use crate::{args, image, os, program, say, select};
use anyhow::{Context, Result, bail};
use hindsight_collector::{Collected, Collector, Control, discard};
use hindsight_events::config::{Config, children, regime};
use hindsight_text::Shown;
use hindsight_trace::files::Files;
use hindsight_trace::meta::Machine;
use hindsight_trace::{Header, Summary, Text};
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[path = "record/deadline.rs"]
mod hang;
#[path = "record/run.rs"]
mod run;
use run::once;

/// Instructions between key frames if nothing is said.
const KEYFRAME_INTERVAL: u64 = 1_000_000_000;

fn keyframe_interval(a: &args::Record) -> u64 {
    a.keyframe_interval.unwrap_or(KEYFRAME_INTERVAL)
}

/// Records a program; this process's exit status is the program's.
pub fn run(a: args::Record) -> i32 {
    let search = std::env::var_os("PATH");
    let program = match program::resolve(&a.program, search.as_deref()) {
        Ok(p) => p,
        Err(refusal) => {
            say(&refusal.message);
            return refusal.status;
        }
    };
    let end = if a.plain {
        plain(&a, &program)
    } else {
        record(&a, &program)
    };
    match end {
        Ok(Ok(status)) => status,
        Ok(Err(signal)) => os::die_by(signal),
        Err(e) => {
            say(&format!("{e:#}"));
            FAILED
        }
    }
}

/// Says of a run that it took too long, and what it waited for.
fn tell_hang(a: &args::Record, run: &Run, before: &str, watch: &Watch) {
    let Some(limit) = a.timeout.filter(|_| run.hung) else {
        return;
    };
    say(&format!(
        "{before}it took longer than {limit:?} and was ended"
    ));
    let Some(file) = run.file.as_ref().filter(|_| !a.quiet) else {
        return;
    };
    if let Err(e) = hang::report(file, watch) {
        say(&format!("what it waited for cannot be shown: {e:#}"));
    }
}

/// Longest time in which the recording is to be complete when somebody wants its end.
const LAST: Duration = Duration::from_secs(20);

/// The same if nothing is done for it: whoever is to read the recording does not.
const STANDS: Duration = Duration::from_millis(500);

/// Processor time that is more than looking whether something is done.
const WORK: Duration = Duration::from_millis(3);

/// Time after which a word is said about what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time between words about runs where nobody watches.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Exit status or deadly signal.
type Status = Result<i32, i32>;

fn plain(a: &args::Record, program: &Program) -> Result<Status> {
    let image = image::file(&config(a, program, -1, 0)?)?;
    let watch = Watch::new();
    let pid = os::spawn(&exec(&image, program, &watch)?)?;
    Ok(watch.wait(pid, || {}, |_| {})?.status)
}

/// Runs the program as often as the options say.
fn record(a: &args::Record, program: &Program) -> Result<Status> {
    let target = Target::of(a.output.as_deref(), a.self_contained);
    if !target.is_file() && a.ring.is_none() && (a.keep_on.is_some() || a.retry.is_some()) {
        bail!(
            "what is sent as it is recorded cannot be taken back: --keep-on and --retry need a file, or --ring"
        );
    }
    let watch = Watch::new();
    let Some(retry) = a.retry else {
        let run = once(a, program, &target, &watch, 0)?;
        tell_hang(a, &run, "", &watch);
        return Ok(run.status);
    };
    let mut told = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    for n in 1..=retry.0 {
        let run = once(a, program, &target, &watch, n - 1)?;
        // What came when the program had ended is still to be taken.
        watch.told_to_end();
        let interrupted = watch.interrupted();
        if run.kept || interrupted.is_some() {
            if run.hung && interrupted.is_none() {
                tell_hang(a, &run, &format!("run {n}: "), &watch);
            } else {
                say(&format!("run {n}: {}", run.ending));
            }
            // Whoever waits for a run that is kept learns that there was none, however the program took the signal.
            let gone = interrupted.filter(|_| !run.kept);
            return Ok(gone.map_or(run.status, Err));
        }
        if !a.quiet && (terminal || told.elapsed() > REPORT_EVERY) {
            told = Instant::now();
            let end = if terminal { "\r" } else { "\n" };
            let ending = match run.hung {
                true => "took too long".into(),
                false => Shown(&run.ending).to_string(),
            };
            let line = format!("hindsight: run {n}: {ending}, not kept{end}");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
    if !a.quiet {
        say(&format!(
            "none of {} runs ended so that it is kept",
            retry.0
        ));
    }
    Ok(Ok(0))
}

/// Lets a recording share the content of files, if its place has them.
pub fn share<'c>(collector: Collector<'c, Out>, files: Option<Files>) -> Collector<'c, Out> {
    match files {
        Some(f) => collector.share(f),
        None => collector,
    }
}

/// Collects. If that fails by an error of its own, the program goes on unrecorded.
pub fn collect(
    collector: Collector<Out>,
    control: &Control,
    over: &AtomicBool,
    stop: &AtomicBool,
) -> Option<Collected<Out>> {
    // Nothing of it is used when it has panicked.
    let run = AssertUnwindSafe(|| collector.run(over, stop));
    match catch_unwind(run) {
        Ok(collected) => Some(collected),
        Err(_) => {
            say("the collector failed; the program goes on, unrecorded");
            discard(control, over, stop);
            None
        }
    }
}

/// Whether this process does anything.
struct Idle {
    cpu: Duration,
    since: Instant,
}

impl Idle {
    fn new() -> Idle {
        Idle {
            cpu: os::own_cpu(),
            since: Instant::now(),
        }
    }

    /// Whether a thread besides this one wants a processor, or waits for a disk.
    fn is_about_to(&self) -> bool {
        let threads = |letter| os::threads_in(os::own_id(), letter);
        threads(b'R') > 1 || threads(b'D') > 0
    }

    /// Whether it has done nothing for a while, and waits for no disk: who reads what it writes does not.
    fn look(&mut self) -> bool {
        let cpu = os::own_cpu();
        if cpu > self.cpu + WORK || self.is_about_to() {
            (self.cpu, self.since) = (cpu, Instant::now());
        }
        self.since.elapsed() > STANDS
    }
}

/// Sees to the other recorded processes when the program itself has ended, until the collector
/// says through `finished` that all have.
pub fn await_others(
    told_to_end: impl Fn() -> bool,
    beat: impl Fn(),
    control: &Control,
    finished: &mpsc::Receiver<()>,
    stop: &AtomicBool,
    quiet: bool,
) {
    let mut told = quiet;
    let since = Instant::now();
    let mut stopped = None;
    let mut idle = Idle::new();
    while finished.recv_timeout(BEAT) == Err(mpsc::RecvTimeoutError::Timeout) {
        beat();
        let stands = idle.look();
        if told_to_end() {
            stop.store(true, Release);
            control.wake();
            if stopped.is_none() {
                // How long it stood before says nothing.
                idle = Idle::new();
            }
            stopped = stopped.or(Some(Instant::now()));
        }
        if stopped.is_some_and(|s: Instant| stands && s.elapsed() > STANDS || s.elapsed() > LAST) {
            say("the end of the recording cannot be written; what was written stays readable");
            std::process::exit(FAILED);
        }
        if !told && since.elapsed() > PATIENCE {
            told = true;
            say("the program has ended; waiting for other processes that are recorded with it");
        }
    }
}

pub fn finish(collected: &mut Collected<Out>, summary: Summary) -> Summary {
    let told = collected.error.is_some();
    let (_, summary) = collected.finish(summary);
    if let (false, Some(e)) = (told, &collected.error) {
        say(&format!(
            "the end of the trace could not be written: {e}; what was written stays readable"
        ));
    }
    summary
}

/// The line at the end.
pub fn report(s: &Summary, file: &str) -> String {
    if s.trace_bytes == 0 {
        // It has no end, and so no figures of its own.
        return format!(
            "{} instructions, of which the trace has what could be written, peak memory {}: {file}",
            grouped(s.totals.instructions),
            size(s.peak_memory_kib << 10),
        );
    }
    let bits = s.trace_bytes as f64 * 8.0 / s.totals.instructions.max(1) as f64;
    let shared = match s.shared_bytes {
        0 => String::new(),
        n => format!(" and {} of shared files", size(n)),
    };
    format!(
        "{} instructions, {} unpredicted reads, trace {}{shared} ({bits:.4} bit per instruction), peak memory {}: {file}",
        grouped(s.totals.instructions),
        grouped(s.totals.unpredicted_reads),
        size(s.trace_bytes),
        size(s.peak_memory_kib << 10),
    )
}

/// Says what becomes of processes that the program makes.
pub fn set_children(c: &mut Config, which: &args::Children) {
    c.children = match which {
        args::Children::Follow => children::FOLLOW,
        args::Children::None => children::NONE,
        args::Children::Matching(pattern) => {
            c.matching[..pattern.len()].copy_from_slice(pattern.as_bytes());
            children::MATCHING
        }
    };
}

fn config(a: &args::Record, p: &Program, ctl_fd: i32, number: u64) -> Result<Config> {
    let mut c = Config::new();
    c.ctl_fd = ctl_fd;
    c.predictor_bits = a.predictor.bits;
    c.baseline = a.cpu as u8;
    c.plain = a.plain as u8;
    set_children(&mut c, &a.children);
    select::fill(&mut c.select, a)?;
    c.limits = os::memory_limits();
    // 0 would be none.
    c.chaos = a.chaos.map_or(0, |seed| seed as u64 + number + 1);
    c.keyframe_interval = keyframe_interval(a);
    let quiet = match a.regime {
        Some(r) => r == args::Regime::Quiet,
        // What is dropped at the front of a ring ends at a key frame.
        None => a.keyframe_interval.is_none() && a.ring.is_none(),
    };
    c.regime = match quiet {
        true => regime::QUIET,
        false => regime::CHECKED,
    };
    c.digest_interval = a.digest_interval;
    c.quiet_for = a.leave_quiet_after;
    c.restate_every = a.restate_every;
    c.untold = a.untold.map_or(0, |nr| nr + 1);
    c.page_sharing = a.joint.unwrap_or_else(gains_by_common_pages).into();
    image::set_path(&mut c.exe, p.exe.as_os_str()).context("the program's path")?;
    image::set_path(&mut c.execfn, p.execfn.as_os_str()).context("the program's path")?;
    Ok(c)
}

/// Whether the processor finds a line in its first cache by whatever address it was brought there. AMD's guess where it is
/// from the address, and guess wrong each time if memory is read by two of them (docs/speed.md).
fn gains_by_common_pages() -> bool {
    let r = core::arch::x86_64::__cpuid(0);
    let name = [r.ebx, r.edx, r.ecx].map(u32::to_le_bytes);
    !matches!(name.as_flattened(), b"AuthenticAMD" | b"HygonGenuine")
}

fn exec<'a>(image: &'a std::fs::File, p: &Program, watch: &Watch) -> Result<os::Exec<'a>> {
    let env = std::env::vars_os().map(|(mut k, v)| {
        k.push("=");
        k.push(v);
        os::c_string(&k)
    });
    Ok(os::Exec {
        image,
        argv: p
            .argv
            .iter()
            .map(|a| os::c_string(a))
            .collect::<Result<_, _>>()?,
        env: env.collect::<Result<_, _>>()?,
        blocked: watch.inherited(),
        ignore_child: watch.child_ignored(),
        keep: None,
        merge_output: false,
    })
}

fn header(a: &args::Record, p: &Program) -> Header {
    let text = |s: &std::path::Path| Text::from(s.as_os_str());
    let env = std::env::vars_os().map(|(mut k, v)| {
        k.push("=");
        k.push(v);
        Text::from(k.as_os_str())
    });
    Header {
        hindsight: env!("CARGO_PKG_VERSION").into(),
        exe: text(&p.exe),
        execfn: text(&p.execfn),
        argv: p.argv.iter().map(|a| Text::from(a.as_os_str())).collect(),
        env: env.collect(),
        cwd: std::env::current_dir().map_or(Text::default(), |d| text(&d)),
        machine: machine(),
        baseline: a.cpu.name().into(),
        predictor_bits: a.predictor.bits,
        keyframe_interval: keyframe_interval(a),
        digest_interval: a.digest_interval,
        part: select::options(a),
        ..Header::default()
    }
}

pub fn machine() -> Machine {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    Machine {
        arch: "x86_64".into(),
        byte_order: "little".into(),
        kernel: os::kernel(),
        processor: model.map_or(String::new(), |(_, m)| m.trim().into()),
        page_size: 4096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1234567), "1 234 567");
        assert_eq!(size(9999), "9999 B");
        assert_eq!(size(10 << 20), "10.0 MiB");
    }
}
