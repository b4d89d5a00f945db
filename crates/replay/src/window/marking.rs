//! The access marks of a window.

use super::shared::WindowOf;
use super::store::{AccessKind, MarkPage, Marks};
use crate::Error;
use crate::lines::Dirty;
use hindsight_isa::observe;

impl<C: Marks> WindowOf<C> {
    /// Takes a word from the recording.
    pub fn give_word(&mut self, addr: u64, value: u64) {
        self.store.give_word(addr, value);
    }

    /// Takes the low `len` (at most 8) bytes of a word from the recording.
    pub fn give_bytes(&mut self, addr: u64, len: u8, value: u64) {
        self.store.give_bytes(addr, len, value);
    }

    /// Marks memory from the recording as read.
    pub fn given(&mut self, addr: u64, len: u64) -> Result<(), Error> {
        if !self.has_marks() {
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
        if !self.has_marks() {
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
        if !self.has_marks() {
            return Ok(());
        }
        let size = self.size();
        let (first, len) = (self.store.predictor().cell(addr), len.min(size));
        for (start, end) in [
            (first, (first + len).min(size)),
            (0, (first + len).saturating_sub(size)),
        ] {
            for kind in [AccessKind::Reads, AccessKind::Writes] {
                self.store.forget_cells(kind, start, end)?;
            }
        }
        Ok(())
    }

    /// Replaces the marks of the cells from `addr` on.
    pub fn write_marks(&mut self, kind: AccessKind, addr: u64, new: &[u8]) {
        self.store.write_marks(kind, addr, new);
    }

    /// The parts of these pages of cells (ascending).
    pub(crate) fn parts_of(&self, kind: AccessKind, pages: &[u32]) -> Vec<MarkPage> {
        self.store.parts_of(kind, pages)
    }

    /// The parts that may have marks, ascending.
    pub(crate) fn parts(&self, kind: AccessKind) -> Result<Vec<MarkPage>, Error> {
        self.store.parts_between(kind, 0, self.size())
    }

    /// The lines of marks of a part, for changes.
    pub(crate) fn part_mut(&mut self, kind: AccessKind, part: &MarkPage) -> &mut [[u8; 64]] {
        self.store.part_mut(kind, part)
    }

    /// The lines of marks of a part.
    pub(crate) fn part(&self, kind: AccessKind, part: &MarkPage) -> &[[u8; 64]] {
        self.store.part(kind, part)
    }

    /// Moves marks in the slack, which is behind the marks of all cells, to the cells that they belong to.
    pub(crate) fn fold_slack(&mut self, kind: AccessKind) -> Result<(), Error> {
        self.store.fold_slack(kind)
    }

    /// Copies the marks of the cells from `addr` on.
    pub fn marks(&self, kind: AccessKind, addr: u64, buf: &mut [u8]) {
        self.store.marks(kind, addr, buf);
    }

    /// Marks the `len` cells from `addr` on with `mark`.
    #[inline(always)]
    pub fn set_marks(&mut self, kind: AccessKind, addr: u64, len: u64, mark: u8) {
        self.store.set_marks(kind, addr, len, mark);
    }

    /// Marks cells as written with an unknown value.
    pub fn unknown(&mut self, addr: u64, len: u64) {
        self.store.unknown(addr, len);
    }

    /// Whether this window has marks.
    #[inline(always)]
    pub fn has_marks(&self) -> bool {
        self.store.has_marks()
    }

    /// Releases pages of marks (ascending, see [`MarkPage::host`]) that are all zero.
    pub(crate) fn give_back(&mut self, kind: AccessKind, hosts: &[u32]) -> Result<(), Error> {
        self.store.give_back(kind, hosts)
    }

    /// Removes all marks. From now on anything may be accessed.
    pub fn clear_marks(&mut self) -> Result<(), Error> {
        self.dirty = Dirty::Any;
        self.store.clear_marks()
    }

    /// Sets a mark in the slack.
    #[cfg(test)]
    pub(crate) fn set_slack(&mut self, kind: AccessKind, at: u64) {
        self.store.set_slack(kind, at);
    }
}
