//! The memory of a virtual processor: the context block and the cells of the shadow memory.

mod later;
mod marking;

use crate::Error;
use crate::lines::{Dirty, Lines};
use crate::memory::{Mapping, MemoryFile};
use hindsight_isa::ctx::{CTX_SIZE, table};
use hindsight_isa::predictor::ALIAS;
use hindsight_isa::{Ctx, Predictor, observe};
pub(crate) use later::touched;
use later::{Known, Region};
use std::collections::HashSet;
use std::ops::Range;

const PAGE: u64 = 4096;
/// Inaccessible bytes behind the alias page. An access that begins in the window cannot reach beyond them.
const GUARD: usize = 64 << 10;

/// Bytes before the context block in a window with marks: the marks of writes, and the distance to them.
const FRONT: usize = -AccessKind::Writes.begin() as usize - CTX_SIZE;
/// Bytes from the first cell to the end of the marks of reads.
const REAR: usize = AccessKind::Reads.begin() as usize + AccessKind::LEN;

/// In this order: context block, cells, a second mapping of the first page of cells, and a guard. A window
/// with marks has the marks of writes before these and the marks of reads behind them.
pub struct Window {
    /// Pages of cells that are made when they are touched.
    later: Option<Known>,
    /// The window held content that could not be made. See [`Window::is_bad`].
    pub(crate) was_bad: bool,
    map: Mapping,
    /// Offset of the context block in the mapping.
    at: usize,
    /// The marks of writes, if they are at [`observe::NEAR`] instead.
    near: Option<Mapping>,
    predictor: Predictor,
    /// In a window with marks: where cells or marks may be nonzero.
    pub(crate) dirty: Dirty,
    /// What lies over the cells without a copy. It then may differ only where the window has pages of its own.
    pub(crate) laid: Option<Lines>,
    /// Pages of cells that were used since all were released, as far as `dirty` knows.
    pub(crate) in_use: HashSet<u32>,
}

/// Which accesses are marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    Reads,
    Writes,
}

/// Lines of a page of cells whose marks are in the same page of memory.
pub(crate) struct MarkPage {
    pub page: u32,
    pub lines: std::ops::Range<usize>,
    /// Number of the page of memory, counted from the first page of marks.
    pub host: u32,
}

impl MarkPage {
    /// The cells of these lines.
    fn cells(&self) -> std::ops::Range<u64> {
        let first = self.page as u64 * PAGE;
        first + 64 * self.lines.start as u64..first + 64 * self.lines.end as u64
    }
}

impl AccessKind {
    /// Offset of the marks from the first cell.
    const fn offset(self) -> i64 {
        match self {
            AccessKind::Reads => observe::READS,
            AccessKind::Writes => observe::WRITES,
        }
    }

    /// Offset of the marks' first page. The marks begin in the middle of that page.
    const fn begin(self) -> i64 {
        self.offset() - self.offset().rem_euclid(PAGE as i64)
    }

    /// How many lines of a page of cells have their marks in the page of marks with the same number. The
    /// other lines have them in the next page.
    const fn own_lines(self) -> usize {
        (PAGE as i64 - self.offset().rem_euclid(PAGE as i64)) as usize / 64
    }

    /// Bytes of the pages of marks.
    const LEN: usize = (4 << 30) + PAGE as usize;
}

impl Window {
    pub fn new(predictor: Predictor) -> Result<Window, Error> {
        let size = predictor.size() as usize;
        let mut map = Mapping::new(CTX_SIZE + size + ALIAS + GUARD)?;
        map.protect(CTX_SIZE + size + ALIAS, GUARD)?;
        map.alias(CTX_SIZE, CTX_SIZE + size, ALIAS)?;
        Window::begin(map, 0, predictor)
    }

    /// Like [`Window::observed`]. If no other window of the process does it, writes are marked at
    /// [`observe::NEAR`], which takes less code.
    pub fn observed_near() -> Result<Window, Error> {
        let mut w = Window::observed()?;
        let begin = observe::NEAR as usize / PAGE as usize * PAGE as usize;
        w.near = Mapping::at(begin, AccessKind::LEN);
        if let Some(near) = &mut w.near {
            near.small_pages();
        }
        Ok(w)
    }

