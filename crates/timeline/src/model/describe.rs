//! Puts events into words, the same in all front ends. Names that come from the program are escaped.

use crate::{Ending, Happening, Kind, KindOf, did_you_mean};
use hindsight_events::GapReason;
use hindsight_text::Shown;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// A payload of a mark is shown up to this many bytes.
const PAYLOAD: usize = 64;
/// Results above this are errors.
const LAST_ERROR: u64 = -4096i64 as u64;

/// The name of a system call, or its number where it has none.
pub fn syscall_name(number: u64) -> String {
    hindsight_syscalls::name(number).map_or_else(|| format!("syscall_{number}"), String::from)
}

/// The number of the system call that has this name.
///
/// # Errors
/// A message for the user if no system call has the name. It offers similar names.
pub fn syscall_number(name: &str) -> Result<u64, String> {
    hindsight_syscalls::number(name).ok_or_else(|| {
        let near = did_you_mean(name, hindsight_syscalls::names());
        format!("{name}: no such system call{near}")
    })
}

impl Display for Ending {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Ending::Exit(n) => write!(f, "exit status {n}"),
            Ending::Signal(n) => write!(f, "killed by signal {n}"),
            Ending::Exec => f.write_str("executed another program"),
            Ending::Unsupported(why) => write!(f, "not recorded further: {}", Shown(why)),
            Ending::Detached => f.write_str("left by the recorder, and went on by itself"),
            Ending::Unknown => f.write_str("its end is not recorded"),
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Kind::Syscall {
                number,
                args,
                result,
            } => {
                let args: Vec<String> = args.iter().map(|a| format!("{a:#x}")).collect();
                write!(f, "{}({})", syscall_name(*number), args.join(", "))?;
                match result {
                    Some(r) if *r > LAST_ERROR => write!(f, " = {}", *r as i64),
                    Some(r) => write!(f, " = {r:#x}"),
                    None => Ok(()),
                }
            }
            Kind::Signal {
                number,
                code,
                address,
            } => {
                let what = match self.is_exception() {
                    true => "exception, ",
                    false => "",
                };
                write!(
                    f,
                    "{what}signal {number}, code {code}, address {address:#x}"
                )
            }
            Kind::ThreadBegin => f.write_str("thread begins"),
            Kind::ThreadEnd(e) => write!(f, "thread ends: {e}"),
            Kind::ProcessBegin { image } => write!(f, "program image {image} begins"),
            Kind::ProcessEnd { image } => write!(f, "program image {image} ends"),
            Kind::ModuleLoad { path, start, end } => {
                write!(f, "{start:#x}-{end:#x} is {}", Shown(path))
            }
            Kind::ModuleUnload { path, start, end } => {
                write!(f, "{start:#x}-{end:#x} is no longer {}", Shown(path))
            }
            Kind::GapBegin { reason } => f.write_str(match reason {
                GapReason::Module => "unrecorded from here on: a module that is not recorded",
                GapReason::Window => "unrecorded from here on: outside of what was asked for",
                GapReason::Stopped => "unrecorded from here on: the program asked for it",
            }),
            Kind::GapEnd => f.write_str("recorded again"),
            Kind::Mark { name, payload } => {
                write!(f, "mark {}", Shown(name))?;
                if payload.is_empty() {
                    return Ok(());
                }
                let shown = &payload[..payload.len().min(PAYLOAD)];
                let more = if shown.len() < payload.len() {
                    "…"
                } else {
                    ""
                };
                write!(f, ": {}{more}", shown.escape_ascii())
            }
            Kind::Regime { quiet: true, .. } => f.write_str("quiet regime"),
            Kind::Regime { reason, .. } => write!(f, "checked regime: {}", Shown(reason)),
        }
    }
}

/// The words leave out position and thread.
impl Display for Happening {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        self.kind.fmt(f)
    }
}

const KINDS: [(KindOf, &str); 9] = [
    (KindOf::Syscall, "syscall"),
    (KindOf::Signal, "signal"),
    (KindOf::Exception, "exception"),
    (KindOf::Thread, "thread"),
    (KindOf::Process, "process"),
    (KindOf::Module, "module"),
    (KindOf::Gap, "gap"),
    (KindOf::Mark, "mark"),
    (KindOf::Regime, "regime"),
];

/// The text names no kind of events.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0} is no kind of events: expected syscall, signal, exception, thread, process, module, gap, mark or \
     regime"
)]
/// The text names no kind of event.
pub struct ParseKindError(String);

impl FromStr for KindOf {
    type Err = ParseKindError;

    fn from_str(s: &str) -> Result<KindOf, ParseKindError> {
        let found = KINDS.iter().find(|k| k.1 == s);
        found.map(|k| k.0).ok_or_else(|| ParseKindError(s.into()))
    }
}

impl Display for KindOf {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let found = KINDS.iter().find(|k| k.0 == *self);
        f.write_str(found.map_or("", |k| k.1))
    }
}
