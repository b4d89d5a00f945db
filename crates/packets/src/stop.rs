//! Stops: the answers to runs and steps, to `?` and to `vAttach`.

use crate::encoding::push_hex;
use crate::{Answer, Label, Signal, WatchKind};
use std::fmt::Write;

/// Where and why a program stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stop {
    pub thread: Label,
    pub signal: Signal,
    pub event: Event,
}

/// What else there is to say of a stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The signal says all.
    Nothing,
    SoftwareBreakpoint,
    HardwareBreakpoint,
    Watchpoint {
        kind: WatchKind,
        address: u64,
    },
    /// A recording has nothing before this.
    Begin,
    /// A recording has nothing behind this.
    End,
    SyscallEntry(u64),
    SyscallReturn(u64),
    /// A process was made. This is its first thread.
    Fork(Label),
    /// The same; the process that made it waits.
    VFork(Label),
    /// The process that was made runs a program of its own, and the other goes on.
    VForkDone,
    /// The process executes another program, from a file of this name.
    Exec(String),
}

impl Stop {
    /// The answer that says so.
    pub fn answer(&self) -> Answer {
        let mut out = format!("T{:02x}thread:{};", self.signal.0, self.thread);
        // To a string it always succeeds.
        let _ = match &self.event {
            Event::Nothing => Ok(()),
            Event::SoftwareBreakpoint => write!(out, "swbreak:;"),
            Event::HardwareBreakpoint => write!(out, "hwbreak:;"),
            Event::Watchpoint { kind, address } => {
                let name = match kind {
                    WatchKind::Write => "watch",
                    WatchKind::Read => "rwatch",
                    WatchKind::Access => "awatch",
                };
                write!(out, "{name}:{address:x};")
            }
            Event::Begin => write!(out, "replaylog:begin;"),
            Event::End => write!(out, "replaylog:end;"),
            Event::SyscallEntry(number) => write!(out, "syscall_entry:{number:x};"),
            Event::SyscallReturn(number) => write!(out, "syscall_return:{number:x};"),
            Event::Fork(first) => write!(out, "fork:{first};"),
            Event::VFork(first) => write!(out, "vfork:{first};"),
            Event::VForkDone => write!(out, "vforkdone:;"),
            Event::Exec(file) => {
                let mut name = Vec::new();
                push_hex(&mut name, file.as_bytes());
                write!(out, "exec:{};", String::from_utf8_lossy(&name))
            }
        };
        Answer::text(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tid;

    #[test]
    fn stops_say_their_reason() {
        let label = |process, thread| Label {
            process,
            thread: Tid::new(thread).unwrap(),
        };
        let said = |event| {
            let stop = Stop {
                thread: label(None, 0x2b),
                signal: Signal::TRAP,
                event,
            };
            stop.answer()
        };
        for (event, text) in [
            (Event::Nothing, ""),
            (Event::HardwareBreakpoint, "hwbreak:;"),
            (
                Event::Watchpoint {
                    kind: WatchKind::Access,
                    address: 0xabc,
                },
                "awatch:abc;",
            ),
            (Event::End, "replaylog:end;"),
            (Event::SyscallReturn(60), "syscall_return:3c;"),
            (Event::Fork(label(Some(1), 2)), "fork:p1.2;"),
            (Event::Exec("/a".into()), "exec:2f61;"),
        ] {
            let wanted = format!("T05thread:2b;{text}");
            assert_eq!(said(event), Answer::text(wanted));
        }
    }
}
