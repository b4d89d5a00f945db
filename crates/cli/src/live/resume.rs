//! `hindsight resume`: a live process goes on from an instant of a recording.

use super::handover;
use crate::words::Spot;
use crate::{args, confine, out, say, words};
use anyhow::{Context, Result, bail};
use hindsight_guard::broker;
use hindsight_resume::{Choice, Error, Made, Prepared, Received, may_begin, send};
use hindsight_timeline::Cancel;
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

/// What a shell adds to the number of a signal that has ended a program.
const SIGNALLED: i32 = 128;
/// The most lines of a kind, and the most characters of one, that are shown.
const MOST_LINES: usize = 40;
const MOST_SHOWN: usize = 600;
/// How long the half that reads the recording may take to end once it has said all.
const PATIENCE: Duration = Duration::from_secs(60);
/// Signals that end a command.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
/// The one of these that came while the process was made.
static CAME: AtomicI32 = AtomicI32::new(0);
/// The process that goes on, for signals that come.
static GOES_ON: AtomicI32 = AtomicI32::new(0);

/// Makes the process and lets it go on; its exit status.
pub fn run(mut a: args::Resume) -> Result<i32> {
    // Who ignores the ends of children gets no status of them.
    // SAFETY: the call accesses no memory of this program.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let file = words::take(&mut a.words, 1, 1);
    let a = &a;
    let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !a.yes && !a.dry_run && !can_ask {
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
        match send(&mut spot.cursor, stream, &Cancel::new()) {
            // The other half has refused the process and has said why.
            Err(Error::Step(_, e)) if e.kind() == ErrorKind::BrokenPipe => Ok(2),
            done => done.map(|()| 0).map_err(Into::into),
        }
    };
    confine::run_beside_ended(&file, inside, |stream, ended| beside(a, stream, ended))
}

fn beside(a: &args::Resume, stream: UnixStream, ended: confine::Ended) -> Result<i32> {
    let received = match Received::from(&stream, may_begin) {
        Ok(received) => received,
        Err(gone @ Error::Gone(_)) => return Err(gone.into()),
        // The other half may go on for long. It ends with this process.
        Err(e) => std::process::exit(crate::status(Err(e.into()))),
    };
    // It can still write to the terminal, and must not while somebody reads what is asked.
    if !ended.within(PATIENCE) {
        say("the half that reads the recording does not end");
        std::process::exit(2);
    }
    let choice = match a.files {
        args::Files::Same => Choice::Same,
        args::Files::Recorded => Choice::Recorded,
    };
    if a.gdb {
        handover::needs_gdb()?;
    }
    let same = |file: &File, hash: &[u8; 16]| confine::is_called(file, hash);
    let prepared = Prepared::new(received, choice, &same)?;
    let asks = !a.yes && !a.dry_run;
    match a.json {
        // The program writes to standard output, if it goes on.
        true if a.dry_run => out::println(&as_json(&prepared)),
        true => eprintln!("{}", as_json(&prepared)),
        false => {}
    }
    // Who is asked must have it on the screen.
    if !a.json || asks {
        tell(&prepared);
    }
    if a.dry_run {
        return Ok(0);
    }
    if asks && !asked()? {
        say("nothing was run");
        return Ok(1);
    }
    // A signal that ends this command meanwhile must not leave copies of files behind.
    for signal in ENDING {
        handle(signal, note);
    }
    let made = unless_ended(prepared.make().context("nothing was run")?);
    if let Some(folder) = made.copies() {
        let folder = folder.as_os_str().as_encoded_bytes();
        say(&format!(
            "copies of files are in {}",
            hindsight_text::bytes(folder)
        ));
    }
    let pid = made.pid();
    if a.gdb {
        return debug(pid, made);
    }
    if !a.json {
        say(&format!("process {pid} goes on"));
    }
    wait(made)
}

/// Says what will be done: what matters most stands last, where it is still on the screen.
fn tell(p: &Prepared) {
    let s = p.state();
    say("a live process will go on, with your rights");
    let kept = p.kept();
    show(kept.map(|(numbers, text)| format!("descriptor {}: {text}", list(numbers))));
    for call in s.threads.iter().filter_map(|t| t.call.as_deref()) {
        say(&shortened(&format!(
            "  begins its call again: {}",
            hindsight_text::line(call)
        )));
    }
    show(p.notes.iter().map(|n| format!("note: {n}")));
    show(p.lost.iter().map(|l| format!("lost: {l}")));
    say(&format!("  working directory: {}", p.working));
    for w in &p.written {
        say(&shortened(&format!("  opened for writing: {w}")));
    }
    say(&shortened(&format!(
        "at {}: `{}`",
        hindsight_text::line(&s.position),
        hindsight_text::line(&s.command)
    )));
}

/// Says these, as far as anybody would read them.
fn show(all: impl Iterator<Item = String>) {
    let mut all = all.peekable();
    for line in all.by_ref().take(MOST_LINES) {
        say(&shortened(&format!("  {line}")));
    }
    if all.peek().is_some() {
        say(&format!("  and {} more, which --json shows", all.count()));
    }
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(MOST_SHOWN) {
        Some((at, _)) => format!("{}... (--json shows all)", &line[..at]),
        None => line.into(),
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
        "working_directory": p.working,
        "opened_for_writing": p.written,
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

/// Hands the process over to gdb.
fn debug(pid: i32, made: Made) -> Result<i32> {
    let copies = unless_ended(made).stop();
    let failed = handover::become_gdb(pid);
    hindsight_resume::kill(pid);
    if let Some(copies) = copies {
        let _ = std::fs::remove_dir_all(copies);
    }
    Err(failed).context("cannot start gdb")
}

/// Notes a signal that would have ended this command.
extern "C" fn note(signal: i32) {
    CAME.store(signal, Relaxed);
}

/// Ends this command if a signal came that should have. The process and its copies go away before.
fn unless_ended(made: Made) -> Made {
    let came = CAME.load(Relaxed);
    if came != 0 {
        drop(made);
        broker::die_of(came);
    }
    made
}

/// Has a signal handled, unless this command began with ignoring it. The handler only makes system calls and touches atomics.
fn handle(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: by the words above.
    unsafe {
        if libc::signal(signal, handler as usize) == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Gives a signal to the process that goes on.
extern "C" fn pass_on(signal: i32) {
    let pid = GOES_ON.load(Relaxed);
    if pid > 0 {
        // SAFETY: a system call that accesses no memory and may be made by a handler.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Lets the process go on and waits for its end.
fn wait(made: Made) -> Result<i32> {
    let pid = made.pid();
    // What the terminal sends is for the program. It gets it too.
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the call accesses no memory of this program.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // These are for the program too, and nobody else sends them to it.
    GOES_ON.store(pid, Relaxed);
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        handle(signal, pass_on);
    }
    unless_ended(made).go();
    let mut status = 0;
    loop {
        // SAFETY: the kernel fills in the status.
        let got = unsafe { libc::waitpid(pid, &mut status, 0) };
        if got == pid {
            GOES_ON.store(0, Relaxed);
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
