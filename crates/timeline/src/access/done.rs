//! What an instruction does to memory, found by letting it run.

use crate::Result;
use crate::play::Player;
use hindsight_replay::Stop as Halt;
use hindsight_replay::access::{Access, Finder};

/// What a thread did to memory from one instant to the next: usually one instruction's accesses. Where a string
/// instruction is interrupted by a signal, those that it had made come first, and then those of the handler's first
/// instruction.
#[derive(Default)]
pub struct Done {
    finder: Finder,
    /// All accesses.
    pub list: Vec<Access>,
    /// How many of them are of an instruction that was interrupted.
    early: usize,
    /// The addresses of that one, and of the other.
    pcs: [u64; 2],
    other: Vec<Access>,
}

impl Done {
    /// Lets the player's next instruction run and finds what that does: whether it was one that is recorded; if not,
    /// the player goes to where it is again, at most to `hi`. `None`: the thread ends in it.
    pub fn step(&mut self, player: &mut Player, hi: u64) -> Result<Option<bool>> {
        let mut code = [0; 15];
        self.list.clear();
        if let Some((before, behind)) = player.begin_string()? {
            let n = player.code(before.rip, &mut code);
            let vec = player.vectors();
            let held = |at: u64, buf: &mut [u8]| player.cells(at, buf);
            let (code, state) = (&code[..n], (&before, &vec));
            (self.finder).find_in(code, state, &behind, &held, &mut self.list);
            self.pcs[0] = before.rip;
        }
        self.early = self.list.len();
        player.enter()?;
        let (cpu, vec) = (player.registers(), player.vectors());
        self.pcs[1] = cpu.rip;
        let n = player.code(cpu.rip, &mut code);
        let skipped = player.skipped();
        let is_done = player.run(player.count() + 1)? == Halt::Position;
        if is_done && player.skipped() != skipped {
            // What runs in a gap is not known.
            player.leave_gap(hi)?;
            return Ok(Some(false));
        }
        let held = |at: u64, buf: &mut [u8]| player.cells(at, buf);
        let (code, state) = (&code[..n], (&cpu, &vec));
        (self.finder).find_in(code, state, &player.registers(), &held, &mut self.other);
        self.list.append(&mut self.other);
        Ok(is_done.then_some(true))
    }

    /// The address of the instruction that made an access, by its place in the list.
    pub fn pc(&self, access: usize) -> u64 {
        self.pcs[(access >= self.early) as usize]
    }

    /// The same for an instruction that stops for something else: the one that was not interrupted.
    pub fn last_pc(&self) -> u64 {
        self.pcs[1]
    }
}
