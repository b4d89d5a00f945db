//! The access marks of a window.

use super::{AccessKind, Dirty, Mapping, MarkPage, PAGE, Window};
use crate::Error;
use crate::memory::LARGE_PAGE;
use hindsight_isa::ctx::CTX_SIZE;
use hindsight_isa::observe;

impl Window {
    /// Takes a word from the recording.
    pub fn give_word(&mut self, addr: u64, value: u64) {
        self.need(addr, 8);
        self.give_word_prepared(addr, value);
    }

    /// Takes the low `len` (at most 8) bytes of a word from the recording.
    pub fn give_bytes(&mut self, addr: u64, len: u8, value: u64) {
        self.need(addr, 8);
        self.give_bytes_prepared(addr, len, value);
    }

    /// The same as [`Window::give_word`], without a call: for a thread that is prepared to run translated code.
    #[inline(always)]
    pub fn give_word_prepared(&mut self, addr: u64, value: u64) {
        self.set_word(addr, value);
        self.mark_word(addr, 8);
    }

    /// The same as [`Window::give_bytes`], without a call: for a thread that is prepared to run translated code.
    #[inline(always)]
    pub fn give_bytes_prepared(&mut self, addr: u64, len: u8, value: u64) {
        self.set_bytes(addr, len, value);
        self.mark_word(addr, len);
    }

    /// Marks a word from the recording: it was read, and does not have the value that was written.
    ///
    /// It makes no calls, as all that runs between blocks (see `Native::spin`).
    #[inline(always)]
    fn mark_word(&mut self, addr: u64, len: u8) {
        if self.at == 0 {
            return;
        }
        let cell = self.predictor.cell(addr);
        let (r, w) = (
            self.mark_ptr(AccessKind::Reads, cell),
            self.mark_ptr(AccessKind::Writes, cell),
        );
        for i in 0..len.min(8) as usize {
            // SAFETY: there is slack behind the last marks.
            unsafe {
                r.add(i).write_volatile(observe::MARK);
                w.add(i)
                    .write_volatile(w.add(i).read_volatile() & observe::UNKNOWN);
            }
        }
    }

    /// Marks memory from the recording as read.
    pub fn given(&mut self, addr: u64, len: u64) -> Result<(), Error> {
        if self.at == 0 {
            return Ok(());
        }
        self.forget(addr, len)?;
        self.dirty.add(addr, len);
        self.set_marks(AccessKind::Reads, addr, len, observe::MARK);
        Ok(())
    }

    /// Marks cells whose content (`bytes`) moves to other addresses. Each line with content counts as read: a
    /// replay that begins earlier needs it. Zeros need no mark, as cells are zero anyway.
    pub fn taken(&mut self, addr: u64, bytes: &[u8]) {
        if self.at == 0 {
            return;
        }
        let (mut at, mut rest) = (addr, bytes);
        while !rest.is_empty() {
            let (line, behind) = rest.split_at(rest.len().min(64 - (at % 64) as usize));
            if line.iter().any(|b| *b != 0) {
                self.set_marks(AccessKind::Reads, at, line.len() as u64, observe::MARK);
            }
            (at, rest) = (at.wrapping_add(line.len() as u64), behind);
        }
    }

    /// Notes that these cells may no longer hold what the program has there.
    pub fn forget(&mut self, addr: u64, len: u64) -> Result<(), Error> {
        if self.at == 0 {
            return Ok(());
        }
        let size = self.predictor.size();
        let (first, len) = (self.predictor.cell(addr), len.min(size));
        for (start, end) in [
            (first, (first + len).min(size)),
            (0, (first + len).saturating_sub(size)),
        ] {
            for kind in [AccessKind::Reads, AccessKind::Writes] {
                self.forget_cells(kind, start, end)?;
            }
        }
        Ok(())
    }

    fn forget_cells(&mut self, kind: AccessKind, start: u64, end: u64) -> Result<(), Error> {
        if start >= end {
            return Ok(());
        }
        if start < observe::SLACK as u64 {
            self.fold_slack(kind)?;
        }
        let one = |cells: std::ops::Range<u64>| {
            if cells.is_empty() {
                return;
            }
            let len = (cells.end - cells.start) as usize;
            // SAFETY: this many marks follow there, and nothing else refers to them.
            let all =
                unsafe { std::slice::from_raw_parts_mut(self.mark_ptr(kind, cells.start), len) };
            for line in all.chunks_mut(64) {
                // Writing would allocate memory for lines without marks.
                if line.iter().fold(0, |any, m| any | m) & !observe::UNKNOWN != 0 {
                    line.iter_mut().for_each(|m| *m &= observe::UNKNOWN);
                }
            }
        };
        if end - start <= PAGE {
            one(start..end);
            return Ok(());
        }
        for part in self.parts_between(kind, start, end)? {
            let cells = part.cells();
            one(cells.start.max(start)..cells.end.min(end));
        }
        Ok(())
    }

