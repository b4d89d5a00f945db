//! The memory of a virtual processor: context block and predictor cells.

use crate::Error;
use crate::memory::Mapping;
use hindsight_isa::ctx::{CTX_SIZE, table};
use hindsight_isa::predictor::ALIAS;
use hindsight_isa::{Ctx, Predictor};

const PAGE: u64 = 4096;
/// Inaccessible bytes behind the alias page: no access that begins in the window passes them.
const GUARD: usize = 64 << 10;

/// Context block, cells, a second view of the first page of cells, and a guard, in this order.
pub struct Window {
    map: Mapping,
    predictor: Predictor,
}

impl Window {
    pub fn new(predictor: Predictor) -> Result<Window, Error> {
        let size = predictor.size() as usize;
        let mut map = Mapping::new(CTX_SIZE + size + ALIAS + GUARD, false)?;
        map.protect(CTX_SIZE + size + ALIAS, GUARD)?;
        map.alias(CTX_SIZE, CTX_SIZE + size, ALIAS)?;
        let mut w = Window { map, predictor };
        w.ctx_mut().clear_lookup(table::CHECKED);
        w.ctx_mut().exit_ptr = hindsight_glue::exit_address();
        w.ctx_mut().cell_mask = predictor.size() - 1;
        Ok(w)
    }

    /// Address of the first cell, which is what the GS base must be.
    pub fn base(&self) -> u64 {
        self.map.base() as u64 + CTX_SIZE as u64
    }

    pub fn ctx_ptr(&self) -> *mut Ctx {
        self.map.base().cast()
    }

    pub fn ctx(&self) -> &Ctx {
        // SAFETY: the mapping begins with CTX_SIZE bytes for it, any content is valid, and
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
        unsafe { self.map.base().add(CTX_SIZE + offset) }
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

    /// Empties all cells.
    pub fn clear(&mut self) -> Result<(), Error> {
        let size = self.predictor.size() as usize;
        self.write(0, &[0; ALIAS]);
        self.map.discard(CTX_SIZE + ALIAS, size - ALIAS)
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
            .discard(CTX_SIZE + first as usize, (last - first) as usize)
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
