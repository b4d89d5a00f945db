//! What all windows have, wherever their cells are.

use super::store::{Marks, PAGE_LEN};
use crate::Error;
use crate::lines::{Dirty, Lines};
use crate::memory::MemoryFile;
use hindsight_isa::ctx::table;
use hindsight_isa::{Ctx, Predictor};
use std::collections::HashSet;
use std::ops::Range;

/// A window whose cells are in a `C`.
pub struct WindowOf<C> {
    pub(crate) store: C,
    /// The window held content that could not be made. See [`WindowOf::is_bad`].
    pub(crate) was_bad: bool,
    /// In a window with marks: where cells or marks may be nonzero.
    pub(crate) dirty: Dirty,
    /// What lies over the cells without a copy. It then may differ only where the window has pages of its own.
    pub(crate) laid: Option<Lines>,
    /// Pages of cells that were used since all were released, as far as `dirty` knows.
    pub(crate) in_use: HashSet<u32>,
}

impl<C: Marks> WindowOf<C> {
    pub fn new(predictor: Predictor) -> Result<Self, Error> {
        Ok(Self::of(C::new(predictor)?))
    }

    /// Makes a window of 2^32 cells with marks.
    pub fn observed() -> Result<Self, Error> {
        Ok(Self::of(C::observed()?))
    }

    fn of(store: C) -> Self {
        let mut w = WindowOf {
            store,
            was_bad: false,
            dirty: Dirty::Any,
            laid: None,
            in_use: HashSet::new(),
        };
        let size = w.size();
        w.ctx_mut().ibl[table::CHECKED].begin();
        w.ctx_mut().cell_mask = size - 1;
        w
    }

    /// Number of cells.
    pub(super) fn size(&self) -> u64 {
        self.store.predictor().size()
    }

    pub fn ctx(&self) -> &Ctx {
        self.store.ctx()
    }

    pub fn ctx_mut(&mut self) -> &mut Ctx {
        self.store.ctx_mut()
    }

    /// Makes the pages with the cells of `addr` on ready to be read many times.
    #[inline(always)]
    pub fn touch(&mut self, addr: u64, len: usize) {
        self.store.touch(addr, len);
    }

    /// The `N` cells from `addr` on.
    #[inline(always)]
    pub fn cells<const N: usize>(&self, addr: u64) -> [u8; N] {
        self.store.get(addr)
    }

    /// Writes `N` cells from `addr` on.
    #[inline(always)]
    pub fn set_cells<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        self.store.set(addr, bytes);
    }

    /// Copies the cells from `addr` on.
    pub fn read(&self, addr: u64, buf: &mut [u8]) {
        self.store.read(addr, buf);
    }

    /// Writes to the cells from `addr` on.
    pub fn write(&mut self, addr: u64, buf: &[u8]) {
        self.store.write(addr, buf);
    }

    /// The same for a change that no played instruction makes.
    pub fn write_from_outside(&mut self, addr: u64, buf: &[u8]) {
        self.dirty.add(addr, buf.len() as u64);
        self.write(addr, buf);
    }

    /// Zeroes all cells.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.dirty = Dirty::Any;
        self.store.clear()?;
        self.was_bad = self.is_bad();
        self.laid = None;
        Ok(())
    }

    /// Zeroes the cells of an address range.
    pub fn zero(&mut self, addr: u64, len: u64) -> Result<(), Error> {
        let size = self.size();
        if len >= size {
            return self.clear();
        }
        let start = self.store.predictor().cell(addr);
        let end = start + len;
        self.store.zero_cells(start, end.min(size))?;
        self.store.zero_cells(0, end.saturating_sub(size))
    }

    /// Numbers of the pages of cells that are in memory, ascending.
    pub fn pages(&self) -> Result<Vec<u32>, Error> {
        self.store.pages()
    }

    /// Numbers of the pages of cells that are not those of a file that lies over them, ascending.
    pub(crate) fn own(&self) -> Result<Vec<u32>, Error> {
        self.store.own()
    }

    /// Lays pages of a file over those from `page` on, which is not the first one.
    pub(crate) fn lay_pages(
        &mut self,
        page: u32,
        count: usize,
        file: &MemoryFile,
        at: usize,
    ) -> Result<(), Error> {
        self.store.lay_pages(page, count, file, at)
    }

    /// Lets pages get their content when they are touched: `runs` ascend, and do not have the first page. They then hold what
    /// `lines` has.
    pub(crate) fn lay_later(&mut self, runs: Vec<Range<u32>>, lines: &Lines) -> Result<(), Error> {
        self.store.lay_later(runs, lines)
    }

    /// The pages over which a file lies, ascending, or that are made when they are touched.
    pub(crate) fn laid_pages(&self) -> Vec<Range<u32>> {
        self.store.laid_pages()
    }

    /// The cells of a page.
    pub(crate) fn page(&self, page: u32) -> &[u8; PAGE_LEN] {
        self.store.page(page)
    }

    /// The cells of a page, for changes.
    pub(crate) fn page_mut(&mut self, page: u32) -> &mut [u8; PAGE_LEN] {
        self.store.page_mut(page)
    }

    /// Whether the window needed more memory than it may have. What it holds is then wrong.
    pub(crate) fn is_full(&self) -> bool {
        self.store.is_full()
    }
}
