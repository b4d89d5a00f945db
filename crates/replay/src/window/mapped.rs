//! Cells in one stretch of address space: the kernel finds the page of each, and gives it memory when it is touched.

mod later;
mod marks;

use super::store::{AccessKind, Cells, PAGE, PAGE_LEN};
use crate::Error;
use crate::lines::Lines;
use crate::memory::{Mapping, MemoryFile};
use hindsight_isa::ctx::CTX_SIZE;
use hindsight_isa::predictor::ALIAS;
use hindsight_isa::{Ctx, Predictor, observe};
pub(crate) use later::touched;
use later::{Known, Region};
use std::ops::Range;

/// Inaccessible bytes behind the alias page. An access that begins in the window cannot reach beyond them.
const GUARD: usize = 64 << 10;

/// Bytes before the context block in a window with marks: the marks of writes, and the distance to them.
const FRONT: usize = -AccessKind::Writes.begin() as usize - CTX_SIZE;
/// Bytes from the first cell to the end of the marks of reads.
const REAR: usize = AccessKind::Reads.begin() as usize + AccessKind::LEN;

/// In this order: context block, cells, a second mapping of the first page of cells, and a guard. Those with marks have the marks of
/// writes before these and the marks of reads behind them.
pub struct Mapped {
    /// Pages of cells that are made when they are touched.
    later: Option<Known>,
    map: Mapping,
    /// Offset of the context block in the mapping.
    at: usize,
    /// The marks of writes, if they are at [`observe::NEAR`] instead.
    near: Option<Mapping>,
    predictor: Predictor,
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

/// These pages and the first one. That has a second mapping, through which it may have been written to, so it always counts.
fn with_first(mut pages: Vec<u32>) -> Vec<u32> {
    if pages.first() != Some(&0) {
        pages.insert(0, 0);
    }
    pages
}

impl Mapped {
    /// Marks writes at [`observe::NEAR`] from now on, which takes less code, if nothing else of the process is there.
    pub fn go_near(&mut self) {
        let begin = observe::NEAR as usize / PAGE_LEN * PAGE_LEN;
        self.near = Mapping::at(begin, AccessKind::LEN);
        if let Some(near) = &mut self.near {
            near.small_pages();
        }
    }

    /// See [`super::Window::large_pages`].
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

