//! `hindsight attach`.

use crate::os::Signals;
use crate::record::{await_others, collect, finish, machine, report, set_children, share};
use crate::sink::Target;
use crate::status::FAILED;
use crate::takeover::Halted;
use crate::{args, detach, image, say, store, symbols, target};
use anyhow::{Context, Result};
use hindsight_collector::{Collected, Collector, Control};
use hindsight_events::attach::leave as reason;
use hindsight_events::config::Config;
use hindsight_remote::Status;
use hindsight_trace::meta::Ending;
use hindsight_trace::{Header, Summary, Text};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

/// Time between signs of life for the recorded process.
const BEAT: Duration = Duration::from_millis(100);

/// Records a process until it ends or is detached.
pub fn run(a: &args::Attach) -> i32 {
    match attach(a) {
        Ok(status) => status,
        Err(e) => {
            say(&format!("{e:#}"));
            FAILED
        }
    }
}

fn attach(a: &args::Attach) -> Result<i32> {
    let target = target::find(a.pid)?;
    let started = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let name = target::short_name(&target.exe, &target.status.name);
    let header = Header {
        name: name.clone(),
        started_ms: started.as_millis() as u64,
        ..header(a, &target)
    };
    let foreign = target.status.namespaces > 1;
    let stop = Signals::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    stop.block();
    Signals::of(&[libc::SIGPIPE, libc::SIGXFSZ]).block();
    let destination = Target::of(a.output.as_deref(), a.self_contained);
    let sink = destination.open(&name, started.as_secs() as i64)?;
    let place = sink.place;
    let discard = |e| {
        place.discard();
        Err(e)
    };

    let clock = Instant::now();
    let mut halted = match Halted::new(target) {
        Ok(h) => h,
        Err(e) => return discard(e),
    };
    let (threads, shared) = (halted.threads(), halted.make_control());
    let (fd, control) = match shared.and_then(|(fd, file)| Ok((fd, Control::in_file(file)?))) {
        Ok(c) => c,
        Err(e) => {
            drop(halted);
            return discard(e.context("cannot make the memory shared with the program"));
        }
    };
    let mut config = config(a, fd);
    config.namespace = foreign as u32;
    config.limits = halted.memory_limits();
    // For programs that it executes.
    control
        .set_image(image::IMAGE)
        .context("the recorder's image")?;
    let collector = Collector::new(&control, sink.out, &header, say)
        .with_context(|| format!("cannot write the recording to {}", place.name))?;
    let collector = share(collector, sink.files);
    let (over, cut) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut peak = 0;
    let (entered, collected) = std::thread::scope(|s| {
        let (done, finished) = mpsc::channel::<()>();
        let (over, cut, control) = (&over, &cut, &control);
        let collecting = s.spawn(move || {
            // Dropped at the end, however that comes.
            let _done = done;
            collect(collector, control, over, cut)
        });
        let entered = halted.enter(&config);
        match &entered {
            Ok(()) => {
                if !a.quiet {
                    let threads = match threads {
                        1 => "1 thread".into(),
                        n => format!("{n} threads"),
                    };
                    say(&format!(
                        "recording process {} ({name}), {threads}, which stood still for {:.1} ms; \
                         Ctrl-C detaches",
                        a.pid,
                        clock.elapsed().as_secs_f64() * 1e3
                    ));
                }
                // From here on it is known when nobody has the memory any more.
                control.is_left();
                peak = watch(a, control, &stop);
            }
            Err(_) => cut.store(true, Release),
        }
        over.store(true, Release);
        control.wake();
        let told = || stop.take(Duration::ZERO).is_some();
        let beat = || {
            control.beat();
            detach::serve(control);
        };
        await_others(told, beat, control, &finished, cut, a.quiet);
        (entered, collecting.join())
    });
    if let Err(e) = entered {
        return discard(e);
    }
    let mut collected = collected.ok().flatten().context("the collector failed")?;
    let ending = ending(&collected, a.pid);
    let failed = match &ending {
        Some(Ending::Unsupported(why)) => Some(why.clone()),
        _ => None,
    };
    let summary = Summary {
        ending,
        wall_ms: clock.elapsed().as_millis() as u64,
        collector_cpu_us: crate::os::own_cpu().as_micros() as u64,
        peak_memory_kib: peak,
        ..Summary::default()
    };
    let summary = finish(&mut collected, summary);
    if let Some(path) = &place.stored {
        store::prune(&name, a.keep, path);
    }
    if let Some(why) = failed {
        say(&format!("{why}; the recording ends there: {}", place.name));
        return Ok(FAILED);
    }
    if !a.quiet {
        say(&report(&summary, &place.name));
    }
    Ok(0)
}

/// Waits until the process has ended or has been left; the most memory that it has had, in KiB.
fn watch(a: &args::Attach, control: &Control, stop: &Signals) -> u64 {
    let since = Instant::now();
    let mut peak = 0;
    loop {
        control.beat();
        peak = Status::of_process(a.pid).map_or(peak, |s| s.peak_kib.max(peak));
        detach::serve(control);
        if !detach::is_recorded(control, a.pid) {
            return peak;
        }
        let left = a.time.map(|t| t.saturating_sub(since.elapsed()));
        if stop.take(left.map_or(BEAT, |l| l.min(BEAT))).is_some() || left == Some(Duration::ZERO) {
            let ours = |pid: &i32| control.is_shared_with(*pid);
            for pid in detach::recorded(control).into_iter().filter(ours) {
                if let Err(e) = detach::leave(pid, reason::ASKED) {
                    say(&format!("process {pid} could not be detached: {e:#}"));
                }
            }
            return peak;
        }
    }
}

/// How the recording of the process ended, as far as its threads have said.
fn ending<W: Write>(c: &Collected<W>, pid: i32) -> Option<Ending> {
    if let Some(r) = c.refusals.iter().find(|r| r.pid == pid) {
        let message = symbols::explain(&r.message, &r.maps);
        return Some(Ending::Unsupported(message));
    }
    if c.is_detached() {
        return Some(Ending::Detached);
    }
    let end = c.end()?;
    match end.kind.as_str() {
        "exit" => Some(Ending::Exit(end.code as i32)),
        "signal" => Some(Ending::Signal(end.code as i32)),
        _ => None,
    }
}

fn config(a: &args::Attach, ctl_fd: i32) -> Config {
    let mut c = Config::new();
    c.ctl_fd = ctl_fd;
    c.attached = 1;
    c.predictor_bits = a.predictor.bits;
    set_children(&mut c, &a.children);
    c.keyframe_interval = a.keyframe_interval;
    c.digest_interval = a.digest_interval;
    c
}

fn header(a: &args::Attach, t: &target::Target) -> Header {
    let texts = |list: &[std::ffi::OsString]| list.iter().map(|s| Text::from(&**s)).collect();
    Header {
        hindsight: env!("CARGO_PKG_VERSION").into(),
        exe: Text::from(t.exe.as_os_str()),
        execfn: Text::from(t.exe.as_os_str()),
        argv: texts(&t.argv),
        env: texts(&t.env),
        cwd: Text::from(t.cwd.as_os_str()),
        machine: machine(),
        baseline: hindsight_isa::cpuid::Baseline::Host.name().into(),
        predictor_bits: a.predictor.bits,
        keyframe_interval: a.keyframe_interval,
        digest_interval: a.digest_interval,
        ..Header::default()
    }
}
