//! The memory of a virtual processor: context block and predictor cells.

mod marking;

use crate::Error;
use crate::lines::Dirty;
use crate::memory::Mapping;
use hindsight_isa::ctx::{CTX_SIZE, table};
use hindsight_isa::predictor::ALIAS;
use hindsight_isa::{Ctx, Predictor, observe};
use std::collections::HashSet;

const PAGE: u64 = 4096;
/// Inaccessible bytes behind the alias page: no access that begins in the window passes them.
const GUARD: usize = 64 << 10;

/// Bytes before the context block where there are marks: those of writes, and what keeps them apart.
const FRONT: usize = -Marks::Writes.begin() as usize - CTX_SIZE;
/// End of the marks of reads, from the first cell on.
const REAR: usize = Marks::Reads.begin() as usize + Marks::LEN;

/// Context block, cells, a second view of the first page of cells, and a guard, in this order; with
/// marks, those of writes before and those of reads behind it.
pub struct Window {
    map: Mapping,
    /// Where in the mapping the context block begins.
    at: usize,
    /// The marks of writes, if they are not there ([`observe::NEAR`]).
    near: Option<Mapping>,
    predictor: Predictor,
    /// With marks: where they or cells may be other than zero.
    pub(crate) dirty: Dirty,
    /// Pages of cells that have been in use since all were given back, as far as `dirty` tells.
    pub(crate) in_use: HashSet<u32>,
}

/// Which accesses are marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marks {
    Reads,
    Writes,
}

/// Lines of a page of cells whose marks are in one page in memory.
pub(crate) struct Part {
    pub page: u32,
    pub lines: std::ops::Range<usize>,
    /// Number of the page in memory.
    pub host: u32,
}

impl Part {
    /// The cells of these lines.
    fn cells(&self) -> std::ops::Range<u64> {
        let first = self.page as u64 * PAGE;
        first + 64 * self.lines.start as u64..first + 64 * self.lines.end as u64
    }
}

impl Marks {
    /// Where they are, from the first cell on.
    const fn offset(self) -> i64 {
        match self {
            Marks::Reads => observe::READS,
            Marks::Writes => observe::WRITES,
        }
    }

    /// Where their first page begins, in whose middle they do.
    const fn begin(self) -> i64 {
        self.offset() - self.offset().rem_euclid(PAGE as i64)
    }

    /// Lines of a page of cells whose marks are in the page with its number; those of the others are in the next one.
    const fn own_lines(self) -> usize {
        (PAGE as i64 - self.offset().rem_euclid(PAGE as i64)) as usize / 64
    }

    /// Bytes of their pages.
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

    /// As [`Window::observed`], with marks of writes that need less code if no other window of the process has such.
    pub fn observed_near() -> Result<Window, Error> {
        let mut w = Window::observed()?;
        let begin = observe::NEAR as usize / PAGE as usize * PAGE as usize;
        w.near = Mapping::at(begin, Marks::LEN);
        if let Some(near) = &mut w.near {
            near.small_pages();
        }
        Ok(w)
    }

    /// Whether marks of writes are at [`observe::NEAR`].
    pub fn is_near(&self) -> bool {
        self.near.is_some()
    }

    /// A window of 2^32 cells with marks.
    pub fn observed() -> Result<Window, Error> {
        let predictor = Predictor::WINDOW;
        let size = predictor.size() as usize;
        let first = FRONT + CTX_SIZE;
        let mut map = Mapping::new(first + REAR)?;
        // Huge pages would make everything look touched.
        map.small_pages();
        map.protect(first + size + ALIAS, GUARD)?;
        map.alias(first, first + size, ALIAS)?;
        Window::begin(map, FRONT, predictor)
    }

    fn begin(map: Mapping, at: usize, predictor: Predictor) -> Result<Window, Error> {
        let mut w = Window {
            map,
            at,
            near: None,
            predictor,
            dirty: Dirty::Any,
            in_use: HashSet::new(),
        };
        w.ctx_mut().ibl[table::CHECKED].begin();
        w.ctx_mut().search_ptr = hindsight_glue::searches();
        w.ctx_mut().exit_ptr = hindsight_glue::exit_address();
        w.ctx_mut().cell_mask = predictor.size() - 1;
        Ok(w)
    }

    /// Address of the first cell, which is what the GS base must be.
    pub fn base(&self) -> u64 {
        self.map.base() as u64 + (self.at + CTX_SIZE) as u64
    }

    /// What the FS base must be for code that marks.
    pub fn read_marks_base(&self) -> u64 {
        let offset = Marks::Reads.offset() - observe::APART as i64;
        self.base().wrapping_add(offset as u64)
    }

    pub fn ctx_ptr(&self) -> *mut Ctx {
        // SAFETY: the context block lies in the mapping.
        unsafe { self.map.base().add(self.at).cast() }
    }

