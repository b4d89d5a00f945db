//! What an instruction accesses. It is found by executing it.

use crate::Result;
use crate::play::Player;
use hindsight_replay::Stop as Halt;
use hindsight_replay::access::{Access, Finder};

/// What a thread accessed from one instant to the next: usually one instruction's accesses. A signal may interrupt a
/// string instruction. Then its accesses so far come first, and those of the handler's first instruction follow.
pub struct Done {
    finder: Finder,
    /// All accesses.
    pub list: Vec<Access>,
    /// How many of them belong to the interrupted instruction.
    early: usize,
    /// The addresses of the interrupted instruction and of the other one.
    pcs: [u64; 2],
    other: Vec<Access>,
}

impl Done {
    /// Nothing yet, for this player.
    pub fn new(player: &Player) -> Done {
        Done {
            finder: Finder::new(player.engine().model.saves),
            list: Vec::new(),
            early: 0,
            pcs: [0; 2],
            other: Vec::new(),
        }
    }

    /// Executes the player's next instruction and finds its accesses.
    ///
    /// - `Some(true)`: the instruction was recorded.
    /// - `Some(false)`: a gap began. The player is where recording goes on, or at `hi`.
    /// - `None`: the thread ends in it.
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

    /// The address of the instruction that made an access, by the access's index in the list.
    pub fn pc(&self, access: usize) -> u64 {
        self.pcs[(access >= self.early) as usize]
    }

    /// The address of the instruction that was not interrupted. A stop that is no access belongs to it.
    pub fn last_pc(&self) -> u64 {
        self.pcs[1]
    }
}