    /// Asks the kernel for large pages. That is of use where the program has much memory: cells and marks then cause few
    /// page faults. All pages of a large one look accessed, so marks are looked for in all of them.
    pub fn large_pages(&mut self) {
        self.map.large_pages();
        if let Some(near) = &mut self.near {
            near.large_pages();
        }
    }

    /// Whether the marks of writes are at [`observe::NEAR`].
    pub fn is_near(&self) -> bool {
        self.near.is_some()
    }

    /// Makes a window of 2^32 cells with marks.
    pub fn observed() -> Result<Window, Error> {
        let predictor = Predictor::WINDOW;
        let size = predictor.size() as usize;
        let first = FRONT + CTX_SIZE;
        let mut map = Mapping::new(first + REAR)?;
        // With large pages, everything would look accessed.
        map.small_pages();
        map.protect(first + size + ALIAS, GUARD)?;
        map.alias(first, first + size, ALIAS)?;
        Window::begin(map, FRONT, predictor)
    }

    fn begin(map: Mapping, at: usize, predictor: Predictor) -> Result<Window, Error> {
        let mut w = Window {
            later: None,
            was_bad: false,
            map,
            at,
            near: None,
            predictor,
            dirty: Dirty::Any,
            laid: None,
            in_use: HashSet::new(),
        };
        w.ctx_mut().ibl[table::CHECKED].begin();
        w.ctx_mut().cell_mask = predictor.size() - 1;
        Ok(w)
    }

    /// Address of the first cell, from which the GS base is computed.
    pub fn base(&self) -> u64 {
        self.map.base() as u64 + (self.at + CTX_SIZE) as u64
    }

    /// The FS base for code that sets marks.
    pub fn read_marks_base(&self) -> u64 {
        let offset = AccessKind::Reads.offset() - observe::APART as i64;
        self.base().wrapping_add(offset as u64)
    }

    pub fn ctx_ptr(&self) -> *mut Ctx {
        // SAFETY: the context block lies in the mapping.
        unsafe { self.map.base().add(self.at).cast() }
    }

    pub fn ctx(&self) -> &Ctx {
        // SAFETY: the mapping has CTX_SIZE bytes there, and any content is valid. Translated code runs only
        // while no reference exists.
        unsafe { &*self.ctx_ptr() }
    }

    pub fn ctx_mut(&mut self) -> &mut Ctx {
        // SAFETY: as in `ctx`.
        unsafe { &mut *self.ctx_ptr() }
    }

    /// Pointer to the cell of `addr`. At least 4096 bytes from there are cells. The first `len` of them can be accessed.
    #[inline(always)]
    fn cells_at(&self, addr: u64, len: usize) -> *mut u8 {
        self.need(addr, len);
        self.cell(addr)
    }

    /// Makes the pages with the cells of `addr` on, if they are to be made when they are touched.
    #[inline(always)]
    pub(crate) fn need(&self, addr: u64, len: usize) {
        if let Some(later) = &self.later {
            later.need(self.predictor.cell(addr), len as u64);
        }
    }

    /// The same, where an access may be the first one to its page: a thread that is prepared to run translated code then gets a
    /// signal, which makes the page.
    #[inline(always)]
    fn cell(&self, addr: u64) -> *mut u8 {
        let offset = self.predictor.cell(addr) as usize;
        // SAFETY: a cell's offset is less than the window's size, and the alias page follows the window.
        unsafe { self.map.base().add(self.at + CTX_SIZE + offset) }
    }

    /// Writes a word to the cells of `addr`. Only for a thread that is prepared to run translated code.
    #[inline(always)]
    pub fn set_word(&mut self, addr: u64, value: u64) {
        // SAFETY: `cell` guarantees 4096 bytes.
        unsafe { self.cell(addr).cast::<u64>().write_unaligned(value.to_le()) }
    }

    /// Writes the low `len` (at most 8) bytes of `value` to the cells of `addr`. Only for a thread that is prepared to run
    /// translated code.
    #[inline(always)]
    pub fn set_bytes(&mut self, addr: u64, len: u8, value: u64) {
        let p = self.cell(addr);
        for i in 0..len.min(8) as usize {
            // SAFETY: `cell` guarantees 4096 bytes. A volatile write, because the compiler would make others
            // a call of memcpy.
            unsafe { p.add(i).write_volatile((value >> (8 * i)) as u8) }
        }
    }

