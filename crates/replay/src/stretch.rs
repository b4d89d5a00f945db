//! Marks of one kind: a byte for each cell of a window.

use crate::Error;
use crate::memory::Mapping;
use hindsight_isa::ctx::CTX_SIZE;
use hindsight_isa::observe;
use std::ops::Range;

const PAGE: u64 = 4096;
/// Cells of a window with marks.
const SIZE: u64 = 1 << 32;

/// Which accesses are marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marks {
    Reads,
    Writes,
}

/// Lines of a page of cells whose marks are in one page in memory.
pub(crate) struct Part {
    pub page: u32,
    pub lines: Range<usize>,
    /// Number of the page in memory.
    pub host: u32,
}

impl Part {
    /// The cells of these lines.
    pub fn cells(&self) -> Range<u64> {
        let first = self.page as u64 * PAGE;
        first + 64 * self.lines.start as u64..first + 64 * self.lines.end as u64
    }
}

impl Marks {
    /// Where in their first page those of the first cell are.
    const fn skew(self) -> u64 {
        match self {
            Marks::Reads => observe::READS,
            Marks::Writes => observe::WRITES.rem_euclid(PAGE as i64) as u64,
        }
    }

    /// How many marks of the last cells are before those of the first one.
    const fn before(self) -> u64 {
        match self {
            Marks::Reads => observe::APART as u64,
            Marks::Writes => 0,
        }
    }

    /// Lines of a page of cells whose marks are in the page with its number; those of the others are in the next one.
    const fn own_lines(self) -> usize {
        (PAGE - self.skew()) as usize / 64
    }
}

/// Bytes of the pages of marks.
const LEN: usize = (SIZE + PAGE) as usize;

/// The marks of one kind, from the beginning of the page with the first of them on.
pub(crate) struct Stretch {
    map: Mapping,
    marks: Marks,
}

impl Stretch {
    /// Bytes before a context block where marks of writes may be: they, and what keeps them apart.
    pub const FRONT: usize =
        (-(observe::WRITES - observe::WRITES.rem_euclid(PAGE as i64))) as usize - CTX_SIZE;

    /// Marks of reads.
    pub fn reads() -> Result<Stretch, Error> {
        Ok(Stretch::new(Mapping::new(LEN, false)?, Marks::Reads))
    }

    /// Marks of writes at [`observe::NEAR`]. `None`: something is there, such as those of another window.
    pub fn near() -> Option<Stretch> {
        let begin = observe::NEAR as u64 / PAGE * PAGE;
        let map = Mapping::at(begin as usize, LEN)?;
        Some(Stretch::new(map, Marks::Writes))
    }

    /// Marks of writes in the [`Stretch::FRONT`] bytes before a context block.
    pub fn far(map: Mapping) -> Stretch {
        assert!(map.len() == Stretch::FRONT);
        Stretch::new(map, Marks::Writes)
    }

    fn new(mut map: Mapping, marks: Marks) -> Stretch {
        assert!(map.len() >= LEN);
        // Huge pages would make everything look touched.
        map.small_pages();
        Stretch { map, marks }
    }

    /// What the FS base must be for code that marks reads here.
    pub fn fs_base(&self) -> u64 {
        self.ptr(0) as u64 - observe::APART as u64
    }

    /// The mark of a cell, or of one of the first ones behind all others.
    #[inline(always)]
    pub fn ptr(&self, cell: u64) -> *mut u8 {
        debug_assert!(cell <= SIZE + observe::SLACK as u64);
        // SAFETY: there are as many marks as cells, and some slack behind.
        unsafe { self.map.base().add((self.marks.skew() + cell) as usize) }
    }

    /// Where else a cell may be marked: what begins in the last cells may do so behind the marks of all, and what is marked
    /// through the FS base before them.
    fn elsewhere(&self, cell: u64) -> Option<*mut u8> {
        let first = self.ptr(0);
        // SAFETY: there is memory before the marks that begin in the middle of a page, and slack behind.
        unsafe {
            match cell {
                _ if cell < observe::SLACK as u64 => Some(first.add((SIZE + cell) as usize)),
                _ if cell >= SIZE - self.marks.before() => Some(first.sub((SIZE - cell) as usize)),
                _ => None,
            }
        }
    }

    /// Whether these cells are marked in one place.
    fn in_one_place(&self, cells: &Range<u64>) -> bool {
        cells.start >= observe::SLACK as u64 && cells.end <= SIZE - self.marks.before()
    }

    /// Numbers of those of some pages of marks that are in memory, counted from the first of them.
    fn present(&self, first: u64, pages: u64) -> Result<Vec<u32>, Error> {
        self.map
            .present((first * PAGE) as usize, (pages * PAGE) as usize)
    }

    /// Those of these ascending pages of cells.
    pub fn parts_of(&self, pages: &[u32]) -> Vec<Part> {
        let own = self.marks.own_lines();
        let both = |page: u32| {
            [(0..own, page), (own..64, page + 1)].map(|(lines, host)| Part { page, lines, host })
        };
        pages.iter().copied().flat_map(both).collect()
    }

    /// Where there may be marks, ascending: parts of pages of cells whose marks are in one page in memory.
    pub fn parts(&self) -> Result<Vec<Part>, Error> {
        self.parts_between(0, SIZE)
    }

    /// The same of the pages with these cells, and perhaps of one on each side.
    fn parts_between(&self, start: u64, end: u64) -> Result<Vec<Part>, Error> {
        let size = (SIZE / PAGE) as u32;
        let own = self.marks.own_lines();
        let mut out = Vec::new();
        let (first, last) = (start / PAGE, end.div_ceil(PAGE) + 1);
        for page in self.present(first, last - first)? {
            let host = first as u32 + page;
            let part = |page, lines| Part { page, lines, host };
            out.extend(host.checked_sub(1).map(|page| part(page, own..64)));
            out.extend((host < size).then(|| part(host, 0..own)));
        }
        Ok(out)
    }