    /// The mapping with these marks, and the offset of their first page in it.
    fn stretch(&self, kind: AccessKind) -> (&Mapping, usize) {
        match &self.near {
            Some(near) if kind == AccessKind::Writes => (near, 0),
            _ => (&self.map, self.far(kind)),
        }
    }

    fn stretch_mut(&mut self, kind: AccessKind) -> (&mut Mapping, usize) {
        let far = self.far(kind);
        match &mut self.near {
            Some(near) if kind == AccessKind::Writes => (near, 0),
            _ => (&mut self.map, far),
        }
    }

    fn far(&self, kind: AccessKind) -> usize {
        ((self.at + CTX_SIZE) as i64 + kind.begin()) as usize
    }

    /// Numbers of the pages of marks that are in memory, counted from `first`.
    fn marks_present(&self, kind: AccessKind, first: u64, pages: u64) -> Result<Vec<u32>, Error> {
        let (map, at) = self.stretch(kind);
        map.present(at + (first * PAGE) as usize, (pages * PAGE) as usize)
    }

    fn mark_ptr(&self, kind: AccessKind, cell: u64) -> *mut u8 {
        let (map, at) = self.stretch(kind);
        let at = at + kind.offset().rem_euclid(PAGE as i64) as usize + cell as usize;
        debug_assert!(self.at != 0 && cell <= self.predictor.size() + observe::SLACK as u64);
        // SAFETY: a window with marks has one for each cell, and slack behind them.
        unsafe { map.base().add(at) }
    }

    /// The second place at which a cell may be marked. The first cells have one, behind all marks. Accesses
    /// that begin in the last cells, and those through the FS base, use it.
    fn elsewhere(&self, kind: AccessKind, cell: u64) -> Option<*mut u8> {
        let behind = (self.predictor.size() + cell) as usize;
        // SAFETY: there is slack behind the marks.
        (cell < observe::SLACK as u64).then(|| unsafe { self.mark_ptr(kind, 0).add(behind) })
    }

    /// Replaces the marks of the cells from `addr` on.
    pub fn write_marks(&mut self, kind: AccessKind, addr: u64, new: &[u8]) {
        let first = self.predictor.cell(addr);
        let end = first + new.len() as u64;
        if first >= observe::SLACK as u64 && end <= self.predictor.size() {
            // SAFETY: the range lies among the marks, and the buffer does not.
            unsafe {
                let to = self.mark_ptr(kind, first);
                std::ptr::copy_nonoverlapping(new.as_ptr(), to, new.len());
            }
            return;
        }
        for (i, b) in new.iter().enumerate() {
            let cell = self.predictor.cell(addr.wrapping_add(i as u64));
            // SAFETY: marks are plain memory.
            unsafe {
                *self.mark_ptr(kind, cell) = *b;
                if let Some(other) = self.elsewhere(kind, cell) {
                    *other = 0;
                }
            }
        }
    }

    /// The parts of these pages of cells (ascending).
    pub(crate) fn parts_of(&self, kind: AccessKind, pages: &[u32]) -> Vec<MarkPage> {
        let own = kind.own_lines();
        let both = |page: u32| {
            [(0..own, page), (own..64, page + 1)].map(|(lines, host)| MarkPage {
                page,
                lines,
                host,
            })
        };
        pages.iter().copied().flat_map(both).collect()
    }

    /// The parts that may have marks, ascending.
    pub(crate) fn parts(&self, kind: AccessKind) -> Result<Vec<MarkPage>, Error> {
        self.parts_between(kind, 0, self.predictor.size())
    }

    /// The same for the pages with these cells. May include one page more on each side.
    fn parts_between(
        &self,
        kind: AccessKind,
        start: u64,
        end: u64,
    ) -> Result<Vec<MarkPage>, Error> {
        let size = (self.predictor.size() / PAGE) as u32;
        let own = kind.own_lines();
        let mut out = Vec::new();
        let (first, last) = (start / PAGE, end.div_ceil(PAGE) + 1);
        for page in self.marks_present(kind, first, last - first)? {
            let host = first as u32 + page;
            let part = |page, lines| MarkPage { page, lines, host };
            out.extend(host.checked_sub(1).map(|page| part(page, own..64)));
            out.extend((host < size).then(|| part(host, 0..own)));
        }
        Ok(out)
    }

    /// The lines of marks of a part, for changes.
    pub(crate) fn part_mut(&mut self, kind: AccessKind, part: &MarkPage) -> &mut [[u8; 64]] {
        let (cells, len) = (part.cells(), part.lines.len());
        assert!(cells.end <= self.predictor.size() && self.has_marks());
        // SAFETY: the lines lie among the marks, and nothing else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.mark_ptr(kind, cells.start).cast(), len) }
    }