    fn begin(map: Mapping, at: usize, predictor: Predictor) -> Mapped {
        Mapped {
            later: None,
            map,
            at,
            near: None,
            predictor,
        }
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

    /// Pointer to the cell of `addr`. At least 4096 bytes from there are cells. The first `len` of them can be accessed.
    #[inline(always)]
    fn cells_at(&self, addr: u64, len: usize) -> *mut u8 {
        self.need(addr, len);
        self.cell(addr)
    }

    /// Makes the pages with the cells of `addr` on, if they are to be made when they are touched.
    #[inline(always)]
    fn need(&self, addr: u64, len: usize) {
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
    fn set_word(&mut self, addr: u64, value: u64) {
        // SAFETY: `cell` guarantees 4096 bytes.
        unsafe { self.cell(addr).cast::<u64>().write_unaligned(value.to_le()) }
    }

    /// Writes the low `len` (at most 8) bytes of `value` to the cells of `addr`. Only for a thread that is prepared to run
    /// translated code.
    #[inline(always)]
    fn set_bytes(&mut self, addr: u64, len: u8, value: u64) {
        let p = self.cell(addr);
        for i in 0..len.min(8) as usize {
            // SAFETY: `cell` guarantees 4096 bytes. A volatile write, because the compiler would make others
            // a call of memcpy.
            unsafe { p.add(i).write_volatile((value >> (8 * i)) as u8) }
        }
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

impl Cells for Mapped {
    fn new(predictor: Predictor) -> Result<Mapped, Error> {
        let size = predictor.size() as usize;
        let mut map = Mapping::new(CTX_SIZE + size + ALIAS + GUARD)?;
        map.protect(CTX_SIZE + size + ALIAS, GUARD)?;
        map.alias(CTX_SIZE, CTX_SIZE + size, ALIAS)?;
        Ok(Mapped::begin(map, 0, predictor))
    }

    fn observed() -> Result<Mapped, Error> {
        let predictor = Predictor::WINDOW;
        let size = predictor.size() as usize;
        let first = FRONT + CTX_SIZE;
        let mut map = Mapping::new(first + REAR)?;
        // With large pages, everything would look accessed.
        map.small_pages();
        map.protect(first + size + ALIAS, GUARD)?;
        map.alias(first, first + size, ALIAS)?;
        Ok(Mapped::begin(map, FRONT, predictor))
    }

    fn predictor(&self) -> Predictor {
        self.predictor
    }

    fn has_marks(&self) -> bool {
        self.at != 0
    }

    fn ctx(&self) -> &Ctx {
        // SAFETY: the mapping has CTX_SIZE bytes there, and any content is valid. Translated code runs only
        // while no reference exists.
        unsafe { &*self.ctx_ptr() }
    }

    fn ctx_mut(&mut self) -> &mut Ctx {
        // SAFETY: as in `ctx`.
        unsafe { &mut *self.ctx_ptr() }
    }

    #[inline(always)]
    fn get<const N: usize>(&self, addr: u64) -> [u8; N] {
        const { assert!(N <= ALIAS) };
        // SAFETY: `cell` guarantees ALIAS bytes.
        unsafe { self.cells_at(addr, N).cast::<[u8; N]>().read_unaligned() }
    }

    #[inline(always)]
    fn set<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        const { assert!(N <= ALIAS) };
        // SAFETY: as in `get`.
        unsafe {
            self.cells_at(addr, N)
                .cast::<[u8; N]>()
                .write_unaligned(bytes)
        }
    }

    fn read(&self, mut addr: u64, buf: &mut [u8]) {
        for part in buf.chunks_mut(ALIAS) {
            // SAFETY: `cells_at` guarantees ALIAS bytes, and the buffer is not part of the window.
            unsafe {
                let from = self.cells_at(addr, part.len());
                std::ptr::copy_nonoverlapping(from, part.as_mut_ptr(), part.len())
            };
            addr = addr.wrapping_add(part.len() as u64);
        }
    }

    fn write(&mut self, mut addr: u64, buf: &[u8]) {
        for part in buf.chunks(ALIAS) {
            // SAFETY: as in `read`.
            unsafe {
                let to = self.cells_at(addr, part.len());
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len())
            };
            addr = addr.wrapping_add(part.len() as u64);
        }
    }

    fn clear(&mut self) -> Result<(), Error> {
        let size = self.predictor.size() as usize;
        self.write(0, &[0; ALIAS]);
        self.map.discard(self.at + CTX_SIZE + ALIAS, size - ALIAS)?;
        self.later = None;
        Ok(())
    }

    #[inline(always)]
    fn touch(&mut self, _: u64, _: usize) {}

    fn is_full(&self) -> bool {
        false
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

    fn pages(&self) -> Result<Vec<u32>, Error> {
        let size = self.predictor.size() as usize;
        Ok(with_first(self.map.present(self.at + CTX_SIZE, size)?))
    }

    fn own(&self) -> Result<Vec<u32>, Error> {
        let size = self.predictor.size() as usize;
        Ok(with_first(self.map.own(self.at + CTX_SIZE, size)?))
    }

    fn lay_pages(
        &mut self,
        page: u32,
        count: usize,
        file: &MemoryFile,
        at: usize,
    ) -> Result<(), Error> {
        let first = page as usize * PAGE_LEN;
        let len = count * PAGE_LEN;
        assert!(page > 0 && first + len <= self.predictor.size() as usize);
        self.map.lay(self.at + CTX_SIZE + first, len, file, at)
    }

    fn lay_later(&mut self, runs: Vec<Range<u32>>, lines: &Lines) -> Result<(), Error> {
        assert!(self.predictor.size() == 1 << 32 && runs.first().is_none_or(|r| r.start > 0));
        for run in &runs {
            let first = run.start as usize * PAGE_LEN;
            let len = run.len() * PAGE_LEN;
            self.map.lay_nothing(self.at + CTX_SIZE + first, len)?;
        }
        let region = Region::new(self.base(), runs, lines.clone());
        self.later = Some(Known::new(region));
        Ok(())
    }

    fn laid_pages(&self) -> Vec<Range<u32>> {
        let page = |at: usize| ((at - self.at - CTX_SIZE) / PAGE_LEN) as u32;
        let laid = self.map.laid().iter();
        laid.map(|l| page(l.start)..page(l.end)).collect()
    }

    fn page(&self, page: u32) -> &[u8; PAGE_LEN] {
        let first = page as u64 * PAGE;
        assert!(first + PAGE <= self.predictor.size());
        // SAFETY: the page lies among the cells, and only a running machine changes them.
        unsafe { &*self.cells_at(first, PAGE_LEN).cast() }
    }

    fn page_mut(&mut self, page: u32) -> &mut [u8; PAGE_LEN] {
        let first = page as u64 * PAGE;
        assert!(first + PAGE <= self.predictor.size());
        // SAFETY: the page lies among the cells, and nothing else refers to them.
        unsafe { &mut *self.cells_at(first, PAGE_LEN).cast() }
    }
}
