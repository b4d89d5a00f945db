//! What a window asks of where its cells and marks are.

use crate::Error;
use crate::lines::Lines;
use crate::memory::MemoryFile;
use hindsight_isa::{Ctx, Predictor};
use std::ops::Range;

pub const PAGE: u64 = 4096;
pub const PAGE_LEN: usize = PAGE as usize;

/// Which accesses are marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    Reads,
    Writes,
}

/// Lines of a page of cells whose marks are in the same page of memory.
pub(crate) struct MarkPage {
    pub page: u32,
    pub lines: Range<usize>,
    /// Number of the page of memory, counted from the first page of marks.
    pub host: u32,
}

impl MarkPage {
    /// The cells of these lines.
    pub fn cells(&self) -> Range<u64> {
        let first = self.page as u64 * PAGE;
        first + 64 * self.lines.start as u64..first + 64 * self.lines.end as u64
    }
}

/// Where the cells of a window are, and its context block. Addresses are taken modulo the number of cells. Methods of the same name
/// in [`super::shared::WindowOf`] say more.
pub(crate) trait Cells: Sized {
    /// Cells that are zero, without marks.
    fn new(predictor: Predictor) -> Result<Self, Error>;

    /// 2^32 cells that are zero, with marks.
    fn observed() -> Result<Self, Error>;

    fn predictor(&self) -> Predictor;

    fn has_marks(&self) -> bool;

    fn ctx(&self) -> &Ctx;

    fn ctx_mut(&mut self) -> &mut Ctx;

    /// The `N` cells from `addr` on.
    fn get<const N: usize>(&self, addr: u64) -> [u8; N];

    /// Writes `N` cells from `addr` on.
    fn set<const N: usize>(&mut self, addr: u64, bytes: [u8; N]);

    /// Makes the pages with the cells of `addr` on ready to be read many times.
    fn touch(&mut self, addr: u64, len: usize);

    fn read(&self, addr: u64, buf: &mut [u8]);

    fn write(&mut self, addr: u64, buf: &[u8]);

    /// Zeroes all cells. Nothing lies over them any more.
    fn clear(&mut self) -> Result<(), Error>;

    /// Zeroes the cells with these offsets.
    fn zero_cells(&mut self, start: u64, end: u64) -> Result<(), Error>;

    fn pages(&self) -> Result<Vec<u32>, Error>;

    fn own(&self) -> Result<Vec<u32>, Error>;

    fn lay_pages(
        &mut self,
        page: u32,
        count: usize,
        file: &MemoryFile,
        at: usize,
    ) -> Result<(), Error>;

    fn lay_later(&mut self, runs: Vec<Range<u32>>, lines: &Lines) -> Result<(), Error>;

    fn laid_pages(&self) -> Vec<Range<u32>>;

    fn page(&self, page: u32) -> &[u8; PAGE_LEN];

    fn page_mut(&mut self, page: u32) -> &mut [u8; PAGE_LEN];

    /// Whether a page that was needed is more than there may be.
    fn is_full(&self) -> bool;
}

/// Where the access marks of a window are. Apart from `give_word` and `give_bytes`, only for a window that has marks.
pub(crate) trait Marks: Cells {
    /// Takes a word from the recording.
    fn give_word(&mut self, addr: u64, value: u64);

    /// Takes the low `len` (at most 8) bytes of a word from the recording.
    fn give_bytes(&mut self, addr: u64, len: u8, value: u64);

    /// Notes that the cells with these offsets may no longer hold what the program has there.
    fn forget_cells(&mut self, kind: AccessKind, start: u64, end: u64) -> Result<(), Error>;

    /// Replaces the marks of the cells from `addr` on.
    fn write_marks(&mut self, kind: AccessKind, addr: u64, new: &[u8]);

    /// The parts of these pages of cells (ascending).
    fn parts_of(&self, kind: AccessKind, pages: &[u32]) -> Vec<MarkPage>;

    /// The parts that may have marks of the cells with these offsets, ascending. May include one page more on each side.
    fn parts_between(&self, kind: AccessKind, start: u64, end: u64)
    -> Result<Vec<MarkPage>, Error>;

    /// The lines of marks of a part, for changes.
    fn part_mut(&mut self, kind: AccessKind, part: &MarkPage) -> &mut [[u8; 64]];

    /// The lines of marks of a part.
    fn part(&self, kind: AccessKind, part: &MarkPage) -> &[[u8; 64]];

    /// Moves marks in the slack, which is behind the marks of all cells, to the cells that they belong to.
    fn fold_slack(&mut self, kind: AccessKind) -> Result<(), Error>;

    /// Copies the marks of the cells from `addr` on.
    fn marks(&self, kind: AccessKind, addr: u64, buf: &mut [u8]);

    /// Marks the `len` cells from `addr` on with `mark`.
    fn set_marks(&mut self, kind: AccessKind, addr: u64, len: u64, mark: u8);

    /// Marks cells as written with an unknown value.
    fn unknown(&mut self, addr: u64, len: u64);

    /// Releases pages of marks (ascending, see [`MarkPage::host`]) that are all zero.
    fn give_back(&mut self, kind: AccessKind, hosts: &[u32]) -> Result<(), Error>;

    /// Removes all marks.
    fn clear_marks(&mut self) -> Result<(), Error>;

    /// Sets a mark in the slack.
    #[cfg(test)]
    fn set_slack(&mut self, kind: AccessKind, at: u64);
}