    pub fn ctx(&self) -> &Ctx {
        // SAFETY: the mapping has CTX_SIZE bytes for it there, any content is valid, and
        // translated code runs only while no reference exists.
        unsafe { &*self.ctx_ptr() }
    }

    pub fn ctx_mut(&mut self) -> &mut Ctx {
        // SAFETY: as in `ctx`.
        unsafe { &mut *self.ctx_ptr() }
    }

    /// Pointer to the cell of `addr`; 4096 bytes from there are cells.
    fn cell(&self, addr: u64) -> *mut u8 {
        let offset = self.predictor.cell(addr) as usize;
        // SAFETY: a cell's offset is below the window's size, and the alias page follows it.
        unsafe { self.map.base().add(self.at + CTX_SIZE + offset) }
    }

    /// Stores a word in the cells of `addr`.
    #[inline(always)]
    pub fn set_word(&mut self, addr: u64, value: u64) {
        // SAFETY: `cell` guarantees 4096 bytes.
        unsafe { self.cell(addr).cast::<u64>().write_unaligned(value) }
    }

    /// Stores the low `len` (at most 8) bytes of `value` in the cells of `addr`.
    #[inline(always)]
    pub fn set_bytes(&mut self, addr: u64, len: u8, value: u64) {
        let p = self.cell(addr);
        for i in 0..len.min(8) as usize {
            // SAFETY: `cell` guarantees 4096 bytes. Volatile, lest it becomes a call of memcpy.
            unsafe { p.add(i).write_volatile((value >> (8 * i)) as u8) }
        }
    }

    /// Copies cells from `addr` on.
    pub fn read(&self, mut addr: u64, buf: &mut [u8]) {
        for part in buf.chunks_mut(ALIAS) {
            // SAFETY: `cell` guarantees ALIAS bytes; the buffer is not part of the window.
            unsafe {
                std::ptr::copy_nonoverlapping(self.cell(addr), part.as_mut_ptr(), part.len())
            };
            addr = addr.wrapping_add(part.len() as u64);
        }
    }

    /// Stores into the cells from `addr` on.
    pub fn write(&mut self, mut addr: u64, buf: &[u8]) {
        for part in buf.chunks(ALIAS) {
            // SAFETY: as in `read`.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), self.cell(addr), part.len()) };
            addr = addr.wrapping_add(part.len() as u64);
        }
    }

    /// The same for what is not done by an instruction that is played.
    pub fn write_from_outside(&mut self, addr: u64, buf: &[u8]) {
        self.dirty.add(addr, buf.len() as u64);
        self.write(addr, buf);
    }

    /// Empties all cells.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.dirty = Dirty::Any;
        let size = self.predictor.size() as usize;
        self.write(0, &[0; ALIAS]);
        self.map.discard(self.at + CTX_SIZE + ALIAS, size - ALIAS)
    }

    /// Empties the cells of an address range.
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
        // Whole pages, except for the first, whose memory is shared with its alias.
        let first = start.next_multiple_of(PAGE).max(PAGE);
        let last = end / PAGE * PAGE;
        if first >= last {
            self.fill_zero(start, end);
            return Ok(());
        }
        self.fill_zero(start, first);
        self.fill_zero(last, end);
        self.map
            .discard(self.at + CTX_SIZE + first as usize, (last - first) as usize)
    }

    /// Numbers of the pages of cells that hold something, ascending.
    pub fn pages(&self) -> Result<Vec<u32>, Error> {
        self.present(0, self.predictor.size() as usize)
    }

    fn present(&self, from: i64, len: usize) -> Result<Vec<u32>, Error> {
        let start = (self.at + CTX_SIZE) as i64 + from;
        self.map.present(start as usize, len)
    }

    /// The cells of a page.
    pub(crate) fn page(&self, page: u32) -> &[u8; PAGE as usize] {
        let first = page as u64 * PAGE;
        assert!(first + PAGE <= self.predictor.size());
        // SAFETY: the page lies among the cells, which only a machine that runs changes.
        unsafe { &*self.cell(first).cast() }
    }

    /// The same to be changed.
    pub(crate) fn page_mut(&mut self, page: u32) -> &mut [u8; PAGE as usize] {
        let first = page as u64 * PAGE;
        assert!(first + PAGE <= self.predictor.size());
        // SAFETY: the page lies among the cells, which nothing else refers to.
        unsafe { &mut *self.cell(first).cast() }
    }

    fn fill_zero(&mut self, start: u64, end: u64) {
        if start < end {
            assert!(end <= self.predictor.size());
            // SAFETY: the range lies among the cells.
            unsafe { self.cell(start).write_bytes(0, (end - start) as usize) }
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
