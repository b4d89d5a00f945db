//! Reads, writes and runs in the side branch, or beside it.

use crate::state::action::Action;
use crate::state::arch::State;
use crate::state::session::Session;
use crate::state::side::Side;
use crate::state::told::Told;
use crate::{Error, Result};
use hindsight_packets::{Event, Signal, Tid};
use hindsight_timeline::{At, Branch, Halted, Memory};
use std::time::{Duration, Instant};

/// After an interrupt of a read, gdb at once tries to read the same and less. Only then it sees the interrupt. So reads
/// within this time of one another belong together.
const REPEATED: Duration = Duration::from_millis(100);

impl Session {
    /// The bytes from an address on, as far as they are known.
    pub fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        self.read_by(address, len, |_, known| Ok(known.prefix()))
    }

    /// The same for the client: what is not known is completed with what is carried, if the user wants that.
    pub fn read_completed(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        self.read_by(address, len, |session, known| session.completed(&known))
    }

    fn read_by(
        &mut self,
        address: u64,
        len: usize,
        bytes: impl FnOnce(&mut Session, Memory) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        Ok(match &mut self.inferior.side {
            Some(side) => side.branch.read(address, len)?,
            None => {
                if self.interrupted.is_some_and(|at| at.elapsed() < REPEATED) {
                    self.interrupted = Some(Instant::now());
                    return Err(hindsight_timeline::Error::Cancelled.into());
                }
                let cancel = self.cancel.clone();
                let cursor = &mut self.inferior.cursor;
                let known = cursor.cancellable(&cancel, |c| c.known_memory(address, len));
                let found = known.map_err(Error::from);
                let found = found.and_then(|m| bytes(self, m));
                let cancelled = matches!(
                    found,
                    Err(Error::Timeline(hindsight_timeline::Error::Cancelled))
                );
                self.interrupted = cancelled.then(Instant::now);
                found?
            }
        })
    }

    /// Changes memory in the side branch; `false` if the program could not write there.
    pub fn write(&mut self, tid: Tid, address: u64, bytes: &[u8]) -> Result<bool> {
        Ok(self.aside(tid)?.branch.write(address, bytes)?)
    }

    /// Changes registers in the side branch.
    pub fn set_registers(&mut self, tid: Tid, new: &State) -> Result<()> {
        if *new == self.registers(tid)? {
            return Ok(());
        }
        Ok(self.aside(tid)?.branch.set_registers(&new.cpu, &new.vec)?)
    }

    /// The side branch, which begins here if there is none.
    fn aside(&mut self, tid: Tid) -> Result<&mut Side> {
        if let Some(side) = &self.inferior.side
            && side.tid != tid
        {
            return Err(Error::NoThread(tid.get()));
        }
        if self.inferior.side.is_none() {
            let begin = self.registers(tid)?;
            self.switch(tid)?;
            let branch = Branch::new(&mut self.inferior.cursor)?;
            self.inferior.side = Some(Side { tid, branch, begin });
        }
        self.inferior
            .side
            .as_mut()
            .ok_or(Error::NoThread(tid.get()))
    }

    /// Ends the side branch, and says so.
    pub fn leave_side(&mut self) -> Result<()> {
        if self.inferior.side.take().is_some() {
            self.notes.push(format!(
                "[the side branch is thrown away; the recording goes on from {}]",
                self.inferior.cursor.position()?
            ));
        }
        Ok(())
    }

    /// Runs in the side branch, if the user or the branch has changed registers. `None`: the recording goes on instead.
    pub fn go_aside(&mut self) -> Result<Option<Told>> {
        let back = matches!(
            self.action,
            Action::ReverseStep(_) | Action::ReverseContinue
        );
        let Some(side) = self
            .inferior
            .side
            .as_mut()
            .filter(|s| !back && s.elsewhere())
        else {
            return Ok(None);
        };
        let breaks: Vec<u64> = self.inferior.breaks.iter().map(|b| b.address).collect();
        let all = &self.inferior.breaks;
        let mut stop = |branch: &mut Branch| {
            let pc = branch.registers().rip;
            all.iter().filter(|b| b.address == pc).any(|b| {
                let condition = b.condition.as_ref();
                condition.is_none_or(|c| c.holds(&mut At(branch)))
            })
        };
        let step = self.action != Action::Continue;
        let halted = side.branch.run(step, &breaks, &mut stop, &self.cancel)?;
        let tid = side.tid;
        let signal = |signal| Told::signal(tid, signal);
        Ok(Some(match halted {
            Halted::Step => signal(Signal::TRAP),
            Halted::Break => Told::event(tid, Event::SoftwareBreakpoint),
            Halted::Cancelled => signal(Signal::INT),
            Halted::Stuck(why) => {
                self.notes.push(format!("[the side branch ends: {why}]"));
                signal(Signal::SYS)
            }
        }))
    }
}
