//! The access marks of mapped cells. Each kind has a stretch of address space.

use super::super::store::{AccessKind, Cells, MarkPage, Marks, PAGE};
use super::Mapped;
use crate::Error;
use crate::memory::{LARGE_PAGE, Mapping};
use hindsight_isa::ctx::CTX_SIZE;
use hindsight_isa::observe;

impl Mapped {
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

    /// Marks a word from the recording: it was read, or is about to be, and does not have the value that was written.
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
        debug_assert!(self.has_marks() && cell <= self.predictor.size() + observe::SLACK as u64);
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
}

impl Marks for Mapped {
    fn give_word(&mut self, addr: u64, value: u64) {
        self.need(addr, 8);
        self.give_word_prepared(addr, value);
    }

    fn give_bytes(&mut self, addr: u64, len: u8, value: u64) {
        self.need(addr, 8);
        self.give_bytes_prepared(addr, len, value);
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

    fn write_marks(&mut self, kind: AccessKind, addr: u64, new: &[u8]) {
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

    fn parts_of(&self, kind: AccessKind, pages: &[u32]) -> Vec<MarkPage> {
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

    fn part_mut(&mut self, kind: AccessKind, part: &MarkPage) -> &mut [[u8; 64]] {
        let (cells, len) = (part.cells(), part.lines.len());
        assert!(cells.end <= self.predictor.size() && self.has_marks());
        // SAFETY: the lines lie among the marks, and nothing else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.mark_ptr(kind, cells.start).cast(), len) }
    }

    fn part(&self, kind: AccessKind, part: &MarkPage) -> &[[u8; 64]] {
        let (cells, len) = (part.cells(), part.lines.len());
        assert!(cells.end <= self.predictor.size() && self.has_marks());
        // SAFETY: the lines lie among the marks, and only a running machine changes them.
        unsafe { std::slice::from_raw_parts(self.mark_ptr(kind, cells.start).cast(), len) }
    }

    fn fold_slack(&mut self, kind: AccessKind) -> Result<(), Error> {
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

    fn marks(&self, kind: AccessKind, addr: u64, buf: &mut [u8]) {
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

    fn set_marks(&mut self, kind: AccessKind, addr: u64, len: u64, mark: u8) {
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

    fn unknown(&mut self, addr: u64, len: u64) {
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

    fn give_back(&mut self, kind: AccessKind, hosts: &[u32]) -> Result<(), Error> {
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

    fn clear_marks(&mut self) -> Result<(), Error> {
        for kind in [AccessKind::Reads, AccessKind::Writes] {
            let (map, at) = self.stretch_mut(kind);
            map.discard(at, AccessKind::LEN)?;
        }
        Ok(())
    }

    #[cfg(test)]
    fn set_slack(&mut self, kind: AccessKind, at: u64) {
        assert!(at < self.predictor.size() + observe::SLACK as u64);
        // SAFETY: marks are plain memory with slack behind them.
        unsafe { *self.mark_ptr(kind, 0).add(at as usize) = observe::MARK }
    }
}
