//! `hindsight record`.

use crate::numbers::{grouped, size};
use crate::status::{FAILED, HUNG};
use crate::{args, say};
use anyhow::{Context, Result, bail};
use hindsight_guard::broker::die_of;
use hindsight_inspect::Inspector;
use hindsight_launch::{
    Builder, Destination, Ending, Error, Foreground, KeepOn, Notice, Outcome, Recording, Status,
    Summary, Trials, Unmatched,
};
use hindsight_text::Shown;
use hindsight_timeline::{Options, Timeline, did_you_mean};
use serde_json::{Value as Json, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between words about runs where nobody watches.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Records a program; this process's exit status is the program's.
pub fn run(a: args::Record) -> i32 {
    match record(&a) {
        Ok(Status::Exited(status)) => status,
        Ok(Status::Killed(signal)) => die_of(signal),
        Err(e) => {
            say(&format!("{e:#}"));
            result(a.result.as_deref(), &json!({ "error": format!("{e:#}") }));
            match e.downcast_ref() {
                Some(Error::Program(refusal)) => refusal.shell_status(),
                _ => FAILED,
            }
        }
    }
}

/// Runs the program as often as the options say.
fn record(a: &args::Record) -> Result<Status> {
    builder(a, 0).find()?;
    if a.plain {
        return Ok(builder(a, 0).run_unrecorded(&Foreground::new()?)?);
    }
    let to = Destination::of(a.output.as_deref(), a.self_contained);
    if !to.is_file() && a.ring.is_none() && (a.keep_on.is_some() || a.retry.is_some()) {
        bail!(
            "a recording that is sent while it is made cannot be taken back: --keep-on and --retry need a file, or --ring"
        );
    }
    let front = Foreground::new()?;
    let Some(retry) = a.retry else {
        let outcome = builder(a, 0).run_in(&front)?;
        tell_hang(a, &outcome, "", &front);
        return Ok(status(&outcome));
    };
    let mut told = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    for n in 1..=retry.0 {
        let outcome = builder(a, n - 1).run_in(&front)?;
        // What came when the program had ended is still to be taken.
        front.told_to_end();
        let interrupted = front.interrupted();
        if outcome.kept || interrupted.is_some() {
            if outcome.hung && interrupted.is_none() {
                tell_hang(a, &outcome, &format!("run {n}: "), &front);
            } else {
                say(&format!("run {n}: {outcome}"));
            }
            // Whoever waits for a run that is kept learns that there was none, however the program took the signal.
            let gone = interrupted.filter(|_| !outcome.kept);
            return Ok(gone.map_or(status(&outcome), Status::Killed));
        }
        if !a.quiet && (terminal || told.elapsed() > REPORT_EVERY) {
            told = Instant::now();
            let end = if terminal { "\r" } else { "\n" };
            let ending = match outcome.hung {
                true => "took too long".into(),
                false => Shown(&outcome.to_string()).to_string(),
            };
            let line = format!("hindsight: run {n}: {ending}, not kept{end}");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
    if !a.quiet {
        say(&format!(
            "none of {} runs ended in a way for which it is kept",
            retry.0
        ));
    }
    Ok(Status::Exited(0))
}

/// What the options say; `number` runs came before.
fn builder(a: &args::Record, number: u64) -> Builder {
    let (quiet, alone) = (a.quiet, a.retry.is_none());
    let to = a.result.clone();
    let mut b = Recording::builder(a.program[0].clone())
        .args(a.program[1..].iter().cloned())
        .destination(Destination::of(a.output.as_deref(), a.self_contained))
        .keep_in_store(a.keep)
        .predictor(a.predictor)
        .digest_interval(a.digest_interval)
        .children(a.children.clone())
        .baseline(a.cpu)
        .selection(a.selection())
        .ring_on_disk(a.ring_on_disk)
        .keep_on(a.keep_on())
        .cache(!a.no_cache)
        .trials(Trials {
            leave_quiet_after: a.leave_quiet_after,
            restate_every: a.restate_every,
            untold: a.untold,
            violate_after: a.violate_after,
            joint: a.joint,
        })
        .on_notice(move |notice| {
            tell(notice, quiet, alone);
            if let Notice::Finished(outcome) = notice {
                result(to.as_deref(), &as_json(outcome));
            }
        });
    if let Some(n) = a.keyframe_interval {
        b = b.keyframe_interval(n);
    }
    if let Some(bytes) = a.data_limit {
        b = b.data_limit(bytes);
    }
    if let Some(regime) = a.regime {
        b = b.regime(regime.into());
    }
    if let Some(limit) = a.ring {
        b = b.ring(limit);
    }
    if let Some(limit) = a.timeout {
        b = b.timeout(limit);
    }
    if let Some(when) = a.state_points {
        b = b.state_points(when);
    }
    if let Some(n) = a.keep_state_points {
        b = b.keep_state_points(n);
    }
    if let Some(time) = a.clock_throttle {
        b = b.clock_throttle(time);
    }
    if let Some(seed) = a.fill_fresh {
        b = b.fill_fresh(seed.saturating_add(number as u32));
    }
    match a.chaos {
        Some(seed) => b.chaos(seed as u64 + number),
        None => b,
    }
}

/// Writes what became of a run for scripts, into a file if one is wanted.
fn result(to: Option<&Path>, what: &Json) {
    let Some(to) = to else { return };
    if let Err(e) = std::fs::write(to, format!("{what}\n")) {
        say(&format!("{}: {e}", Shown(&to.display().to_string())));
    }
}

fn as_json(o: &Outcome) -> Json {
    json!({
        "file": o.file.as_ref().filter(|_| o.is_kept()).and_then(|f| f.to_str()),
        "kept": o.is_kept(),
        "ended": o.to_string(),
        "status": match o.status {
            Some(Status::Exited(n)) => Some(n),
            _ => None,
        },
        "signal": match o.status {
            Some(Status::Killed(n)) => Some(n),
            _ => None,
        },
        "hung": o.hung,
    })
}

/// The exit status that says how a run ended.
fn status(outcome: &Outcome) -> Status {
    match (&outcome.ending, outcome.status) {
        (Some(Ending::Unsupported(_)), _) | (_, None) => Status::Exited(FAILED),
        _ if outcome.hung => Status::Exited(HUNG),
        (_, Some(status)) => status,
    }
}

/// Tells the user what happens. `alone`: the program is run once.
fn tell(notice: &Notice, quiet: bool, alone: bool) {
    match notice {
        Notice::OthersGoOn if quiet => {}
        Notice::Finished(outcome) => {
            let kept = outcome.kept && outcome.begun;
            if let Some(name) = &outcome.name {
                if let Some(Ending::Unsupported(message)) = &outcome.ending {
                    say(&format!("{message}; the recording ends there: {name}"));
                } else if !quiet && kept {
                    say(&report(&outcome.summary, name));
                }
            }
            if !outcome.kept && alone && !quiet {
                let why = match outcome.hung {
                    true => "it took too long".into(),
                    false => outcome.to_string(),
                };
                say(&format!("the recording is not kept: {why}"));
            }
            if let Some(text) = unfilled(outcome.unfilled) {
                say(&text);
            }
            for u in &outcome.unmatched {
                say(&format!("{u}{}", near(u, outcome.file.as_deref())));
            }
        }
        notice => say(&notice.to_string()),
    }
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

/// What `--fill-fresh` has left as it was, if anything.
fn unfilled(programs: u32) -> Option<String> {
    let of = match programs {
        0 => return None,
        1 => "a program".into(),
        n => format!("{n} programs"),
    };
    Some(format!(
        "--fill-fresh: no function malloc was found in {of}, so only stacks were filled there"
    ))
}

/// Functions of the recorded programs that may have been meant, as the end of a message.
fn near(u: &Unmatched, file: Option<&Path>) -> String {
    let (Unmatched::Function { function, .. }, Some(file)) = (u, file) else {
        return String::new();
    };
    let names = || -> Result<Vec<String>> {
        let timeline = Timeline::open(file, Options::default())?;
        let images = timeline.processes()?.into_iter().map(|p| p.image);
        let mut inspector = Inspector::new(timeline.clone());
        let mut all = Vec::new();
        // One has most of what others have.
        for image in images.take(4) {
            all.extend(inspector.similar(image, function)?);
        }
        Ok(all)
    };
    let wanted = function.rsplit('!').next().unwrap_or(function);
    did_you_mean(wanted, names().unwrap_or_default())
}

/// Says of a run that it took too long, and what it waited for.
fn tell_hang(a: &args::Record, outcome: &Outcome, before: &str, front: &Foreground) {
    let Some(limit) = a.timeout.filter(|_| outcome.hung) else {
        return;
    };
    say(&format!(
        "{before}it took longer than {limit:?} and was ended"
    ));
    let Some(file) = outcome.file.as_ref().filter(|_| !a.quiet) else {
        return;
    };
    if let Err(e) = show_waits(file, front) {
        say(&format!("what it waited for cannot be shown: {e:#}"));
    }
}

/// Shows on standard error what the threads of a recording stood at and waited for in the end. Another process looks: it
/// gives up what it does not need for that, as for each recording.
fn show_waits(file: &Path, front: &Foreground) -> Result<()> {
    let own = File::open("/proc/self/exe").context("/proc/self/exe")?;
    let words = ["hindsight", "waits", "--stacks", "--"].map(OsStr::new);
    front.run(own, &[&words[..], &[file.as_os_str()]].concat())?;
    Ok(())
}

impl args::Record {
    /// Which recordings are kept.
    fn keep_on(&self) -> KeepOn {
        self.keep_on.unwrap_or(match (self.ring, self.retry) {
            (None, None) => KeepOn::Always,
            _ => KeepOn::Failure,
        })
    }
}