    /// The lines of marks of a part.
    pub(crate) fn part(&self, kind: AccessKind, part: &MarkPage) -> &[[u8; 64]] {
        let (cells, len) = (part.cells(), part.lines.len());
        assert!(cells.end <= self.predictor.size() && self.has_marks());
        // SAFETY: the lines lie among the marks, and only a running machine changes them.
        unsafe { std::slice::from_raw_parts(self.mark_ptr(kind, cells.start).cast(), len) }
    }

    /// Moves marks in the slack, which is behind the marks of all cells, to the cells that they belong to.
    pub(crate) fn fold_slack(&mut self, kind: AccessKind) -> Result<(), Error> {
        let behind = self.predictor.size() / PAGE;
        if self.marks_present(kind, behind, 1)?.is_empty() {
            return Ok(());
        }
        for cell in 0..observe::SLACK as u64 {
            let Some(other) = self.elsewhere(kind, cell) else {
                continue;
            };
            // SAFETY: marks are plain memory.
            unsafe {
                let there = std::mem::take(&mut *other);
                if there != 0 {
                    *self.mark_ptr(kind, cell) |= there;
                }
            }
        }
        Ok(())
    }

    /// Copies the marks of the cells from `addr` on.
    pub fn marks(&self, kind: AccessKind, addr: u64, buf: &mut [u8]) {
        let first = self.predictor.cell(addr);
        let end = first + buf.len() as u64;
        if first >= observe::SLACK as u64 && end <= self.predictor.size() {
            // SAFETY: the range lies among the marks, and the buffer does not.
            unsafe {
                let from = self.mark_ptr(kind, first);
                std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len());
            }
            return;
        }
        for (i, b) in buf.iter_mut().enumerate() {
            let cell = self.predictor.cell(addr.wrapping_add(i as u64));
            // SAFETY: marks are plain memory.
            unsafe {
                *b = *self.mark_ptr(kind, cell);
                if let Some(other) = self.elsewhere(kind, cell) {
                    *b |= *other;
                }
            }
        }
    }

    /// Marks the `len` cells from `addr` on with `mark`.
    pub fn set_marks(&mut self, kind: AccessKind, addr: u64, len: u64, mark: u8) {
        let size = self.predictor.size();
        let first = self.predictor.cell(addr);
        let len = len.min(size);
        let here = len.min(size - first);
        // SAFETY: both parts lie among the marks.
        unsafe {
            self.mark_ptr(kind, first).write_bytes(mark, here as usize);
            self.mark_ptr(kind, 0)
                .write_bytes(mark, (len - here) as usize);
        }
    }

    /// Marks cells as written with an unknown value.
    pub fn unknown(&mut self, addr: u64, len: u64) {
        for i in 0..len {
            let cell = self.predictor.cell(addr.wrapping_add(i));
            // SAFETY: marks are plain memory.
            unsafe {
                *self.mark_ptr(AccessKind::Reads, cell) &= observe::UNKNOWN;
                if let Some(other) = self.elsewhere(AccessKind::Reads, cell) {
                    *other &= observe::UNKNOWN;
                }
                *self.mark_ptr(AccessKind::Writes, cell) = observe::UNKNOWN;
            }
        }
    }

    /// Whether this window has marks.
    pub fn has_marks(&self) -> bool {
        self.at != 0
    }

    /// Releases pages of marks (ascending, see [`MarkPage::host`]) that are all zero.
    pub(crate) fn give_back(&mut self, kind: AccessKind, hosts: &[u32]) -> Result<(), Error> {
        let (map, base) = self.stretch_mut(kind);
        let start = map.base() as usize + base;
        let at = |host: u32| host as usize * PAGE as usize;
        let large = |host: u32| (start + at(host)) / LARGE_PAGE;
        if map.has_large_pages() {
            // The kernel would cut a large page in small ones, and not release a part of it.
            let whole = LARGE_PAGE / PAGE as usize;
            let pages = hosts.chunk_by(|a, b| large(*a) == large(*b));
            for run in pages.filter(|run| run.len() == whole) {
                map.discard(base + at(run[0]), LARGE_PAGE)?;
            }
            return Ok(());
        }
        for run in hosts.chunk_by(|a, b| a + 1 == *b) {
            map.discard(base + at(run[0]), run.len() * PAGE as usize)?;
        }
        Ok(())
    }

    /// Removes all marks. From now on anything may be accessed.
    pub fn clear_marks(&mut self) -> Result<(), Error> {
        self.dirty = Dirty::Any;
        for kind in [AccessKind::Reads, AccessKind::Writes] {
            let (map, at) = self.stretch_mut(kind);
            map.discard(at, AccessKind::LEN)?;
        }
        Ok(())
    }

    /// Sets a mark in the slack.
    #[cfg(test)]
    pub(crate) fn set_slack(&mut self, kind: AccessKind, at: u64) {
        assert!(at < self.predictor.size() + observe::SLACK as u64);
        // SAFETY: marks are plain memory with slack behind them.
        unsafe { *self.mark_ptr(kind, 0).add(at as usize) = observe::MARK }
    }
}
