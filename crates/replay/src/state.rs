//! The state of a virtual processor between two instructions.

use crate::Lines;
use crate::queue::Bookmark;
use hindsight_isa::{CpuState, VecState};

/// Whether a position lies in a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    Outside,
    /// In a gap. Nothing is recorded there, and the state is that at the gap's beginning.
    Within,
    /// At the end of a gap, which has taken effect.
    Behind,
}

/// The state of a virtual processor between two instructions, without memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub position: u64,
    pub gap: Gap,
    /// The code epoch.
    pub epoch: u64,
    pub cpu: CpuState,
    pub vec: VecState,
}

/// A checkpoint of a machine: its state, memory, access marks, and place in its stream.
pub struct Checkpoint {
    pub state: State,
    pub(crate) bookmark: Bookmark,
    pub(crate) cells: Lines,
    /// The marks of reads and those of writes.
    pub(crate) marks: [Lines; 2],
}

impl Checkpoint {
    /// Number of chunks of the stream that were taken from its source.
    pub fn taken(&self) -> usize {
        self.bookmark.taken
    }

    /// About how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        let lines = self.marks.iter().chain([&self.cells]);
        lines.map(Lines::size).sum::<usize>() + self.bookmark.size() + size_of::<Checkpoint>()
    }
}
