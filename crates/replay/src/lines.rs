//! The content of a window, or of its access marks, in compact form. With it a machine can return to an
//! earlier state.

mod bytes;
mod dirty;
mod laid;
mod later;

pub use bytes::SharedPage;
pub(crate) use dirty::Dirty;
pub use later::{MadePages, PageSource};

use crate::Error;
use crate::window::shared::WindowOf;
use crate::window::store::{AccessKind, MarkPage, Marks};
use bytes::Bytes;
use later::LaterPages;
use std::sync::{Arc, Weak};

const PAGE: usize = 4096;
const LINE: usize = 64;
static NONE: [u8; PAGE] = [0; PAGE];
/// Most pages in use or zeroed that stay allocated. Zeroing a page is cheaper than allocating it again.
/// Beyond this number, all are released.
const KEPT: usize = 8192;

/// Lines of 64 cells, or of their access marks. Lines that are missing are zero.
#[derive(Clone, Default)]
pub struct Lines {
    /// Pages of 4096 cells, ascending. Each has a bit for each of its lines that is present.
    pages: Vec<(u32, u64)>,
    /// The lines that are present.
    bytes: Bytes,
}

impl PartialEq for Lines {
    fn eq(&self, other: &Lines) -> bool {
        self.pages == other.pages && self.parts().eq(other.parts())
    }
}

impl Eq for Lines {}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Lines({} pages, {} bytes)",
            self.pages.len(),
            self.bytes.len()
        )
    }
}

impl Lines {
    /// Makes lines from these pages and the bytes of their lines. `None` if the pages do not ascend, or the
    /// bytes are too few or too many.
    pub fn new(pages: Vec<(u32, u64)>, bytes: Vec<u8>) -> Option<Lines> {
        let count: u64 = pages.iter().map(|p| p.1.count_ones() as u64).sum();
        let ascend = pages.is_sorted_by(|a, b| a.0 < b.0);
        (ascend
            && bytes.len() as u64 == count * LINE as u64
            && pages.last().is_none_or(|p| p.0 < 1 << 20))
        .then_some(Lines {
            pages,
            bytes: Bytes::Held(bytes),
        })
    }

    /// All lines of some pages, which others may have, too: nothing is copied. A page that is `None` has no lines. `None` if the
    /// pages do not ascend.
    pub fn shared(pages: impl Iterator<Item = (u32, Option<SharedPage>)>) -> Option<Lines> {
        let (mut list, mut held) = (Vec::new(), Vec::new());
        for (page, its) in pages {
            list.push((page, if its.is_some() { u64::MAX } else { 0 }));
            held.extend(its);
        }
        let ascend = list.is_sorted_by(|a, b| a.0 < b.0);
        (ascend && list.last().is_none_or(|p| p.0 < 1 << 20)).then_some(Lines {
            pages: list,
            bytes: Bytes::Shared(held.into()),
        })
    }

    /// All lines of some pages. What they hold is asked of `source` when somebody needs it: a window makes a page when the program
    /// touches it. `None` if the pages do not ascend.
    pub fn later(pages: Vec<u32>, source: Box<dyn PageSource>) -> Option<Lines> {
        let ascend = pages.is_sorted_by(|a, b| a < b) && pages.last().is_none_or(|p| *p < 1 << 20);
        ascend.then(|| Lines {
            pages: pages.iter().map(|page| (*page, u64::MAX)).collect(),
            bytes: Bytes::Later(Arc::new(LaterPages::new(pages.into(), source))),
        })
    }

    /// Passes those pages to `show` that were made so far, of those that are made when somebody needs them.
    pub fn each_made(&self, show: &mut dyn FnMut(u32, &SharedPage)) {
        if let Bytes::Later(pages) = &self.bytes {
            pages.made().for_each(|(number, page)| show(number, page));
        }
    }

    /// The lines that those pages come from that are not made yet, if they come from others.
    pub fn root(&self) -> Option<&Lines> {
        match &self.bytes {
            Bytes::Later(pages) => pages.root(),
            _ => None,
        }
    }

    /// Whether a page that had to be made could not be. Zeros then stand for it, and no answer may come from them.
    pub fn is_bad(&self) -> bool {
        matches!(&self.bytes, Bytes::Later(pages) if pages.is_bad())
    }

