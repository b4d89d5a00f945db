//! Where the kernel has a thread go on somewhere else before its next instruction: in a signal's handler, or behind one.
//! A string instruction may have done a part of its work there before.

use super::Player;
use crate::Result;
use crate::model::error::replay;
use hindsight_isa::CpuState;

impl Player {
    /// Where the kernel has the thread go on somewhere else here (a signal's handler begins, or has ended), lets that take
    /// effect: registers and memory are then those of the instruction that comes next. Who goes to this place again finds
    /// it as it was before. Returns whether it does.
    pub fn enter(&mut self) -> Result<bool> {
        if (self.engine.scan(self.thread)?.entries(self.count()))
            .next()
            .is_none()
        {
            return Ok(false);
        }
        self.spoil();
        self.interrupt()?;
        self.settle_all()?;
        Ok(true)
    }

    /// The same for who is to stand there, as where a run stops before the instruction at `pc`.
    pub fn enter_at(&mut self, pc: u64) -> Result<()> {
        if self.registers().rip != pc
            && (self.engine.scan(self.thread)?.entries(self.count())).any(|e| e == pc)
        {
            self.interrupt()?;
            self.settle_all()?;
            self.settled = true;
        }
        Ok(())
    }

    /// Where a string instruction is interrupted here, lets it do what it does before: registers before and behind that.
    /// What interrupts it comes next, and [`Player::enter`] leads there.
    pub fn begin_string(&mut self) -> Result<Option<(CpuState, CpuState)>> {
        let done = self.interrupt()?;
        if done.is_some() {
            self.spoil();
        }
        Ok(done)
    }

    fn interrupt(&mut self) -> Result<Option<(CpuState, CpuState)>> {
        let (thread, count) = (self.thread, self.count());
        if !self.engine.scan(thread)?.interrupts(count) {
            return Ok(None);
        }
        // It may go on here behind a handler.
        self.settle_all()?;
        let before = self.registers();
        let begun = self.machine.begin_string();
        let begun = begun.map_err(|e| replay(thread, e))?;
        Ok(begun.then(|| (before, self.registers())))
    }

    /// Whether a string instruction that is interrupted here has done what it does before: the player stands in what
    /// interrupts it.
    pub fn has_begun(&self) -> Result<bool> {
        let interrupts = self.engine.scan(self.thread)?.interrupts(self.count());
        Ok(interrupts && self.has_entered()?)
    }

    fn settle_all(&mut self) -> Result<()> {
        // What takes effect here belongs to the step that begins here.
        if let Some(at) = self.at {
            self.cross_step(at)?;
        }
        let thread = self.thread;
        self.machine.settle().map_err(|e| replay(thread, e))
    }

    /// Who goes to this place and stands there already, where a run stopped before the first instruction of a signal's
    /// handler, has to go there again.
    pub fn leave_entered(&mut self, count: u64) -> Result<()> {
        if self.count() == count && self.has_entered()? {
            self.spoil();
        }
        Ok(())
    }

    /// Whether that has taken effect, as it has where a run stops at such an instruction.
    pub fn has_entered(&self) -> Result<bool> {
        let rip = self.registers().rip;
        Ok((self.engine.scan(self.thread)?.entries(self.count())).any(|e| e == rip))
    }
}
