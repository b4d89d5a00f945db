//! The memory of a virtual processor: context block and predictor cells.

use crate::Error;
use crate::lines::Dirty;
use crate::memory::Mapping;
use crate::stretch::{Marks, Stretch};
use crate::taken::Outside;
use hindsight_isa::ctx::{CTX_SIZE, table};
use hindsight_isa::predictor::ALIAS;
use hindsight_isa::{Ctx, Predictor, observe};
use std::collections::HashSet;

const PAGE: u64 = 4096;
/// Inaccessible bytes behind the alias page: no access that begins in the window passes them.
const GUARD: usize = 64 << 10;

/// Context block, cells, a second view of the first page of cells, and a guard, in this order; and marks, if there are.
pub struct Window {
    map: Mapping,
    predictor: Predictor,
    /// Those of reads and those of writes, or none.
    marks: Vec<Stretch>,
    /// Those of writes are at [`observe::NEAR`].
    near: bool,
    /// With marks: what has changed of cells otherwise than by instructions since all marks were taken.
    pub(crate) outside: Outside,
    /// With marks: where they or cells may be other than zero.
    pub(crate) dirty: Dirty,
    /// Pages of cells that have been in use since all were given back, as far as `dirty` tells.
    pub(crate) in_use: HashSet<u32>,
}

impl Window {
    pub fn new(predictor: Predictor) -> Result<Window, Error> {
        let map = Mapping::new(Window::size(predictor), false)?;
        Window::begin(map, predictor)
    }

    /// A window of 2^32 cells with marks.
    pub fn observed() -> Result<Window, Error> {
        let size = Window::size(Predictor::WINDOW);
        let map = Mapping::new(Stretch::FRONT + size, false)?;
        let (front, map) = map.split(Stretch::FRONT);
        Window::marked(map, Stretch::far(front))
    }

    /// The same with marks of writes that need less code, if no other window of the process has such.
    pub fn observed_near() -> Result<Window, Error> {
        let Some(writes) = Stretch::near() else {
            return Window::observed();
        };
        let map = Mapping::new(Window::size(Predictor::WINDOW), false)?;
        let mut w = Window::marked(map, writes)?;
        w.near = true;
        Ok(w)
    }

    fn marked(mut map: Mapping, writes: Stretch) -> Result<Window, Error> {
        map.small_pages();
        let mut w = Window::begin(map, Predictor::WINDOW)?;
        w.marks = vec![Stretch::reads()?, writes];
        Ok(w)
    }

    /// Bytes of its mapping.
    fn size(predictor: Predictor) -> usize {
        CTX_SIZE + predictor.size() as usize + ALIAS + GUARD
    }

    fn begin(mut map: Mapping, predictor: Predictor) -> Result<Window, Error> {
        let size = predictor.size() as usize;
        map.protect(CTX_SIZE + size + ALIAS, GUARD)?;
        map.alias(CTX_SIZE, CTX_SIZE + size, ALIAS)?;
        let mut w = Window {
            map,
            predictor,
            marks: Vec::new(),
            near: false,
            outside: Outside::default(),
            dirty: Dirty::Any,
            in_use: HashSet::new(),
        };
        w.ctx_mut().targets[table::CHECKED].begin();
        w.ctx_mut().search_ptr = hindsight_glue::searches();
        w.ctx_mut().exit_ptr = hindsight_glue::exit_address();
        w.ctx_mut().cell_mask = predictor.size() - 1;
        Ok(w)
    }

    /// Address of the first cell, which is what the GS base must be.
    pub fn base(&self) -> u64 {
        self.map.base() as u64 + CTX_SIZE as u64
    }

    /// Whether marks are made here.
    pub fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Whether marks of writes are at [`observe::NEAR`].
    pub fn is_near(&self) -> bool {
        self.near
    }

    /// What the FS base must be for code that marks, if this does.
    pub fn read_marks_base(&self) -> Option<u64> {
        Some(self.marks.first()?.fs_base())
    }

    /// Marks of one kind. Only where there are marks.
    pub(crate) fn stretch(&self, marks: Marks) -> &Stretch {
        &self.marks[marks as usize]
    }

    /// The same.
    pub(crate) fn stretch_mut(&mut self, marks: Marks) -> &mut Stretch {
        &mut self.marks[marks as usize]
    }

