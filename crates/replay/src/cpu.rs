//! The state of a virtual processor without its vector registers, which are where its instructions are executed
//! ([`crate::processor`]).

use crate::code::Code;
use crate::expression::{Look, Operand};
use crate::runs::RunLog;
use crate::window::{AccessKind, Window};
use crate::{Difference, Error};
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::{CpuState, Predictor, observe};
use std::sync::Arc;

/// What a processor notes of what it executes: access marks, and where, or which instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Observe {
    Not,
    Anywhere,
    /// See [`Window::observed_near`].
    Near,
    /// The instructions that it executes, see [`RunLog`].
    Runs,
}

impl Observe {
    /// Whether it sets access marks.
    pub fn marks(self) -> bool {
        matches!(self, Observe::Anywhere | Observe::Near)
    }
}

/// The state of a virtual processor.
pub(crate) struct Cpu {
    pub code: Arc<Code>,
    pub window: Window,
    pub rip: u64,
    pub pos: u64,
    pub epoch: u64,
    /// What the processor notes.
    pub marking: Observe,
    /// The log of what is executed, if that is noted.
    pub log: Option<RunLog>,
    /// Addresses of instructions before which to stop, ascending.
    breaks: Vec<u64>,
    /// Position and address of the instruction at which the run must not stop again.
    passed: Option<(u64, u64)>,
    /// Number of instructions that were run.
    pub executed: u64,
    /// The last run ended before an instruction that may write to watched memory.
    pub watched: bool,
    /// A run may end before its target if that costs less.
    pub near: bool,
    /// Something else than the instruction before led to `rip`, since this was taken last.
    jumped: bool,
}

impl Cpu {
    /// Makes the state of a processor that executes `code`. `marking` says what it notes.
    pub fn new(code: Arc<Code>, predictor: Predictor, marking: Observe) -> Result<Cpu, Error> {
        let window = match marking {
            Observe::Not | Observe::Runs => Window::new(predictor)?,
            Observe::Anywhere => Window::observed()?,
            Observe::Near => Window::observed_near()?,
        };
        Ok(Cpu {
            code,
            marking: match marking {
                // Another window may be near already.
                Observe::Near if !window.is_near() => Observe::Anywhere,
                m => m,
            },
            log: match marking {
                Observe::Runs => Some(RunLog::new()?),
                _ => None,
            },
            window,
            rip: 0,
            pos: 0,
            epoch: 0,
            breaks: Vec::new(),
            passed: None,
            executed: 0,
            watched: false,
            near: false,
            jumped: false,
        })
    }

    /// Addresses of instructions before which to stop, ascending.
    pub fn breaks(&self) -> &[u64] {
        &self.breaks
    }

    /// Stops before instructions at these addresses (ascending) from now on. Returns the addresses before.
    pub fn replace_breaks(&mut self, breaks: Vec<u64>) -> Vec<u64> {
        std::mem::replace(&mut self.breaks, breaks)
    }

    /// Whether the last run ended before an instruction that may write to watched memory.
    pub fn take_watched(&mut self) -> bool {
        std::mem::take(&mut self.watched)
    }

    /// Does not stop before the next instruction if it comes at this position.
    pub fn pass(&mut self) {
        self.passed = Some((self.pos, self.rip));
    }

    /// Undoes [`Cpu::pass`].
    pub fn look_again(&mut self) {
        self.passed = None;
    }

    /// Whether [`Cpu::pass`] was called here.
    #[inline(always)]
    pub fn has_passed(&self) -> bool {
        self.passed == Some((self.pos, self.rip))
    }

    /// Whether to stop before the next instruction.
    #[inline(always)]
    pub fn at_break(&self) -> bool {
        !self.breaks.is_empty() && !self.has_passed() && self.breaks_at(self.rip)
    }

    /// Whether to stop before the instruction at `pc`.
    pub fn breaks_at(&self, pc: u64) -> bool {
        self.breaks.binary_search(&pc).is_ok()
    }

    /// Copies the known code bytes at the current instruction. Returns their number, at least 1.
    pub fn fetch(&self, buf: &mut [u8]) -> Result<usize, Error> {
        match self.code.fetch(self.rip, self.epoch, buf) {
            0 => Err(self.missing_code()),
            n => Ok(n),
        }
    }

    pub fn missing_code(&self) -> Error {
        Error::MissingCode {
            position: self.pos,
            pc: self.rip,
        }
    }

    pub fn difference(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Difference(Box::new(Difference {
            position: self.pos,
            pc: self.rip,
            expected: expected.into(),
            found: found.into(),
            unread: false,
        }))
    }

    /// The same for memory that the program may never have read.
    pub fn unread(&self, expected: String, found: String) -> Error {
        Error::Difference(Box::new(Difference {
            position: self.pos,
            pc: self.rip,
            expected,
            found,
            unread: true,
        }))
    }

    pub fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::Unsupported {
            position: self.pos,
            pc: self.rip,
            what: what.into(),
        }
    }

    /// Sets access marks, if the processor sets any.
    pub fn mark(&mut self, kind: AccessKind, addr: u64, len: usize) {
        if self.window.has_marks() {
            self.window.set_marks(kind, addr, len as u64, observe::MARK);
        }
    }

    /// The general purpose registers.
    pub fn registers(&self) -> CpuState {
        let c = self.window.ctx();
        CpuState {
            gpr: c.gpr,
            rip: self.rip,
            rflags: c.rflags & RFLAGS_MASK,
            fs_base: c.fs_base,
            gs_base: c.gs_base,
        }
    }

    /// Continues with these registers.
    pub fn set_registers(&mut self, s: &CpuState) {
        let c = self.window.ctx_mut();
        c.gpr = s.gpr;
        c.rflags = s.rflags & RFLAGS_MASK;
        c.fs_base = s.fs_base;
        c.gs_base = s.gs_base;
        self.jump(s.rip);
    }

    /// Continues at `rip`.
    pub fn jump(&mut self, rip: u64) {
        self.rip = rip;
        self.jumped = true;
    }

    /// Whether something else than the instruction before led to `rip`, since the last call.
    #[inline(always)]
    pub fn take_jumped(&mut self) -> bool {
        std::mem::take(&mut self.jumped)
    }

    /// Completes the current instruction, which has `len` bytes. Translated code did not begin with it.
    pub fn complete_alone(&mut self, len: u64) {
        if let Some(log) = &mut self.log {
            log.add(self.pos, self.rip);
        }
        self.complete(len);
    }

    /// Completes the current instruction, which has `len` bytes.
    pub fn complete(&mut self, len: u64) {
        self.pos += 1;
        self.executed += 1;
        self.jump(self.rip.wrapping_add(len));
    }
}

impl Look for &Cpu {
    fn register(&self, operand: Operand) -> u64 {
        let c = self.window.ctx();
        match operand {
            Operand::General(n) => c.gpr[n as usize & 15],
            Operand::Rip => self.rip,
            Operand::Flags => c.rflags & RFLAGS_MASK,
            Operand::FsBase => c.fs_base,
            Operand::GsBase => c.gs_base,
        }
    }

    fn read(&mut self, address: u64, buf: &mut [u8]) -> bool {
        if !self.window.has_marks() || buf.len() > 8 {
            return false;
        }
        let mut marks = [[0; 8]; 2];
        for (kind, marks) in [AccessKind::Reads, AccessKind::Writes]
            .into_iter()
            .zip(&mut marks)
        {
            self.window.marks(kind, address, &mut marks[..buf.len()]);
        }
        self.window.read(address, buf);
        (0..buf.len()).all(|i| marks.iter().any(|m| m[i] == observe::MARK))
    }
}