    /// The `N` cells from `addr` on.
    #[inline(always)]
    pub fn cells<const N: usize>(&self, addr: u64) -> [u8; N] {
        const { assert!(N <= ALIAS) };
        // SAFETY: `cell` guarantees ALIAS bytes.
        unsafe { self.cells_at(addr, N).cast::<[u8; N]>().read_unaligned() }
    }

    /// Writes `N` cells from `addr` on.
    #[inline(always)]
    pub fn set_cells<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        const { assert!(N <= ALIAS) };
        // SAFETY: as in `cells`.
        unsafe {
            self.cells_at(addr, N)
                .cast::<[u8; N]>()
                .write_unaligned(bytes)
        }
    }

    /// Copies the cells from `addr` on.
    pub fn read(&self, mut addr: u64, buf: &mut [u8]) {
        for part in buf.chunks_mut(ALIAS) {
            // SAFETY: `cells_at` guarantees ALIAS bytes, and the buffer is not part of the window.
            unsafe {
                let from = self.cells_at(addr, part.len());
                std::ptr::copy_nonoverlapping(from, part.as_mut_ptr(), part.len())
            };
            addr = addr.wrapping_add(part.len() as u64);
        }
    }

    /// Writes to the cells from `addr` on.
    pub fn write(&mut self, mut addr: u64, buf: &[u8]) {
        for part in buf.chunks(ALIAS) {
            // SAFETY: as in `read`.
            unsafe {
                let to = self.cells_at(addr, part.len());
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len())
            };
            addr = addr.wrapping_add(part.len() as u64);
        }
    }

    /// The same for a change that no played instruction makes.
    pub fn write_from_outside(&mut self, addr: u64, buf: &[u8]) {
        self.dirty.add(addr, buf.len() as u64);
        self.write(addr, buf);
    }

    /// Zeroes all cells.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.dirty = Dirty::Any;
        let size = self.predictor.size() as usize;
        self.write(0, &[0; ALIAS]);
        self.map.discard(self.at + CTX_SIZE + ALIAS, size - ALIAS)?;
        self.was_bad = self.is_bad();
        (self.laid, self.later) = (None, None);
        Ok(())
    }

    /// Zeroes the cells of an address range.
    pub fn zero(&mut self, addr: u64, len: u64) -> Result<(), Error> {
        let size = self.predictor.size();
        if len >= size {
            return self.clear();
        }
        let start = self.predictor.cell(addr);
        let end = start + len;
        self.zero_cells(start, end.min(size))?;
        self.zero_cells(0, end.saturating_sub(size))
    }

    fn zero_cells(&mut self, start: u64, end: u64) -> Result<(), Error> {
        // Discards whole pages. The first page is filled instead, because its alias shares its memory.
        let first = start.next_multiple_of(PAGE).max(PAGE);
        let last = end / PAGE * PAGE;
        if first >= last {
            self.fill_zero(start, end);
            return Ok(());
        }
        self.fill_zero(start, first);
        self.fill_zero(last, end);
        self.map
            .discard(self.at + CTX_SIZE + first as usize, (last - first) as usize)?;
        if let Some(later) = &self.later {
            later.taken_off((first / PAGE) as u32..(last / PAGE) as u32);
        }
        Ok(())
    }

    /// Numbers of the pages of cells that are in memory, ascending.
    pub fn pages(&self) -> Result<Vec<u32>, Error> {
        self.present(0, self.predictor.size() as usize)
    }

    fn present(&self, from: i64, len: usize) -> Result<Vec<u32>, Error> {
        let start = (self.at + CTX_SIZE) as i64 + from;
        self.map.present(start as usize, len)
    }

    /// Numbers of the pages of cells that are not those of a file that lies over them, ascending. The first page, which has
    /// a second mapping, counts as one.
    pub(crate) fn own(&self) -> Result<Vec<u32>, Error> {
        let (start, size) = (self.at + CTX_SIZE, self.predictor.size() as usize);
        let mut pages = self.map.own(start, size)?;
        if pages.first() != Some(&0) {
            pages.insert(0, 0);
        }
        Ok(pages)
    }

    /// Lays pages of a file over those from `page` on, which is not the first one.
    pub(crate) fn lay_pages(
        &mut self,
        page: u32,
        count: usize,
        file: &MemoryFile,
        at: usize,
    ) -> Result<(), Error> {
        let first = page as usize * PAGE as usize;
        let len = count * PAGE as usize;
        assert!(page > 0 && first + len <= self.predictor.size() as usize);
        self.map.lay(self.at + CTX_SIZE + first, len, file, at)
    }

    /// Makes pages inaccessible until they are touched: `runs` ascend, and do not have the first page. They then hold what
    /// `lines` has.
    pub(crate) fn lay_later(&mut self, runs: Vec<Range<u32>>, lines: &Lines) -> Result<(), Error> {
        assert!(self.predictor.size() == 1 << 32 && runs.first().is_none_or(|r| r.start > 0));
        for run in &runs {
            let first = run.start as usize * PAGE as usize;
            let len = run.len() * PAGE as usize;
            self.map.lay_nothing(self.at + CTX_SIZE + first, len)?;
        }
        let region = Region::new(self.base(), runs, lines.clone());
        self.later = Some(Known::new(region));
        Ok(())
    }

    /// The pages over which a file lies, ascending, or that are made when they are touched.
    pub(crate) fn laid_pages(&self) -> Vec<Range<u32>> {
        let page = |at: usize| ((at - self.at - CTX_SIZE) / PAGE as usize) as u32;
        let laid = self.map.laid().iter();
        laid.map(|l| page(l.start)..page(l.end)).collect()
    }

    /// The cells of a page.
    pub(crate) fn page(&self, page: u32) -> &[u8; PAGE as usize] {
        let first = page as u64 * PAGE;
        assert!(first + PAGE <= self.predictor.size());
        // SAFETY: the page lies among the cells, and only a running machine changes them.
        unsafe { &*self.cells_at(first, PAGE as usize).cast() }
    }

    /// The cells of a page, for changes.
    pub(crate) fn page_mut(&mut self, page: u32) -> &mut [u8; PAGE as usize] {
        let first = page as u64 * PAGE;
        assert!(first + PAGE <= self.predictor.size());
        // SAFETY: the page lies among the cells, and nothing else refers to them.
        unsafe { &mut *self.cells_at(first, PAGE as usize).cast() }
    }

    fn fill_zero(&mut self, start: u64, end: u64) {
        if start < end {
            assert!(end <= self.predictor.size());
            let len = (end - start) as usize;
            // SAFETY: the range lies among the cells.
            unsafe { self.cells_at(start, len).write_bytes(0, len) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_and_empties() {
        let mut w = Window::new(Predictor { bits: 14 }).unwrap();
        let size = 1 << 14;
        w.write(size - 3, &[1, 2, 3, 4, 5]);
        let mut b = [0; 2];
        w.read(7 * size, &mut b);
        assert_eq!(b, [4, 5]);
        w.set_bytes(size - 1, 2, 0xbbaa);
        w.read(size - 1, &mut b);
        assert_eq!(b, [0xaa, 0xbb]);

        let all: Vec<u8> = (0..size).map(|i| i as u8 | 1).collect();
        let check = |w: &Window, zero: &dyn Fn(u64) -> bool| {
            let mut got = vec![0; size as usize];
            w.read(0, &mut got);
            for i in 0..size {
                let expect = if zero(i) { 0 } else { all[i as usize] };
                assert_eq!(got[i as usize], expect, "cell {i}");
            }
        };
        w.write(0, &all);
        w.zero(5, 3).unwrap();
        check(&w, &|i| (5..8).contains(&i));
        w.write(0, &all);
        w.zero(10, 3 * 4096).unwrap();
        check(&w, &|i| (10..10 + 3 * 4096).contains(&i));
        w.write(0, &all);
        w.zero(3 * 4096 - 1, 4096 + 100).unwrap();
        check(&w, &|i| !(99..3 * 4096 - 1).contains(&i));
        w.zero(1, u64::MAX).unwrap();
        check(&w, &|_| true);
    }
}
