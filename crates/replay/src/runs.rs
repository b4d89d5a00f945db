//! The log of what a machine executes, see [`hindsight_isa::runs`].

use crate::memory::Mapping;
use crate::{Error, Machine, Stop};
use hindsight_isa::runs::{self, BEFORE, SLOT, SLOTS};

/// Instructions that a thread executed one after the other. They stand in memory one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run(u64);

impl Run {
    /// A run of one instruction. `None`: its address has more than 48 bits.
    pub fn alone(pc: u64) -> Option<Run> {
        Run::of(pc, 1)
    }

    /// A run of so many instructions. `None`: there are none, or the address has more than 48 bits.
    pub fn of(pc: u64, instructions: u16) -> Option<Run> {
        runs::entry(pc, instructions).map(Run)
    }

    /// Address of the first one.
    pub fn pc(self) -> u64 {
        runs::run(self.0).0
    }

    /// How many there are, at least one.
    pub fn instructions(self) -> u64 {
        runs::run(self.0).1 as u64
    }

    /// A number that no other run of the same code has.
    pub fn id(self) -> u64 {
        self.0
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} from {:#x}", self.instructions(), self.pc())
    }
}

/// The slots of a log, in memory that translated code may reach around them.
pub(crate) struct RunLog {
    map: Mapping,
    /// The position to which the first slot belongs.
    from: u64,
}

/// Offset of the first slot.
const FIRST: usize = BEFORE as usize;

impl RunLog {
    pub fn new() -> Result<RunLog, Error> {
        // A counter that is wrong may lead one slot behind the last one.
        let behind = (SLOTS + 2) * SLOT;
        Ok(RunLog {
            map: Mapping::new(FIRST + behind as usize)?,
            from: 0,
        })
    }

    fn slots(&mut self) -> &mut [u64] {
        // SAFETY: the slots lie in the mapping, aligned, and nothing else refers to them: translated code does not run now.
        unsafe {
            let first = self.map.base().add(FIRST).cast();
            std::slice::from_raw_parts_mut(first, SLOTS as usize)
        }
    }

    /// Logs an instruction that is executed alone, outside of translated code.
    pub fn add(&mut self, position: u64, pc: u64) {
        let n = position.wrapping_sub(self.from) as usize;
        if let Some(slot) = self.slots().get_mut(n) {
            *slot = runs::entry(pc, 1).unwrap_or(0);
        }
    }

    /// The FS base for translated code that runs up to position `limit`. Whatever the positions are, stores stay in the mapping.
    #[inline(always)]
    pub fn fs_base(&self, limit: u64) -> u64 {
        let log = self.map.base() as u64 + BEFORE;
        runs::fs_base(log, limit.wrapping_sub(self.from).min(SLOTS))
    }

    /// What was executed before position `to`.
    fn take(&mut self, to: u64) -> Taken<'_> {
        let from = std::mem::replace(&mut self.from, to);
        let count = to.saturating_sub(from) as usize;
        let slots = self.slots();
        Taken {
            whole: count <= slots.len(),
            slots: slots.get_mut(..count).unwrap_or_default(),
            at: 0,
        }
    }
}

/// Reads a log, and empties its slots.
#[derive(Debug)]
pub struct Taken<'a> {
    slots: &'a mut [u64],
    at: usize,
    /// No instruction is missing so far.
    whole: bool,
}

impl Taken<'_> {
    /// One run.
    pub fn one(run: &mut Run) -> Taken<'_> {
        Taken {
            slots: std::slice::from_mut(&mut run.0),
            at: 0,
            whole: true,
        }
    }
}

impl Iterator for Taken<'_> {
    type Item = Run;

    #[inline(always)]
    fn next(&mut self) -> Option<Run> {
        let entry = std::mem::take(self.slots.get_mut(self.at)?);
        let len = runs::run(entry).1 as usize;
        self.at += len;
        if len == 0 || self.at > self.slots.len() {
            self.whole = false;
            self.slots = &mut [];
            return None;
        }
        Some(Run(entry))
    }
}

impl Machine<'_> {
    /// Copies known code bytes at `addr`, as of this epoch.
    pub fn code_in(&self, epoch: u64, addr: u64, buf: &mut [u8]) -> usize {
        self.cpu.code.fetch(addr, epoch, buf)
    }

    /// The epoch of code that counts now. It changes when the program changes code.
    pub fn epoch(&self) -> u64 {
        self.cpu.epoch
    }

    /// The pages (addresses) with code that differs between two epochs.
    pub fn changed_code(&self, from: u64, to: u64) -> Vec<u64> {
        self.cpu.code.changed(from, to).collect()
    }

    /// Plays on, at most to `position`, and shows what is executed, if that is anything. Ends early, with [`Stop::Position`]:
    /// behind a number of instructions, at both ends of a gap, and where other code counts from now on. All runs are of the code
    /// that counted before ([`Machine::epoch`]). Only for a machine that logs ([`Machine::logging`]).
    pub fn log_to(
        &mut self,
        position: u64,
        show: impl FnOnce(&Self, &mut Taken),
    ) -> Result<Stop, Error> {
        if self.gap {
            self.leave_gap(position)?;
            return Ok(match &self.end {
                Some(end) => Stop::Ended(end.clone()),
                None if self.gap && self.cpu.pos < position => Stop::OutOfEvents,
                None => Stop::Position,
            });
        }
        let begin = self.cpu.pos;
        match &mut self.cpu.log {
            Some(log) => log.from = begin,
            None => return Err(self.cpu.unsupported("this machine logs nothing")),
        }
        let stop = self.run_to(position.min(begin.saturating_add(SLOTS)))?;
        let Some(mut log) = self.cpu.log.take_if(|_| self.cpu.pos > begin) else {
            return Ok(stop);
        };
        let mut taken = log.take(self.cpu.pos);
        show(self, &mut taken);
        // What nobody took must not stay there.
        while taken.next().is_some() {}
        let whole = taken.whole;
        self.cpu.log = Some(log);
        match whole {
            true => Ok(stop),
            false => Err(self
                .cpu
                .unsupported("the log does not say what was executed before")),
        }
    }
}