    pub fn ctx_ptr(&self) -> *mut Ctx {
        self.map.base().cast()
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

    /// The same for what is not done by an instruction that is played.
    pub fn write_from_outside(&mut self, addr: u64, buf: &[u8]) {
        self.dirty.add(addr, buf.len() as u64);
        self.change(addr, buf.len() as u64);
        self.write(addr, buf);
    }

    /// Cells change otherwise than by instructions.
    fn change(&mut self, addr: u64, len: u64) {
        if self.has_marks() {
            self.outside.add(addr, len);
        }
    }

    /// Empties all cells.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.dirty = Dirty::Any;
        self.outside.any();
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
        self.change(addr, len);
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

    /// Marks a word that the recording gives: it was read, and is no longer what was written.
    ///
    /// Like everything that runs between blocks it calls nothing (see `Cpu::spin`).
    #[inline(always)]
    pub fn mark_word(&mut self, addr: u64, len: u8) {
        let [reads, writes] = &self.marks[..] else {
            return;
        };
        let cell = self.predictor.cell(addr);
        let (r, w) = (reads.ptr(cell), writes.ptr(cell));
        self.outside.add(cell, len as u64);
        for i in 0..len.min(8) as usize {
            // SAFETY: behind the last marks there is slack.
            unsafe {
                r.add(i).write_volatile(observe::MARK);
                w.add(i)
                    .write_volatile(w.add(i).read_volatile() & observe::UNKNOWN);
            }
        }
    }

    /// Marks what the recording says of these cells: as read.
    pub fn given(&mut self, addr: u64, len: u64) -> Result<(), Error> {
        if !self.has_marks() {
            return Ok(());
        }
        self.forget(addr, len)?;
        self.dirty.add(addr, len);
        self.set_marks(Marks::Reads, addr, len, observe::MARK);
        Ok(())
    }

    /// What these cells hold is not known to be the program's any more.
    pub fn forget(&mut self, addr: u64, len: u64) -> Result<(), Error> {
        let size = self.predictor.size();
        let (first, len) = (self.predictor.cell(addr), len.min(size));
        for cells in [
            first..(first + len).min(size),
            0..(first + len).saturating_sub(size),
        ] {
            for marks in &mut self.marks {
                marks.forget(cells.clone())?;
            }
        }
        Ok(())
    }

    /// Numbers of the pages of cells that hold something, ascending.
    pub fn pages(&self) -> Result<Vec<u32>, Error> {
        self.map.present(CTX_SIZE, self.predictor.size() as usize)
    }

    /// The cells of a page.
    pub(crate) fn page(&self, page: u32) -> &[u8; PAGE as usize] {
        let first = page as u64 * PAGE;
        assert!(first + PAGE <= self.predictor.size());
        // SAFETY: the page lies among the cells, which only a machine that runs changes.
        unsafe { &*self.cell(first).cast() }
    }

    /// Copies the marks of the cells of `addr` and following ones.
    pub fn marks(&self, marks: Marks, addr: u64, buf: &mut [u8]) {
        self.stretch(marks).get(self.predictor.cell(addr), buf);
    }

    /// Replaces marks.
    pub fn write_marks(&mut self, marks: Marks, addr: u64, new: &[u8]) {
        let cell = self.predictor.cell(addr);
        self.stretch_mut(marks).put(cell, new);
    }

    /// Marks cells.
    pub fn set_marks(&mut self, marks: Marks, addr: u64, len: u64, mark: u8) {
        let cell = self.predictor.cell(addr);
        self.stretch_mut(marks).set(cell, len, mark);
    }

    /// Marks what was written with a value that is not known.
    pub fn unknown(&mut self, addr: u64, len: u64) {
        for i in 0..len {
            let cell = self.predictor.cell(addr.wrapping_add(i));
            self.stretch_mut(Marks::Reads).unknown(cell);
            self.stretch_mut(Marks::Writes)
                .set(cell, 1, observe::UNKNOWN);
        }
    }

    /// Takes all marks back. From now on anything may be accessed.
    pub fn clear_marks(&mut self) -> Result<(), Error> {
        self.dirty = Dirty::Any;
        self.marks.iter_mut().try_for_each(Stretch::clear)
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