    /// How many pages were made so far, of those that are made when somebody needs them.
    pub fn made(&self) -> usize {
        match &self.bytes {
            Bytes::Later(pages) => pages.count(),
            _ => 0,
        }
    }

    /// The number of each page that has a line, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().filter(|p| p.1 != 0).map(|p| p.0)
    }

    /// Whether pages are made when somebody needs them.
    pub fn is_later(&self) -> bool {
        matches!(self.bytes, Bytes::Later(_))
    }

    /// Those of its pages that are made when somebody needs them.
    pub fn made_pages(&self) -> MadePages {
        MadePages(match &self.bytes {
            Bytes::Later(pages) => Arc::downgrade(pages),
            _ => Weak::new(),
        })
    }

    /// The same lines, all of whose pages are made.
    fn all_made(&self) -> Lines {
        let mut all = Vec::new();
        self.each_shared(&mut |page, its| all.push((page, Some(its))));
        Lines::shared(all.into_iter()).unwrap_or_default()
    }

    /// The same lines in whole pages, unless they are in such pages already.
    pub fn in_pages(self) -> Lines {
        if !matches!(self.bytes, Bytes::Held(_)) {
            return self;
        }
        let mut all = Vec::new();
        self.each(&mut |page, bytes| all.push((page, Some(Arc::new(*bytes)))));
        Lines::shared(all.into_iter()).unwrap_or_default()
    }

    /// A page of [`Lines::in_pages`]. `None`: the page is not among them.
    pub fn page(&self, page: u32) -> Option<SharedPage> {
        let i = self.pages.binary_search_by_key(&page, |p| p.0).ok()?;
        match &self.bytes {
            Bytes::Later(pages) => Some(Arc::clone(pages.page(i))),
            Bytes::Shared(pages) if pages.len() == self.pages.len() => Some(Arc::clone(&pages[i])),
            Bytes::File(file) => {
                let its = file.bytes().get(i * PAGE..)?.first_chunk()?;
                Some(Arc::new(*its))
            }
            Bytes::Held(_) | Bytes::Shared(_) => {
                let (mut all, mut now) = (self.reader(), NONE);
                let (mask, lines) = all.page(page);
                lay(&mut now, mask, lines);
                Some(Arc::new(now))
            }
        }
    }

    /// A page of those that are made when somebody needs them, to be copied at once.
    pub(crate) fn later_page(&self, page: u32) -> Option<SharedPage> {
        let Bytes::Later(pages) = &self.bytes else {
            return None;
        };
        let i = self.pages.binary_search_by_key(&page, |p| p.0).ok()?;
        Some(pages.look(i))
    }

    /// The same, to be looked at. It is kept.
    #[cfg(any(test, not(unix)))]
    pub(crate) fn later_cells(&self, page: u32) -> Option<&[u8; PAGE]> {
        let Bytes::Later(pages) = &self.bytes else {
            return None;
        };
        let i = self.pages.binary_search_by_key(&page, |p| p.0).ok()?;
        Some(pages.page(i))
    }

    /// The bytes of all lines, one behind the other, to be used again. Those of a file, or of pages that others have, are none.
    pub fn into_bytes(self) -> Vec<u8> {
        match self.bytes {
            Bytes::Held(bytes) => bytes,
            Bytes::File(_) | Bytes::Shared(_) | Bytes::Later(_) => Vec::new(),
        }
    }

    /// Whether a window that holds `other` holds these lines, without a look at the pages.
    pub fn is_same(&self, other: &Lines) -> bool {
        match (&self.bytes, &other.bytes) {
            (Bytes::File(a), Bytes::File(b)) => Arc::ptr_eq(a, b),
            (Bytes::Later(a), Bytes::Later(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Each page that has a line: its number, the mask of its lines, and their bytes.
    fn parts(&self) -> impl Iterator<Item = (u32, u64, &[u8])> {
        let mut at = 0;
        let some = self.pages.iter().filter(|p| p.1 != 0);
        some.map(move |(page, mask)| {
            let len = mask.count_ones() as usize * LINE;
            at += len;
            (*page, *mask, self.bytes.part(at - len, len))
        })
    }

    /// Passes each page that has a line to `show`: its number, ascending, and its content.
    pub fn each(&self, show: &mut dyn FnMut(u32, &[u8; PAGE])) {
        let mut now = NONE;
        for (page, mask, lines) in self.parts() {
            if let (u64::MAX, Ok(whole)) = (mask, lines.try_into()) {
                show(page, whole);
                continue;
            }
            now.fill(0);
            lay(&mut now, mask, lines);
            show(page, &now);
        }
    }

    /// The same with pages to keep. They are copied only if they are not shared yet.
    pub fn each_shared(&self, take: &mut dyn FnMut(u32, SharedPage)) {
        match &self.bytes {
            Bytes::Shared(pages) => {
                let numbers = self.pages.iter().filter(|p| p.1 != 0);
                let both = numbers.zip(pages.iter());
                both.for_each(|(page, its)| take(page.0, Arc::clone(its)));
            }
            Bytes::Later(pages) => {
                let numbers = self.numbers().enumerate();
                numbers.for_each(|(i, page)| take(page, Arc::clone(pages.page(i))));
            }
            _ => self.each(&mut |page, bytes| take(page, Arc::new(*bytes))),
        }
    }

    /// Bytes of memory that it takes, shared pages included.
    pub fn size(&self) -> usize {
        self.pages.len() * size_of::<(u32, u64)>() + self.bytes.size()
    }

    /// Adds lines of a page behind the last page.
    fn push(&mut self, page: u32, mask: u64, content: &[u8; PAGE]) {
        self.pages.push((page, mask));
        let mut rest = mask;
        while rest != 0 {
            // Copies adjacent lines at once.
            let first = rest.trailing_zeros() as usize;
            let run = (rest >> first).trailing_ones() as usize;
            let part = &content[first * LINE..(first + run) * LINE];
            self.bytes.extend(part);
            rest &= u64::MAX.checked_shl((first + run) as u32).unwrap_or(0);
        }
    }

    fn reader(&self) -> Reader<'_> {
        Reader {
            pages: &self.pages,
            bytes: &self.bytes,
            at: 0,
        }
    }
}

/// Reads lines page by page.
struct Reader<'a> {
    pages: &'a [(u32, u64)],
    bytes: &'a Bytes,
    /// Where the lines of the first of the pages are.
    at: usize,
}

impl<'a> Reader<'a> {
    /// The lines of a page. Pages must be asked for in ascending order.
    fn page(&mut self, page: u32) -> (u64, &'a [u8]) {
        while let Some(((p, mask), rest)) = self.pages.split_first()
            && *p <= page
        {
            let (at, len) = (self.at, mask.count_ones() as usize * LINE);
            (self.pages, self.at) = (rest, at + len);
            if *p == page {
                return (*mask, self.bytes.part(at, len));
            }
        }
        (0, &[])
    }
}

/// Copies lines to their offsets in a page.
fn lay(to: &mut [u8; PAGE], mask: u64, mut lines: &[u8]) {
    let mut rest = mask;
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let run = (rest >> first).trailing_ones() as usize;
        let (part, behind) = lines.split_at(run * LINE);
        to[first * LINE..(first + run) * LINE].copy_from_slice(part);
        lines = behind;
        rest &= u64::MAX.checked_shl((first + run) as u32).unwrap_or(0);
    }
}

