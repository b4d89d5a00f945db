//! The access marks of cells in pages: each kind has pages of its own. There is no slack.

use super::super::store::{AccessKind, Cells, MarkPage, Marks, PAGE, PAGE_LEN};
use super::table::{NONE, Table};
use super::{Paged, parts};
use crate::Error;
use hindsight_isa::observe;

impl Paged {
    /// The marks of a kind.
    ///
    /// # Panics
    /// There are none.
    #[inline(always)]
    fn of(&self, kind: AccessKind) -> &Table {
        match &self.marks {
            Some(marks) => &marks[kind as usize],
            None => panic!("the window has no marks"),
        }
    }

    #[inline(always)]
    fn of_mut(&mut self, kind: AccessKind) -> &mut Table {
        match &mut self.marks {
            Some(marks) => &mut marks[kind as usize],
            None => panic!("the window has no marks"),
        }
    }
}

impl Marks for Paged {
    fn give_word(&mut self, addr: u64, value: u64) {
        self.give_bytes(addr, 8, value);
    }

    fn give_bytes(&mut self, addr: u64, len: u8, value: u64) {
        let len = len.min(8) as usize;
        self.write(addr, &value.to_le_bytes()[..len]);
        if !self.has_marks() {
            return;
        }
        // It was read, and does not have the value that was written.
        self.set_marks(AccessKind::Reads, addr, len as u64, observe::MARK);
        for part in parts(self.predictor, addr, len) {
            if let Some(page) = self.of_mut(AccessKind::Writes).get_mut(part.page) {
                page[part.at]
                    .iter_mut()
                    .for_each(|m| *m &= observe::UNKNOWN);
            }
        }
    }

    fn forget_cells(&mut self, kind: AccessKind, start: u64, end: u64) -> Result<(), Error> {
        let pages = (start / PAGE) as u32..end.div_ceil(PAGE) as u32;
        let table = self.of_mut(kind);
        let there: Vec<u32> = table.numbers(pages).collect();
        for page in there {
            let first = page as u64 * PAGE;
            let from = start.saturating_sub(first) as usize;
            let to = (end - first).min(PAGE) as usize;
            if let Some(marks) = table.get_mut(page) {
                marks[from..to]
                    .iter_mut()
                    .for_each(|m| *m &= observe::UNKNOWN);
            }
        }
        Ok(())
    }

    fn write_marks(&mut self, kind: AccessKind, addr: u64, new: &[u8]) {
        for part in parts(self.predictor, addr, new.len()) {
            self.of_mut(kind).made(part.page)[part.at].copy_from_slice(&new[part.of]);
        }
    }

    fn parts_of(&self, _: AccessKind, pages: &[u32]) -> Vec<MarkPage> {
        pages.iter().map(|page| whole(*page)).collect()
    }

    fn parts_between(
        &self,
        kind: AccessKind,
        start: u64,
        end: u64,
    ) -> Result<Vec<MarkPage>, Error> {
        let pages = (start / PAGE) as u32..end.div_ceil(PAGE) as u32;
        Ok(self.of(kind).numbers(pages).map(whole).collect())
    }

    fn part_mut(&mut self, kind: AccessKind, part: &MarkPage) -> &mut [[u8; 64]] {
        self.of_mut(kind).made(part.page).as_chunks_mut().0
    }

    fn part(&self, kind: AccessKind, part: &MarkPage) -> &[[u8; 64]] {
        self.of(kind).get(part.page).unwrap_or(&NONE).as_chunks().0
    }

    fn fold_slack(&mut self, _: AccessKind) -> Result<(), Error> {
        Ok(())
    }

    fn marks(&self, kind: AccessKind, addr: u64, buf: &mut [u8]) {
        for part in parts(self.predictor, addr, buf.len()) {
            let page = self.of(kind).get(part.page).unwrap_or(&NONE);
            buf[part.of].copy_from_slice(&page[part.at]);
        }
    }

    #[inline(always)]
    fn set_marks(&mut self, kind: AccessKind, addr: u64, len: u64, mark: u8) {
        let cell = self.predictor.cell(addr);
        let at = (cell % PAGE) as usize;
        if len <= PAGE - at as u64 {
            let page = self.of_mut(kind).made((cell / PAGE) as u32);
            return page[at..at + len as usize].fill(mark);
        }
        // Each byte has at most one mark.
        let len = len.min(self.predictor.size());
        let mut done = 0;
        while done < len {
            let some = (len - done).min(1 << 30);
            for part in parts(self.predictor, addr.wrapping_add(done), some as usize) {
                self.of_mut(kind).made(part.page)[part.at].fill(mark);
            }
            done += some;
        }
    }

    fn unknown(&mut self, addr: u64, len: u64) {
        for i in 0..len {
            let cell = self.predictor.cell(addr.wrapping_add(i));
            let (page, at) = ((cell / PAGE) as u32, (cell % PAGE) as usize);
            if let Some(reads) = self.of_mut(AccessKind::Reads).get_mut(page) {
                reads[at] &= observe::UNKNOWN;
            }
            self.of_mut(AccessKind::Writes).made(page)[at] = observe::UNKNOWN;
        }
    }

    fn give_back(&mut self, kind: AccessKind, hosts: &[u32]) -> Result<(), Error> {
        let table = self.of_mut(kind);
        hosts.iter().for_each(|host| table.remove(*host..*host + 1));
        Ok(())
    }

    fn clear_marks(&mut self) -> Result<(), Error> {
        self.marks.iter_mut().flatten().for_each(Table::clear);
        Ok(())
    }

    #[cfg(test)]
    fn set_slack(&mut self, kind: AccessKind, at: u64) {
        self.set_marks(kind, at, 1, observe::MARK);
    }
}

/// All lines of a page.
fn whole(page: u32) -> MarkPage {
    MarkPage {
        page,
        lines: 0..PAGE_LEN / 64,
        host: page,
    }
}
