//! `hindsight resume`: a live process goes on from an instant of a recording.

use crate::words::Spot;
use crate::{args, confine, say};
use anyhow::{Context, Result, bail};
use hindsight_resume::{Choice, Made, Prepared, Received, send};
use hindsight_timeline::Cancel;
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// What a shell adds to the number of a signal that has ended a program.
const SIGNALLED: i32 = 128;

/// Makes the process and lets it go on; its exit status.
pub fn run(a: &args::Resume, file: Option<PathBuf>) -> Result<i32> {
    if !a.yes && !a.dry_run && !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal())
    {
        bail!(
            "this runs the recorded program for real: without a terminal to ask on, say --yes or --dry-run"
        );
    }
    let file = crate::store::find(file.as_deref())?;
    let inside = |stream: UnixStream| {
        let at = args::Within {
            image: a.process,
            thread: None,
            frame: 0,
        };
        let mut spot = Spot::open(a.words.first(), &at)?;
        send(&mut spot.cursor, stream, &Cancel::new())?;
        Ok(0)
    };
    confine::run_beside(&file, inside, |stream| beside(a, stream))
}

fn beside(a: &args::Resume, stream: UnixStream) -> Result<i32> {
    let received = Received::from(stream)?;
    let choice = match a.files {
        args::Files::Same => Choice::Same,
        args::Files::Recorded => Choice::Recorded,
    };
    let same = |file: &File, hash: &[u8; 16]| confine::is_called(file, hash);
    let mut prepared = Prepared::new(received, choice, &same)?;
    match a.json {
        true => eprintln!("{}", as_json(&prepared)),
        false => tell(&prepared),
    }
    if a.dry_run {
        return Ok(0);
    }
    if !a.yes && !asked()? {
        say("nothing was run");
        return Ok(1);
    }
    let made = prepared.make().context("nothing was run")?;
    let pid = made.pid();
    if a.gdb {
        made.stop();
        return debug(pid);
    }
    if !a.json {
        say(&format!("process {pid} goes on"));
    }
    wait(made)
}

/// Says what will be done.
fn tell(p: &Prepared) {
    let s = p.state();
    let count = s.threads.len();
    say(&format!(
        "at {}: `{}` goes on as a live process, with your rights ({count} {})",
        s.position,
        hindsight_text::line(&s.command),
        if count == 1 { "thread" } else { "threads" }
    ));
    for (numbers, text) in p.kept() {
        say(&format!("  descriptor {}: {text}", list(numbers)));
    }
    for t in s.threads.iter().filter(|t| count > 1 && t.call.is_some()) {
        let call = t.call.as_deref().unwrap_or_default();
        say(&format!(
            "  thread {} begins its call again: {}",
            t.tid,
            hindsight_text::line(call)
        ));
    }
    for w in &p.written {
        say(&format!("  opened for writing: {w}"));
    }
    for l in &p.lost {
        say(&format!("  lost: {l}"));
    }
    for n in &p.notes {
        say(&format!("  note: {n}"));
    }
}

fn list(numbers: &[i32]) -> String {
    numbers
        .iter()
        .map(i32::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn as_json(p: &Prepared) -> String {
    let s = p.state();
    let value = json!({
        "position": s.position,
        "command": s.command,
        "recorded_pid": s.pid,
        "threads": s.threads.iter().map(|t| json!({
            "tid": t.tid, "name": t.name, "call": t.call,
        })).collect::<Vec<_>>(),
        "descriptors": p.descriptors.iter().map(|(n, text)| json!({
            "numbers": n, "leads_to": text,
        })).collect::<Vec<_>>(),
        "opened_for_writing": p.written,
        "copies": p.copies,
        "lost": p.lost,
        "notes": p.notes,
    });
    hindsight_text::line(&value.to_string()).into_owned()
}

fn asked() -> Result<bool> {
    eprint!("hindsight: run it? [y/N] ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Becomes gdb, which so is the process's parent and may trace it.
fn debug(pid: i32) -> Result<i32> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-p", &pid.to_string()]);
    let failed = gdb.exec();
    hindsight_resume::kill(pid);
    Err(failed).context("cannot start gdb")
}

/// Lets the process go on and waits for its end.
fn wait(made: Made) -> Result<i32> {
    let pid = made.pid();
    // What the terminal sends is for the program. It gets it too.
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the call accesses no memory of this program.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    made.go();
    let mut status = 0;
    loop {
        // SAFETY: the kernel fills in the status.
        let got = unsafe { libc::waitpid(pid, &mut status, 0) };
        if got == pid {
            break;
        }
        let e = std::io::Error::last_os_error();
        if e.kind() != std::io::ErrorKind::Interrupted {
            return Err(e).context("waiting for the process");
        }
    }
    if libc::WIFEXITED(status) {
        return Ok(libc::WEXITSTATUS(status));
    }
    let signal = libc::WTERMSIG(status);
    say(&format!(
        "the process ended by {}",
        hindsight_timeline::signal_name(signal as u64)
    ));
    Ok(SIGNALLED + signal)
}
