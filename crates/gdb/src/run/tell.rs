//! Stops in gdb's words.

use crate::Result;
use crate::state::session::Session;
use crate::state::stops::SignalInfo;
use crate::state::told::{Told, kind};
use gdbstub::common::Signal;
use gdbstub::target::ext::base::reverse_exec::ReplayLogPosition;
use gdbstub::target::ext::catch_syscalls::CatchSyscallPosition;
use hindsight_timeline::{Reason, Stop, ThreadId};

impl Session {
    /// What gdb is told when a run ends without a result.
    pub fn stopped(&self) -> Told {
        Told::SignalWithThread {
            tid: self.tid(self.inferior.cursor.thread()),
            signal: Signal::SIGINT,
        }
    }

    pub(crate) fn trap(&self) -> Told {
        self.trap_of(self.inferior.cursor.thread())
    }

    pub(crate) fn trap_of(&self, thread: ThreadId) -> Told {
        Told::SignalWithThread {
            tid: self.tid(thread),
            signal: Signal::SIGTRAP,
        }
    }

    /// A stop in gdb's words.
    pub(crate) fn tell(&mut self, stop: Stop) -> Result<Told> {
        let tid = self.tid(stop.thread);
        Ok(match stop.reason {
            Reason::Breakpoint { id, .. } => {
                match self
                    .inferior
                    .breaks
                    .get(id as usize)
                    .is_some_and(|b| b.hardware)
                {
                    true => Told::HwBreak(tid),
                    false => Told::SwBreak(tid),
                }
            }
            Reason::Watchpoint { id, .. } => {
                let w = self.inferior.watches.iter().find(|w| w.id == id);
                match w {
                    Some(w) => Told::Watch {
                        tid,
                        kind: kind(w.watch),
                        addr: w.address,
                    },
                    None => self.trap(),
                }
            }
            Reason::Signal {
                number,
                code,
                address,
            } => {
                self.inferior.signal = Some(SignalInfo {
                    number,
                    code,
                    address,
                });
                let cursor = &self.inferior.cursor;
                self.inferior.told_signal = Some((cursor.thread(), cursor.count()));
                let signal = Signal(crate::state::signals::to_gdb(number));
                Told::SignalWithThread { tid, signal }
            }
            Reason::Syscall { number } => Told::CatchSyscall {
                tid: Some(tid),
                number,
                position: CatchSyscallPosition::Entry,
            },
            Reason::SyscallReturn { number, .. } => Told::CatchSyscall {
                tid: Some(tid),
                number,
                position: CatchSyscallPosition::Return,
            },
            Reason::Cancelled => Told::SignalWithThread {
                tid,
                signal: Signal::SIGINT,
            },
            // One thread of several may have ended by itself.
            Reason::End => match self.replaced_by()? {
                Some(p) if self.is_over(stop.thread)? => self.enter(p.image, p.begin)?,
                _ => {
                    self.note_end(stop.thread)?;
                    Told::ReplayLog {
                        tid: Some(tid),
                        pos: ReplayLogPosition::End,
                    }
                }
            },
            Reason::Begin => match self.replaces()? {
                Some(p) if stop.position <= self.present()?.begin => self.enter(p.image, p.end)?,
                _ => Told::ReplayLog {
                    tid: Some(tid),
                    pos: ReplayLogPosition::Begin,
                },
            },
            _ => self.trap(),
        })
    }
}