/// Sets a page to these lines, and to zero elsewhere.
fn put(to: &mut [u8; PAGE], mask: u64, lines: &[u8]) {
    // A page that is not in memory yet is written to first: to read it first would cost one more page fault.
    lay(to, mask, lines);
    let rest = to.as_chunks_mut::<LINE>().0.iter_mut().enumerate();
    for (_, to) in rest.filter(|(i, _)| mask & 1 << i == 0) {
        // Writing would allocate memory, so zero lines are not written again.
        if !same(to, &[0; LINE]) {
            *to = [0; LINE];
        }
    }
}

/// Whether two lines are equal. Makes no calls.
fn same(a: &[u8; LINE], b: &[u8; LINE]) -> bool {
    let words = |line: &[u8; LINE]| -> [u64; LINE / 8] {
        let all = line.as_chunks().0;
        std::array::from_fn(|i| u64::from_ne_bytes(all[i]))
    };
    let both = words(a).into_iter().zip(words(b));
    both.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// A bit for each line of a page that differs from `lines`. A line without counterpart is compared with
/// zeros.
fn differing(page: &[u8; PAGE], mask: u64, lines: &[u8]) -> u64 {
    let mut lines = lines.as_chunks::<LINE>().0.iter();
    let all = page.as_chunks::<LINE>().0.iter().enumerate();
    all.fold(0, |differ, (i, line)| {
        let was = (mask & 1 << i != 0).then(|| lines.next()).flatten();
        differ | (!same(line, was.unwrap_or(&[0; LINE])) as u64) << i
    })
}

/// The union, ascending, of some pages and the pages of two sets of lines.
fn union(pages: &[u32], a: &Lines, b: &Lines) -> Vec<u32> {
    let lines = [a, b].into_iter().flat_map(|l| &l.pages);
    let lines = lines.filter(|p| p.1 != 0).map(|p| p.0);
    let mut all: Vec<u32> = pages.iter().copied().chain(lines).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl<C: Marks> WindowOf<C> {
    /// Pages whose cells may be nonzero.
    fn dirty_cells(&self) -> Result<Vec<u32>, Error> {
        match self.dirty.known() {
            Some(pages) => Ok(pages),
            None => Ok(self.dirty.among(self.pages()?, |p| *p)),
        }
    }

    /// Parts of pages that may have marks.
    fn dirty_marks(&self, kind: AccessKind) -> Result<Vec<MarkPage>, Error> {
        // Each page of marks that is looked at and not in memory costs a page fault.
        match self.dirty.known().filter(|pages| pages.len() <= KEPT) {
            Some(pages) => Ok(self.parts_of(kind, &pages)),
            None => Ok(self.dirty.among(self.parts(kind)?, |p| p.page)),
        }
    }

    /// Sets the cells to `lines` and removes all marks. The pages of `lines` are all that the program
    /// accesses before the next call.
    pub(crate) fn begin_with(&mut self, lines: &Lines) -> Result<(), Error> {
        if lines.is_later() {
            return self.begin_anywhere(lines);
        }
        if self.laid.is_some() {
            self.empty()?;
        }
        self.was_bad = false;
        if self.dirty.known().is_none() {
            self.in_use = self.pages()?.into_iter().collect();
        }
        self.in_use.extend(lines.pages.iter().map(|p| p.0));
        if self.in_use.len() > KEPT + lines.pages.len() {
            self.empty()?;
        }
        let none = Lines::default();
        let done = self
            .become_lines(lines, &none)
            .and_then(|()| self.become_marked(AccessKind::Reads, &none))
            .and_then(|()| self.become_marked(AccessKind::Writes, &none));
        if done.is_err() {
            self.dirty = Dirty::Any;
            return done;
        }
        let pages = lines.pages.iter().map(|p| p.0).collect();
        self.dirty = Dirty::These(pages, Vec::new());
        debug_assert!(self.is_clean()?, "what was not to be accessed was");
        Ok(())
    }

    /// Sets the cells that `lines` has. The program may access the pages of `lines` from now on, too.
    pub(crate) fn add_lines(&mut self, lines: &Lines) {
        if let Dirty::These(pages, _) = &mut self.dirty {
            pages.extend(lines.pages.iter().map(|p| p.0));
            pages.sort_unstable();
            pages.dedup();
        }
        self.in_use.extend(lines.pages.iter().map(|p| p.0));
        for (page, mask, its) in lines.parts() {
            let to = self.page_mut(page).as_chunks_mut::<LINE>().0;
            let there = to.iter_mut().enumerate();
            let there = there.filter(|(i, _)| mask & 1 << i != 0);
            for ((_, to), line) in there.zip(its.as_chunks::<LINE>().0) {
                // Writing zeros would allocate memory.
                if !same(to, line) {
                    *to = *line;
                }
            }
        }
    }

    /// Removes all cells and marks, and releases their memory.
    pub(super) fn empty(&mut self) -> Result<(), Error> {
        self.clear()?;
        if self.has_marks() {
            self.clear_marks()?;
        }
        self.in_use.clear();
        // Nothing is in memory, so the kernel need not be asked.
        self.dirty = Dirty::These(Vec::new(), Vec::new());
        Ok(())
    }

    /// Like [`WindowOf::begin_with`], but the program may access anything.
    pub(crate) fn begin_anywhere(&mut self, lines: &Lines) -> Result<(), Error> {
        if !self.lay(lines)? {
            match lines.is_later() {
                true => self.begin_with(&lines.all_made())?,
                false => self.begin_with(lines)?,
            }
        }
        self.was_bad = lines.is_bad();
        self.dirty = Dirty::Any;
        Ok(())
    }

    /// Sets the cells of a window without marks to `lines`.
    pub(crate) fn hold(&mut self, lines: &Lines) -> Result<(), Error> {
        if !self.lay(lines)? {
            self.clear()?;
            self.add_lines(lines);
        }
        self.was_bad = lines.is_bad();
        Ok(())
    }

    /// Whether the cells and marks that should be zero are. Looks at all of them.
    fn is_clean(&self) -> Result<bool, Error> {
        let Dirty::These(pages, _) = &self.dirty else {
            return Ok(true);
        };
        let other = |p: &u32| pages.binary_search(p).is_err();
        let cells = self.pages()?.into_iter().filter(other);
        let mut clean = cells.into_iter().all(|p| *self.page(p) == NONE);
        for kind in [AccessKind::Reads, AccessKind::Writes] {
            let mut parts = self.parts(kind)?.into_iter().filter(|p| other(&p.page));
            clean &=
                parts.all(|p| *self.part(kind, &p).as_flattened() == NONE[..64 * p.lines.len()]);
        }
        Ok(clean)
    }

    /// The lines of the cells that differ from `base`.
    pub(crate) fn beyond(&self, base: &Lines) -> Result<Lines, Error> {
        let mut out = Lines::default();
        let mut from = base.reader();
        for page in self.compared(base, &Lines::default())? {
            let cells = self.page(page);
            let (mask, lines) = from.page(page);
            let mask = differing(cells, mask, lines);
            if mask != 0 {
                out.push(page, mask, cells);
            }
        }
        Ok(out)
    }

    /// Sets the cells to `more` where it has lines, to `base` elsewhere, and to zero where neither has a
    /// line.
    pub(crate) fn become_lines(&mut self, base: &Lines, more: &Lines) -> Result<(), Error> {
        let (mut from, mut over) = (base.reader(), more.reader());
        let mut laid = NONE;
        for page in self.compared(base, more)? {
            let (a, b) = (from.page(page), over.page(page));
            let to = self.page_mut(page);
            match (a.0, b.0) {
                (_, u64::MAX) => put(to, b.0, b.1),
                (0, _) => put(to, b.0, b.1),
                (_, 0) => put(to, a.0, a.1),
                _ => {
                    laid.fill(0);
                    lay(&mut laid, a.0, a.1);
                    lay(&mut laid, b.0, b.1);
                    if *to != laid {
                        *to = laid;
                    }
                }
            }
        }
        self.was_bad |= base.is_bad();
        Ok(())
    }

    /// The lines that have marks.
    pub(crate) fn marked_lines(&mut self, kind: AccessKind) -> Result<Lines, Error> {
        self.fold_slack(kind)?;
        let mut out = Lines::default();
        for part in self.dirty_marks(kind)? {
            let marked = self.part(kind, &part).iter().enumerate();
            for (i, line) in marked.filter(|(_, l)| !same(l, &[0; LINE])) {
                let mask = 1 << (part.lines.start + i);
                match out.pages.last_mut() {
                    Some(last) if last.0 == part.page => last.1 |= mask,
                    _ => out.pages.push((part.page, mask)),
                }
                out.bytes.extend(line);
            }
        }
        Ok(out)
    }

    /// Sets the marks to these lines. All other marks are removed.
    pub(crate) fn become_marked(&mut self, kind: AccessKind, lines: &Lines) -> Result<(), Error> {
        self.fold_slack(kind)?;
        for part in self.dirty_marks(kind)? {
            // Writing zeros would allocate memory.
            if !self.part(kind, &part).iter().all(|l| same(l, &[0; LINE])) {
                self.part_mut(kind, &part).fill([0; LINE]);
            }
        }
        for (page, mask, its) in lines.parts() {
            let all = (0..64u64).filter(|i| mask & (1 << i) != 0);
            for (i, line) in all.zip(its.chunks_exact(LINE)) {
                self.write_marks(kind, page as u64 * PAGE as u64 + i * LINE as u64, line);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
