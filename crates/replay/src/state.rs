//! What a virtual processor is between two instructions.

use crate::Lines;
use crate::queue::Bookmark;
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

/// A place to which a machine can come back: its state, its memory, its marks, and where in its stream it is.
pub struct Snapshot {
    pub state: State,
    pub(crate) bookmark: Bookmark,
    pub(crate) cells: Lines,
    /// Of reads and of writes.
    pub(crate) marks: [Lines; 2],
}

impl Snapshot {
    /// Chunks of the stream that had been taken from its source.
    pub fn taken(&self) -> usize {
        self.bookmark.taken
    }

    /// Bytes of memory that it takes, about.
    pub fn size(&self) -> usize {
        let lines = self.marks.iter().chain([&self.cells]);
        lines.map(Lines::size).sum::<usize>() + self.bookmark.size() + size_of::<Snapshot>()
    }
}
