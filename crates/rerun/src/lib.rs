//! Runs a changed program natively with the inputs of a recording, and tells what became of the failure.
//!
//! There are two halves. One ([`serve`]) reads the recording, which may be anybody's, in a process that can do nothing else.
//! The other one ([`rerun`]) runs the program under `ptrace`. Each system call of the program that takes something in is
//! looked for among the recorded ones and answered from there. What it gives out is compared and goes nowhere.
//!
//! - `wire`: what the halves say to each other.
//! - `source`: the half that reads the recording.
//! - `plan`: which recorded call a call is, and what the differences are. It touches no process.
//! - `live`: the half that runs the program.
//! - `report`: what is told at the end.

#![deny(missing_docs)]
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

mod live;
#[allow(missing_docs, reason = "not seen outside of the crate")]
mod plan;
mod report;
mod source;
#[allow(missing_docs, reason = "not seen outside of the crate")]
mod wire;

pub use live::{Error, Options, Outcome, Outputs, Setup, Stopped, rerun};
pub use report::{Divergence, OutputDifference, Report, Side, Verdict};
pub use source::{Error as SourceError, serve};
pub use wire::End;

use hindsight_symbols::CallFrame;
use hindsight_text::line;

/// No frame is told in more characters.
const FRAME: usize = 1000;

/// The frames of a call stack in words, the innermost first. Names are escaped.
fn frames(stack: &[CallFrame]) -> Vec<String> {
    let mut out = all_frames(stack);
    for f in &mut out {
        if let Some((end, _)) = f.char_indices().nth(FRAME) {
            f.truncate(end);
        }
    }
    out
}

fn all_frames(stack: &[CallFrame]) -> Vec<String> {
    let mut out = Vec::new();
    for f in stack {
        if f.signal {
            out.push("<signal handler called>".into());
            continue;
        }
        let place = f.location.as_ref().map_or("?".into(), |l| l.to_string());
        for inner in &f.frames {
            out.push(match &inner.source {
                Some(s) => {
                    let name = inner.function.as_deref().unwrap_or("?");
                    format!("{} at {}:{}", line(name), line(&s.file), s.line)
                }
                None => place.clone(),
            });
        }
        if f.frames.is_empty() {
            out.push(place);
        }
    }
    out
}

/// The name of a signal.
fn signal_name(n: i32) -> String {
    const NAMES: [(i32, &str); 16] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    let name = NAMES.iter().find(|(k, _)| *k == n).map(|n| n.1);
    name.map_or_else(|| format!("signal {n}"), Into::into)
}
