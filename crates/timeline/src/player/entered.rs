//! Where the kernel has a thread go on somewhere else before its next instruction: in a signal's handler, or behind one.

use super::Player;
use crate::Result;
use crate::timeline::replay;

impl Player {
    /// Where the kernel has the thread go on somewhere else here (a signal's handler begins, or has ended), lets that take
    /// effect: registers and memory are then those of the instruction that comes next. Who goes to this place again finds
    /// it as it was before. Returns whether it does.
    pub fn enter(&mut self) -> Result<bool> {
        if (self.inner.scan(self.thread)?.entries(self.count()))
            .next()
            .is_none()
        {
            return Ok(false);
        }
        self.spoil();
        self.go_on()?;
        Ok(true)
    }

    /// The same for who is to stand there, as where a run stops before the instruction at `pc`.
    pub fn enter_at(&mut self, pc: u64) -> Result<()> {
        if self.registers().rip != pc
            && (self.inner.scan(self.thread)?.entries(self.count())).any(|e| e == pc)
        {
            self.go_on()?;
            self.settled = true;
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        let thread = self.thread;
        self.machine.settle().map_err(|e| replay(thread, e))
    }

    /// Whether that has taken effect, as it has where a run stops at such an instruction.
    pub fn has_entered(&self) -> Result<bool> {
        let rip = self.registers().rip;
        Ok((self.inner.scan(self.thread)?.entries(self.count())).any(|e| e == rip))
    }
}
