//! What a virtual processor is between two instructions.

use hindsight_isa::{CpuState, VecState};

/// Where a position lies as to gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    Outside,
    /// In one: nothing is recorded there, and the rest is as it was at the gap's beginning.
    Within,
    /// At the end of one, which has taken effect.
    Behind,
}

/// What a virtual processor is between two instructions, without its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub position: u64,
    pub gap: Gap,
    /// As of when its code is.
    pub epoch: u64,
    pub cpu: CpuState,
    pub vec: VecState,
}
