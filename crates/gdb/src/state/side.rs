//! The side branch: what the user writes, and functions that the debugger calls. It begins at the present instant, and
//! is thrown away.

use crate::state::arch::State;
use hindsight_packets::Tid;
use hindsight_timeline::Branch;

/// A side branch.
pub struct Side {
    /// The thread that runs in it.
    pub tid: Tid,
    pub branch: Branch,
    /// The recorded registers where it begins.
    pub begin: State,
}

impl Side {
    /// Its registers.
    pub fn state(&self) -> State {
        State {
            cpu: self.branch.registers(),
            vec: Box::new(self.branch.vectors()),
            ..State::default()
        }
    }

    /// Whether its registers are no longer those of the recording.
    pub fn elsewhere(&self) -> bool {
        let (a, b) = (self.state(), &self.begin);
        let comparable = |s: &State| s.cpu.comparable();
        comparable(&a) != comparable(b) || a.vec != b.vec
    }
}
