//! Where the bytes of lines are.

use super::later::LaterPages;
use super::{LINE, PAGE};
use crate::memory::MemoryFile;
use std::sync::Arc;

/// A page of cells that several may have. Who changes it makes a copy first, unless nobody else has it.
pub type SharedPage = Arc<[u8; PAGE]>;

/// The bytes of lines, one line behind the other.
#[derive(Clone)]
pub(super) enum Bytes {
    Held(Vec<u8>),
    /// Whole pages. A window can have them without a copy.
    File(Arc<MemoryFile>),
    /// Whole pages, which others may have, too.
    Shared(Arc<[SharedPage]>),
    /// Whole pages, made when somebody needs them.
    Later(Arc<LaterPages>),
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes::Held(Vec::new())
    }
}

impl Bytes {
    /// Bytes of memory that it takes.
    pub(super) fn size(&self) -> usize {
        match self {
            Bytes::Later(pages) => pages.count() * PAGE,
            _ => self.len(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Bytes::Later(pages) => pages.len() * PAGE,
            Bytes::Held(bytes) => bytes.len(),
            Bytes::File(file) => file.bytes().len(),
            Bytes::Shared(pages) => pages.len() * PAGE,
        }
    }

    /// The bytes `at..at + len`, which are lines of one page.
    ///
    /// # Panics
    /// When they are not.
    pub(super) fn part(&self, at: usize, len: usize) -> &[u8] {
        match self {
            _ if len == 0 => &[],
            Bytes::Held(bytes) => &bytes[at..at + len],
            Bytes::File(file) => &file.bytes()[at..at + len],
            Bytes::Shared(pages) => &pages[at / PAGE][at % PAGE..at % PAGE + len],
            Bytes::Later(pages) => &pages.page(at / PAGE)[at % PAGE..at % PAGE + len],
        }
    }

    /// Adds bytes behind the last ones.
    pub(super) fn extend(&mut self, part: &[u8]) {
        if !matches!(self, Bytes::Held(_)) {
            let lines = (0..self.len()).step_by(LINE);
            let all: Vec<u8> = lines.flat_map(|at| self.part(at, LINE)).copied().collect();
            *self = Bytes::Held(all);
        }
        if let Bytes::Held(bytes) = self {
            bytes.extend_from_slice(part);
        }
    }
}
