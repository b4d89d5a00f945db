//! `hindsight record`.

use crate::dump::{self, Listener};
use crate::face::{Face, Run, Worker};
use crate::keep::KeepOn;
use crate::launch::{BEAT, Watch};
use crate::program::Program;
use crate::sink::{Out, Place, Sink, Target};
use crate::translations::Translations;
use crate::{args, detach, image, os, program, say, select, store, symbols};
use anyhow::{Context, Result, bail};
use hindsight_collector::{Collected, Collector, Control, discard};
use hindsight_events::config::{Config, children, regime};
use hindsight_events::ring::file_len;
use hindsight_events::shelf::Count;
use hindsight_text::Shown;
use hindsight_trace::files::Files;
use hindsight_trace::meta::{Ending, Machine};
use hindsight_trace::{Header, Ring, Snapshot, Summary, Text};
use std::io::{IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

/// Instructions between key frames if nothing is said.
const KEYFRAME_INTERVAL: u64 = 1_000_000_000;

fn keyframe_interval(a: &args::Record) -> u64 {
    a.keyframe_interval.unwrap_or(KEYFRAME_INTERVAL)
}

/// Exit status when the program was not recorded (to its end) for a reason of ours.
pub const FAILED: i32 = 125;

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

/// Longest time in which the recording is to be complete when somebody wants its end.
const LAST: Duration = Duration::from_secs(20);

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
        return Ok(once(a, program, &target, &watch, 0)?.status);
    };
    let mut told = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    for n in 1..=retry.0 {
        let run = once(a, program, &target, &watch, n - 1)?;
        if run.kept || watch.is_over() {
            say(&format!("run {n}: {}", run.ending));
            return Ok(run.status);
        }
        if !a.quiet && (terminal || told.elapsed() > REPORT_EVERY) {
            told = Instant::now();
            let end = if terminal { "\r" } else { "\n" };
            let line = format!("hindsight: run {n}: {}, not kept{end}", Shown(&run.ending));
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

/// Runs and records the program once; `number` runs came before.
fn once(
    a: &args::Record,
    program: &Program,
    target: &Target,
    watch: &Watch,
    number: u64,
) -> Result<Run> {
    let control = Control::new().with_context(|| {
        format!(
            "cannot make the memory shared with the program (does `ulimit -f` allow {} MiB?)",
            (file_len(2) >> 20) + 1
        )
    })?;
    control
        .set_image(image::IMAGE)
        .context("the recorder's image")?;
    let theirs = control
        .for_program()
        .context("the memory shared with the program")?;
    let config = config(a, program, theirs.as_raw_fd(), number)?;
    let image = image::file(&config)?;
    let mut exec = exec(&image, program, watch)?;
    exec.keep = Some(theirs.as_raw_fd());
    exec.merge_output = *target == Target::StandardOutput;
    let worker = Worker::start(|face| {
        // Only who is recorded has it.
        os::close(theirs.as_raw_fd());
        work(a, program, target, number, &control, &config, face)
    })?;
    let pid = os::spawn(&exec)?;
    drop(theirs);
    worker.started(pid);
    let beat = || {
        worker.look();
        // Where tracing is allowed to parents only, it is to this process.
        detach::serve(&control);
    };
    let ended = watch.wait(pid, beat, |news| worker.tell(news))?;
    worker.finish(&ended, watch, beat)
}

/// In the process that collects: prepares for the program, records it to its end and sees to the recording.
fn work(
    a: &args::Record,
    program: &Program,
    target: &Target,
    number: u64,
    control: &Control,
    config: &Config,
    face: &Face,
) -> Result<Run> {
    control.adopt();
    let started = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let name = program
        .execfn
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let translations = match a.no_cache {
        true => None,
        false => Translations::restore(&program.exe, config, control),
    };
    let header = Header {
        name: name.clone(),
        started_ms: started.as_millis() as u64,
        chaos: a.chaos.map(|seed| seed as u64 + number),
        ..header(a, program)
    };
    let open = || target.open(&name, started.as_secs() as i64);
    let mut place = None;
    let mut listener = None;
    let collector: Collector<Out> = match a.ring {
        Some(limit) => {
            let file = a.ring_on_disk.then(|| target.scratch()).transpose()?;
            listener = Some(Listener::new(face.front())?);
            Collector::circular(control, Ring::new(&header, limit, file)?, say)
        }
        None => {
            let sink = open()?;
            let name = place.insert(sink.place).name.clone();
            let collector = Collector::new(control, sink.out, &header, say)
                .with_context(|| format!("cannot write the recording to {name}"))?;
            share(collector, sink.files)
        }
    };

    let clock = Instant::now();
    let pid = match face.ready() {
        Ok(pid) => pid,
        Err(e) => {
            if let Some(place) = &place {
                place.discard();
            }
            return Err(e);
        }
    };
    let (over, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let requests = collector.requests();
    let (ended, collected) = std::thread::scope(|s| {
        let (done, finished) = mpsc::channel::<()>();
        let (over, stop, requests) = (&over, &stop, &requests);
        let collecting = s.spawn(move || {
            // Dropped at the end, however that comes.
            let _done = done;
            collect(collector, control, over, stop)
        });
        let beat = || {
            control.beat();
            if control.is_damaged() && face.is_overdue() {
                // Its recorder may wait for what never comes, and then nothing else ends it.
                os::kill(pid, libc::SIGKILL);
            }
            if face.is_stopped() {
                detach::serve(control);
            }
            while let Some((peer, number)) = listener.as_ref().and_then(Listener::accept) {
                let so_far = Summary {
                    wall_ms: clock.elapsed().as_millis() as u64,
                    ..Summary::default()
                };
                s.spawn(move || dump::answer(peer, number, control, requests, &so_far));
            }
        };
        let ended = face.wait(beat);
        over.store(true, Release);
        control.wake();
        await_others(
            || face.told_to_end(),
            beat,
            control,
            &finished,
            stop,
            a.quiet,
        );
        (ended, collecting.join())
    });
    let blocks = control.shelf().map_or(Count::default(), |s| s.count());
    let mut collected = collected.ok().flatten().context("the collector failed")?;

    // That of the program itself is the end of the recording; of others it is worth a message.
    let mut refusal = None;
    for r in &collected.refusals {
        let message = symbols::explain(&r.message, &r.maps);
        if r.pid == pid {
            refusal = Some(message);
        } else {
            say(&format!(
                "process {}: {message}; its recording ends there",
                r.pid
            ));
        }
    }
    let ending = match (&refusal, ended.status) {
        (Some(message), _) => Ending::Unsupported(message.clone()),
        (None, _) if collected.is_detached() => Ending::Detached,
        (None, Ok(status)) => Ending::Exit(status),
        (None, Err(signal)) => Ending::Signal(signal),
    };
    let summary = Summary {
        ending: Some(ending.clone()),
        wall_ms: clock.elapsed().as_millis() as u64,
        program_cpu_us: ended.cpu.as_micros() as u64,
        collector_cpu_us: os::own_cpu().as_micros() as u64,
        peak_memory_kib: ended.peak_kib,
        blocks_found: blocks.served as u64,
        blocks_made: blocks.made as u64,
        ..Summary::default()
    };
    let kept = a.keep_on().keeps(&ending);
    let (summary, began) = match collected.held() {
        Some(held) if kept && held.instructions() > 0 => {
            let sink = open()?;
            (write_ring(&held, sink, summary, &mut place), true)
        }
        Some(_) => (summary, false),
        None => {
            let summary = finish(&mut collected, summary);
            // A program that could not be loaded leaves nothing worth keeping; the recorder said why.
            let began = summary.totals.instructions + summary.totals.gap_instructions > 0;
            (summary, began)
        }
    };
    let status = match &refusal {
        Some(_) => Ok(FAILED),
        None => ended.status,
    };
    if let Some(t) = translations.filter(|_| !collected.confined) {
        t.keep(control);
    }
    // It may be deleted then.
    let unmatched = select::unmatched(
        a,
        control.header(),
        place.as_ref().and_then(|p| p.file.as_deref()),
    );
    conclude(a, &name, kept && began, &summary, place.as_ref());
    if !kept && a.retry.is_none() && !a.quiet {
        say(&format!("the recording is not kept: {ending}"));
    }
    unmatched.iter().for_each(|m| say(m));
    Ok(Run {
        status,
        ending,
        kept,
    })
}

/// Sees to the file of a recording and tells the user about it.
fn conclude(a: &args::Record, name: &str, kept: bool, summary: &Summary, place: Option<&Place>) {
    let Some(place) = place else { return };
    if !kept && (place.stored.is_some() || a.keep_on() != KeepOn::Always) {
        place.discard();
        if place.stored.is_some() {
            store::sweep_sometimes();
        }
        return;
    }
    if let Some(path) = &place.stored {
        store::prune(name, a.keep, path);
    }
    if let Some(Ending::Unsupported(message)) = &summary.ending {
        say(&format!(
            "{message}; the recording ends there: {}",
            place.name
        ));
    } else if !a.quiet && kept {
        say(&report(summary, &place.name));
    }
}

/// Writes what the ring holds in the end.
fn write_ring(held: &Snapshot, sink: Sink, summary: Summary, place: &mut Option<Place>) -> Summary {
    let place = place.insert(sink.place);
    let out = std::io::BufWriter::new(sink.out);
    match held.write(out, sink.files, summary.clone()) {
        Ok((_, summary)) => summary,
        Err(e) => {
            say(&format!(
                "the recording could not be written to {}: {e}; what was written stays readable",
                place.name
            ));
            summary
        }
    }
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
    while finished.recv_timeout(BEAT) == Err(mpsc::RecvTimeoutError::Timeout) {
        beat();
        if told_to_end() {
            stop.store(true, Release);
            control.wake();
            stopped = stopped.or(Some(Instant::now()));
        }
        if stopped.is_some_and(|s: Instant| s.elapsed() > LAST) {
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

/// A number with a space between each three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// A number of bytes for people.
pub fn size(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{:.1} KiB", n as f64 / 1024.0),
        10_000_000..10_000_000_000 => format!("{:.1} MiB", n as f64 / (1 << 20) as f64),
        _ => format!("{:.1} GiB", n as f64 / (1u64 << 30) as f64),
    }
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
    c.joint = a.joint.unwrap_or_else(gains_by_common_pages).into();
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
