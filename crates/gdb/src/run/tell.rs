//! Stops in gdb's words.

use crate::Result;
use crate::state::session::Session;
use crate::state::told::{Told, kind};
use hindsight_inspect::SignalInfo;
use hindsight_packets::{Event, Signal};
use hindsight_timeline::{Reason, Stop, ThreadId};

impl Session {
    /// What gdb is told of a run that ends without a result.
    pub fn stopped(&self) -> Told {
        Told::signal(self.tid(self.inferior.cursor.thread()), Signal::INT)
    }

    pub(crate) fn trap(&self) -> Told {
        self.trap_of(self.inferior.cursor.thread())
    }

    pub(crate) fn trap_of(&self, thread: ThreadId) -> Told {
        Told::signal(self.tid(thread), Signal::TRAP)
    }

    /// A stop in gdb's words.
    pub(crate) fn tell(&mut self, stop: Stop) -> Result<Told> {
        let tid = self.tid(stop.thread);
        Ok(match stop.reason {
            Reason::Breakpoint { id, .. } => {
                let set = self.inferior.breaks.get(id as usize);
                let event = match set.is_some_and(|b| b.hardware) {
                    true => Event::HardwareBreakpoint,
                    false => Event::SoftwareBreakpoint,
                };
                Told::event(tid, event)
            }
            Reason::Watchpoint { id, .. } => {
                let w = self.inferior.watches.iter().find(|w| w.id == id);
                match w {
                    Some(w) => {
                        let (kind, address) = (kind(w.watch), w.address);
                        Told::event(tid, Event::Watchpoint { kind, address })
                    }
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
                Told::signal(tid, signal)
            }
            Reason::Syscall { number } => Told::event(tid, Event::SyscallEntry(number)),
            Reason::SyscallReturn { number, .. } => Told::event(tid, Event::SyscallReturn(number)),
            Reason::Cancelled => Told::signal(tid, Signal::INT),
            // The thread may have ended, and not its process.
            Reason::End => match self.replaced_by()? {
                Some(p) if self.is_over(stop.thread)? => self.enter(p.image, p.begin)?,
                _ => {
                    self.note_end(stop.thread)?;
                    Told::event(tid, Event::End)
                }
            },
            Reason::Begin => match self.replaces()? {
                Some(p) if stop.position <= self.present()?.begin => self.enter(p.image, p.end)?,
                _ => Told::event(tid, Event::Begin),
            },
            _ => self.trap(),
        })
    }
}
