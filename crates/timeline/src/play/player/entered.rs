//! Instants at which the kernel lets a thread go on elsewhere: at the beginning of a signal's handler, or after it
//! ended. A string instruction may have done a part of its work there before.

use super::Player;
use crate::Result;
use crate::model::error::replay;
use hindsight_isa::CpuState;

impl Player {
    /// If the kernel lets the thread go on elsewhere at this instant, lets that take effect. Registers and memory are
    /// then those of the instruction that comes next. A later seek to this instant finds it as it was before. Returns
    /// whether there was something to do.
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

    /// Like [`Player::enter`], for a player that is to stay there: a run stopped before the instruction at `pc`.
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

    /// If a string instruction is interrupted at this instant, lets it do its part of the work. Returns the registers
    /// before and after that. The signal comes next; [`Player::enter`] leads into its handler.
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
        // The string instruction may go on here after a handler.
        self.settle_all()?;
        let before = self.registers();
        let begun = self.machine.begin_string();
        let begun = begun.map_err(|e| replay(thread, e))?;
        Ok(begun.then(|| (before, self.registers())))
    }

    /// Whether a string instruction that is interrupted here has done its part of the work. The player then stands in
    /// the handler.
    pub fn has_begun(&self) -> Result<bool> {
        let interrupts = self.engine.scan(self.thread)?.interrupts(self.count());
        Ok(interrupts && self.has_entered()?)
    }

    /// Lets everything take effect that is due at this instant, up to the values that the next instruction reads. A later
    /// seek to this instant finds it as it was before.
    pub fn settle_next(&mut self) -> Result<()> {
        self.spoil();
        self.settle_all()
    }

    fn settle_all(&mut self) -> Result<()> {
        // What takes effect here belongs to the step that begins here.
        if let Some(at) = self.at {
            self.cross_step(at)?;
        }
        let thread = self.thread;
        self.machine.settle().map_err(|e| replay(thread, e))
    }

    /// Called before a seek to the present instant. If a run stopped before a handler's first instruction, the player
    /// must go there again.
    pub fn leave_entered(&mut self, count: u64) -> Result<()> {
        if self.count() == count && self.has_entered()? {
            self.spoil();
        }
        Ok(())
    }

    /// Whether the player stands where the kernel let the thread go on, as after a run that stops there.
    pub fn has_entered(&self) -> Result<bool> {
        let rip = self.registers().rip;
        Ok((self.engine.scan(self.thread)?.entries(self.count())).any(|e| e == rip))
    }
}
