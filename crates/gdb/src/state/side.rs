//! What the user writes, and functions that the debugger calls: a branch beside the recording, from
//! the present place on, that is thrown away.

use crate::state::arch::State;
use hindsight_packets::Tid;
use hindsight_timeline::Branch;

/// A side branch.
pub struct Side {
    /// The thread that it began with.
    pub tid: Tid,
    pub branch: Branch,
    /// The recorded registers.
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
