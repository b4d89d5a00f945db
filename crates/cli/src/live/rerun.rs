//! `hindsight rerun`: a changed program gets the recorded inputs.

use super::handover;
use crate::out::println;
use crate::{args, confine, say, travel};
use anyhow::{Context, Result, bail};
use hindsight_guard::sandbox;
use hindsight_rerun::{
    Divergence, Options, Outcome, OutputDifference, Outputs, Report, Setup, Side, Stopped, rerun,
    serve,
};
use hindsight_text::{bytes, line, lines};
use serde_json::{Value as Json, json};
use std::io::{IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Frames of a call stack that are shown.
const FRAMES: usize = 8;
/// How long the half that reads the recording may take to end once it has said all.
const PATIENCE: Duration = Duration::from_secs(60);
/// Differences of output that are shown.
const DIFFERENCES: usize = 8;

pub fn run(a: &args::Rerun) -> Result<i32> {
    let options = options(a)?;
    let inside = |stream| {
        let timeline = travel::open(None, hindsight_timeline::Options::default())?;
        serve(timeline, stream)?;
        Ok(0)
    };
    if a.until_failure_point {
        handover::needs_gdb()?;
    }
    let beside = |stream, ended| run_program(a, options, (stream, ended));
    confine::run_beside_ended(&a.file, inside, beside)
}

fn options(a: &args::Rerun) -> Result<Options> {
    let outputs = match a.outputs {
        args::Outputs::Compare => Outputs::Compare,
        args::Outputs::Skip => Outputs::Skip,
    };
    let real = |d: &std::path::PathBuf| d.canonicalize().with_context(|| d.display().to_string());
    let words = a.command.split_first();
    Ok(Options {
        program: words.map(|(p, _)| p.into()),
        args: words
            .map(|(_, args)| args.to_vec())
            .filter(|a| !a.is_empty()),
        outputs,
        here: a.here.iter().map(real).collect::<Result<_>>()?,
        stop: a.stop,
        until_failure: a.until_failure_point,
    })
}

fn run_program(
    a: &args::Rerun,
    options: Options,
    (stream, ended): (UnixStream, confine::Ended),
) -> Result<i32> {
    let rules = sandbox::changes_nothing().context(
        "this kernel has no Landlock, which keeps programs from changing files: nothing is run",
    )?;
    // Who reads it may go away. The verdict does not depend on that.
    let mut shows = [!a.quiet && !a.json; 2];
    let mut show = |to_stdout: bool, bytes: &[u8]| {
        let shows = &mut shows[usize::from(to_stdout)];
        *shows = *shows && print(to_stdout, bytes).is_ok();
    };
    let setup = Setup {
        stream,
        rules,
        show: &mut show,
    };
    let report = match rerun(options, setup)? {
        Outcome::Over(report) => report,
        Outcome::Stopped(stopped) => return debug(&stopped, ended),
    };
    match a.json {
        true => println(&serde_json::to_string_pretty(&report_json(&report))?),
        false => text(&report).iter().for_each(|l| say(l)),
    }
    Ok(report.verdict.status())
}

/// Shows what the program printed. A terminal would obey it, so it is escaped there.
fn print(to_stdout: bool, bytes: &[u8]) -> std::io::Result<()> {
    let (mut stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
    let is_terminal = if to_stdout {
        stdout.is_terminal()
    } else {
        stderr.is_terminal()
    };
    let text = match is_terminal {
        true => lines(&String::from_utf8_lossy(bytes))
            .into_owned()
            .into_bytes(),
        false => bytes.to_vec(),
    };
    match to_stdout {
        true => stdout.write_all(&text).and_then(|()| stdout.flush()),
        false => stderr.write_all(&text),
    }
}

/// The program stands where the recorded one failed. It is handed over to gdb.
fn debug(s: &Stopped, ended: confine::Ended) -> Result<i32> {
    let mut out = s.notes.clone();
    if let Some(d) = &s.divergence {
        divergence(d, &mut out);
    }
    out.push(
        "the program stands behind the last call that the recorded one made before it failed:"
            .into(),
    );
    side("recorded", &s.behind, FRAMES, &mut out);
    out.push(match &s.failed_at {
        Some(place) => format!(
            "the recorded one failed in {}; what corresponds to that from here on is not known",
            line(place)
        ),
        None => "what corresponds to its failure from here on is not known".into(),
    });
    out.push("nothing is fed to it any more: its system calls fail".into());
    out.iter().for_each(|l| say(l));
    if !ended.within(PATIENCE) {
        s.kill();
        bail!("the half that reads the recording does not end");
    }
    let failed = handover::become_gdb(s.pid);
    s.kill();
    Err(failed).context("cannot start gdb")
}

/// What is said at the end, line by line.
fn text(r: &Report) -> Vec<String> {
    let mut out: Vec<String> = r.notes.clone();
    if let Some(d) = &r.divergence {
        divergence(d, &mut out);
    }
    let s = |n: u64| if n == 1 { "" } else { "s" };
    if r.added > 0 || r.left_out > 0 {
        out.push(format!(
            "{} call{} matched, {} {} not recorded, {} recorded one{} left out",
            r.matched,
            s(r.matched),
            r.added,
            if r.added == 1 { "was" } else { "were" },
            r.left_out,
            if r.left_out == 1 { " was" } else { "s were" },
        ));
    }
    for o in r.outputs.iter().take(DIFFERENCES) {
        out.push(format!(
            "output of process {} to {} differs behind {} byte{}",
            o.pid,
            o.to,
            o.at,
            s(o.at)
        ));
        let shown = |b: &[u8]| match b.is_empty() {
            true => "(nothing more)".into(),
            false => bytes(b).to_string(),
        };
        out.push(format!("  recorded: {}", shown(&o.recorded)));
        out.push(format!("  now:      {}", shown(&o.now)));
    }
    let place = |p: &Option<String>| p.as_ref().map_or(String::new(), |p| format!(" in {p}"));
    let now = match r.now {
        Some(end) => format!("{end}{}", place(&r.fails_at)),
        None => format!("stopped after {:.0}% of the recorded calls", r.percent),
    };
    out.push(format!(
        "recorded: {}{}; now: {now}",
        r.recorded,
        place(&r.failed_at)
    ));
    let why = r.why.as_ref().map_or(String::new(), |w| format!(": {w}"));
    let agrees = match r.agrees() {
        true => ", and every call agrees",
        false => "",
    };
    out.push(format!("{}{agrees}{why}", r.verdict));
    out
}

fn divergence(d: &Divergence, out: &mut Vec<String>) {
    out.push(format!("the first call that does not match; {}:", d.then));
    match &d.recorded {
        Some(s) => side("recorded", s, FRAMES, out),
        None => side(
            "recorded",
            &Side {
                call: "no more calls".into(),
                ..Side::default()
            },
            0,
            out,
        ),
    }
    side("now", &d.now, FRAMES, out);
    if let Some(last) = &d.last {
        side("last that agreed", last, 1, out);
    }
}

/// A call of one of the two programs, with the innermost frames of its call stack.
fn side(name: &str, s: &Side, frames: usize, out: &mut Vec<String>) {
    let at = s
        .position
        .as_ref()
        .map_or(String::new(), |p| format!(" at {p}"));
    out.push(format!(
        "  {name}{at} (process {}): {}",
        s.pid,
        line(&s.call)
    ));
    for f in s.stack.iter().take(frames) {
        out.push(format!("      {}", line(f)));
    }
}

fn report_json(r: &Report) -> Json {
    json!({
        "verdict": r.verdict.word(),
        "status": r.verdict.status(),
        "agrees": r.agrees(),
        "why": r.why,
        "recorded_end": r.recorded.to_string(),
        "end": r.now.map(|e| e.to_string()),
        "failed_at": r.failed_at,
        "fails_at": r.fails_at,
        "percent": r.percent,
        "matched": r.matched,
        "added": r.added,
        "left_out": r.left_out,
        "effects_not_done": r.not_done,
        "effects_left_out": r.unmade,
        "output_unknown": r.unknown,
        "answered_here": r.answered_here,
        "divergence": r.divergence.as_ref().map(|d| json!({
            "recorded": d.recorded.as_ref().map(side_json),
            "now": side_json(&d.now),
            "last": d.last.as_ref().map(side_json),
            "then": d.then,
        })),
        "outputs": r.outputs.iter().map(output_json).collect::<Vec<_>>(),
        "notes": r.notes,
    })
}

fn side_json(s: &Side) -> Json {
    json!({ "position": s.position, "pid": s.pid, "call": s.call, "stack": s.stack })
}

fn output_json(o: &OutputDifference) -> Json {
    json!({
        "pid": o.pid, "to": o.to, "same": o.at,
        "recorded": String::from_utf8_lossy(&o.recorded), "now": String::from_utf8_lossy(&o.now),
    })
}