    /// The lines of marks of a part.
    pub fn part_mut(&mut self, part: &Part) -> &mut [[u8; 64]] {
        let (cells, len) = (part.cells(), part.lines.len());
        assert!(cells.end <= SIZE);
        // SAFETY: the lines lie among the marks, which nothing else refers to.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(cells.start).cast(), len) }
    }

    /// The same to be read.
    pub fn part(&self, part: &Part) -> &[[u8; 64]] {
        let (cells, len) = (part.cells(), part.lines.len());
        assert!(cells.end <= SIZE);
        // SAFETY: the lines lie among the marks, which only a machine that runs changes.
        unsafe { std::slice::from_raw_parts(self.ptr(cells.start).cast(), len) }
    }

    /// Moves marks to where they belong that are before or behind those of all cells.
    pub fn fold_slack(&mut self) -> Result<(), Error> {
        let ends = [
            (SIZE / PAGE, 0..observe::SLACK as u64),
            (0, SIZE - self.marks.before()..SIZE),
        ];
        for (page, cells) in ends {
            if cells.is_empty() || self.present(page, 1)?.is_empty() {
                continue;
            }
            for cell in cells {
                let Some(other) = self.elsewhere(cell) else {
                    continue;
                };
                // SAFETY: marks are plain memory.
                unsafe {
                    let there = std::mem::take(&mut *other);
                    if there != 0 {
                        *self.ptr(cell) |= there;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies the marks of some cells, modulo their number.
    pub fn get(&self, first: u64, buf: &mut [u8]) {
        if self.in_one_place(&(first..first + buf.len() as u64)) {
            // SAFETY: the range lies among the marks; the buffer does not.
            unsafe {
                std::ptr::copy_nonoverlapping(self.ptr(first), buf.as_mut_ptr(), buf.len());
            }
            return;
        }
        for (i, b) in buf.iter_mut().enumerate() {
            let cell = (first + i as u64) % SIZE;
            // SAFETY: marks are plain memory.
            unsafe {
                *b = *self.ptr(cell);
                if let Some(other) = self.elsewhere(cell) {
                    *b |= *other;
                }
            }
        }
    }

    /// Replaces them.
    pub fn put(&mut self, first: u64, new: &[u8]) {
        if self.in_one_place(&(first..first + new.len() as u64)) {
            // SAFETY: the range lies among the marks; the buffer does not.
            unsafe {
                std::ptr::copy_nonoverlapping(new.as_ptr(), self.ptr(first), new.len());
            }
            return;
        }
        for (i, b) in new.iter().enumerate() {
            let cell = (first + i as u64) % SIZE;
            // SAFETY: marks are plain memory.
            unsafe {
                *self.ptr(cell) = *b;
                if let Some(other) = self.elsewhere(cell) {
                    *other = 0;
                }
            }
        }
    }

    /// Marks cells, modulo their number.
    pub fn set(&mut self, first: u64, len: u64, mark: u8) {
        assert!(first < SIZE);
        let len = len.min(SIZE);
        let here = len.min(SIZE - first);
        // SAFETY: both parts lie among the marks.
        unsafe {
            self.ptr(first).write_bytes(mark, here as usize);
            self.ptr(0).write_bytes(mark, (len - here) as usize);
        }
    }

    /// What a cell holds is not known.
    pub fn unknown(&mut self, cell: u64) {
        for mark in [Some(self.ptr(cell)), self.elsewhere(cell)]
            .into_iter()
            .flatten()
        {
            // SAFETY: marks are plain memory.
            unsafe { *mark &= observe::UNKNOWN }
        }
    }

    /// The same of these cells.
    pub fn forget(&mut self, cells: Range<u64>) -> Result<(), Error> {
        if cells.is_empty() {
            return Ok(());
        }
        if !self.in_one_place(&cells) {
            self.fold_slack()?;
        }
        let one = |cells: Range<u64>| {
            if cells.is_empty() {
                return;
            }
            let len = (cells.end - cells.start) as usize;
            // SAFETY: as many marks follow one another there, which nothing else refers to.
            let all = unsafe { std::slice::from_raw_parts_mut(self.ptr(cells.start), len) };
            for line in all.chunks_mut(64) {
                // Lest memory is made for what has none.
                if line.iter().fold(0, |any, m| any | m) & !observe::UNKNOWN != 0 {
                    line.iter_mut().for_each(|m| *m &= observe::UNKNOWN);
                }
            }
        };
        if cells.end - cells.start <= PAGE {
            one(cells);
            return Ok(());
        }
        for part in self.parts_between(cells.start, cells.end)? {
            let there = part.cells();
            one(there.start.max(cells.start)..there.end.min(cells.end));
        }
        Ok(())
    }

    /// Gives pages in memory back (see [`Part::host`]; ascending), all of whose marks are zero.
    pub fn give_back(&mut self, hosts: &[u32]) -> Result<(), Error> {
        for run in hosts.chunk_by(|a, b| a + 1 == *b) {
            let at = run[0] as usize * PAGE as usize;
            self.map.discard(at, run.len() * PAGE as usize)?;
        }
        Ok(())
    }

    /// Takes all marks back.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.map.discard(0, LEN)
    }

    /// Sets a mark that is before or behind those of all cells.
    #[cfg(test)]
    pub fn set_slack(&mut self, at: i64) {
        // SAFETY: marks are plain memory, with some more before and behind.
        unsafe { *self.ptr(0).offset(at as isize) = observe::MARK }
    }
}
