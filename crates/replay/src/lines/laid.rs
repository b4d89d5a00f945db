//! Content that a window takes over without a copy.
//!
//! - Content in a file in memory lies over the cells. A page is copied when it is written to.
//! - Content that is made later leaves the cells inaccessible. A page is made when it is touched.

use super::bytes::Bytes;
use super::later::{LaterPages, MadePages};
use super::{Lines, NONE, PAGE, SharedPage, union};
use crate::Error;
use crate::memory::MemoryFile;
use crate::window::shared::WindowOf;
use crate::window::store::Marks;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A window releases its memory in blocks of this many pages. The kernel may have it in pieces of this size.
const BLOCK: u32 = 512;
/// A file is laid over a window in at most this many places. The kernel limits how many mappings a process has.
const PLACES: usize = 8192;

/// Runs of these pages, which ascend. Where they would be too many, some have further pages between.
fn joined(pages: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    let mut gap = 0;
    for page in pages {
        match runs.last_mut() {
            Some(last) if page - last.end <= gap => last.end = page + 1,
            _ => runs.push(page..page + 1),
        }
        while runs.len() > PLACES {
            gap = 2 * gap + 1;
            runs = runs.into_iter().fold(Vec::new(), |mut all, run| {
                match all.last_mut() {
                    Some(last) if run.start - last.end <= gap => last.end = run.end,
                    _ => all.push(run),
                }
                all
            });
        }
    }
    runs
}

/// Pages in place of those of `laid`, or beside them. What has no root is one.
fn on_top(laid: &Lines, mut new: BTreeMap<u32, SharedPage>) -> Lines {
    let root = laid.root().unwrap_or(laid);
    if !root.is_same(laid) {
        laid.each_made(&mut |number, page| {
            new.entry(number).or_insert_with(|| Arc::clone(page));
        });
    }
    let mut pages: Vec<u32> = laid.numbers().chain(new.keys().copied()).collect();
    pages.sort_unstable();
    pages.dedup();
    let list = pages.iter().map(|page| (*page, u64::MAX)).collect();
    let pages = LaterPages::beside(root.clone(), new.into_iter(), pages.into());
    Lines {
        pages: list,
        bytes: Bytes::Later(Arc::new(pages)),
    }
}

impl<C: Marks> WindowOf<C> {
    /// Sets the cells to `lines` without a copy, and removes all marks, if the lines are in a file or are made later. A page then takes
    /// memory of its own when it is written to, or when it is touched.
    pub(super) fn lay(&mut self, lines: &Lines) -> Result<bool, Error> {
        match &lines.bytes {
            Bytes::File(file) => self.lay_file(lines, file),
            Bytes::Later(_) => self.lay_pages_later(lines),
            Bytes::Held(_) | Bytes::Shared(_) => Ok(false),
        }
    }

    fn lay_pages_later(&mut self, lines: &Lines) -> Result<bool, Error> {
        self.empty()?;
        self.laid = Some(lines.clone());
        if self
            .lay_later(joined(lines.numbers().filter(|p| *p > 0)), lines)
            .is_err()
        {
            // The kernel allows no more mappings. A copy does, too.
            self.empty()?;
            return Ok(false);
        }
        if let Some(first) = lines.later_page(0) {
            *self.page_mut(0) = *first;
        }
        Ok(true)
    }

    fn lay_file(&mut self, lines: &Lines, file: &MemoryFile) -> Result<bool, Error> {
        // The first page has a second mapping, so it is copied.
        let first = lines.pages.first().is_some_and(|p| p.0 == 0) as usize;
        let numbers: Vec<u32> = lines.pages[first..].iter().map(|p| p.0).collect();
        let runs = || numbers.chunk_by(|a, b| a + 1 == *b);
        if runs().count() > PLACES {
            return Ok(false);
        }
        self.empty()?;
        self.laid = Some(lines.clone());
        let mut at = first * PAGE;
        for run in runs() {
            if self.lay_pages(run[0], run.len(), file, at).is_err() {
                // The kernel allows no more mappings. A copy does, too.
                self.empty()?;
                return Ok(false);
            }
            at += run.len() * PAGE;
        }
        if first == 1 {
            self.page_mut(0).copy_from_slice(lines.bytes.part(0, PAGE));
        }
        Ok(true)
    }

    /// All that the window holds. It gives its memory away page by page, to pages in a file, or to pages of their own beside those that
    /// still wait to be touched. The window is of no use afterwards. Where there can be no file, or a file lies over the window, it
    /// is a copy.
    pub(crate) fn take_content(&mut self) -> Result<Lines, Error> {
        if let Some(laid) = self.laid.clone().filter(Lines::is_later) {
            return self.take_later(&laid);
        }
        let pages = self.pages()?;
        let file = MemoryFile::new(pages.len() * PAGE);
        let Some(mut file) = file.ok().filter(|_| self.laid.is_none()) else {
            return self.content();
        };
        let mut out = Vec::new();
        let mut to = file.bytes_mut().chunks_exact_mut(PAGE);
        for block in pages.chunk_by(|a, b| a / BLOCK == b / BLOCK) {
            for page in block.iter().filter(|p| *self.page(**p) != NONE) {
                let Some(to) = to.next() else { break };
                to.copy_from_slice(self.page(*page));
                out.push((*page, u64::MAX));
            }
            let begin = (block[0] / BLOCK * BLOCK) as u64;
            self.zero(begin * PAGE as u64, BLOCK as u64 * PAGE as u64)?;
        }
        file.shorten(out.len() * PAGE);
        Ok(Lines {
            pages: out,
            bytes: Bytes::File(Arc::new(file)),
        })
    }

    fn take_later(&mut self, laid: &Lines) -> Result<Lines, Error> {
        if self.is_bad() {
            return Err(Error::Damaged);
        }
        let mut new = BTreeMap::new();
        let made = [laid.made_pages()];
        let compared = self.compared(laid, &Lines::default())?;
        for block in compared.chunk_by(|a, b| a / BLOCK == b / BLOCK) {
            new.extend(block.iter().map(|page| (*page, self.copied(*page, &made))));
            let begin = (block[0] / BLOCK * BLOCK) as u64;
            self.zero(begin * PAGE as u64, BLOCK as u64 * PAGE as u64)?;
        }
        Ok(on_top(laid, new))
    }

    /// A page that is accessible, from these if they have it, or else a copy.
    fn copied(&self, page: u32, made: &[MadePages]) -> SharedPage {
        let now = self.page(page);
        let same = |made: &MadePages| made.page(page).filter(|was| **was == *now);
        let same = made.iter().find_map(same);
        same.unwrap_or_else(|| Arc::new(*now))
    }

    /// Whether a page could not be made since the window began with its content. Zeros then stood for it, so nothing that came after is
    /// to be trusted.
    pub(crate) fn is_bad(&self) -> bool {
        self.was_bad || self.laid.as_ref().is_some_and(Lines::is_bad)
    }

    /// All that the window holds. Pages that still wait to be touched are not made for this: they are asked of what the window began
    /// with, or of what that is asked of.
    ///
    /// # Errors
    /// [`Error::Damaged`]: a page of the window could not be made.
    pub(crate) fn content(&self) -> Result<Lines, Error> {
        self.content_beside(&Lines::default())
    }

    /// The same. Pages that are equal to those made of `other` are not copied.
    pub(crate) fn content_beside(&self, other: &Lines) -> Result<Lines, Error> {
        let none = Lines::default();
        let Some(laid) = self
            .laid
            .as_ref()
            .filter(|l| matches!(l.bytes, Bytes::Later(_)))
        else {
            return self.beyond(&none);
        };
        if self.is_bad() {
            return Err(Error::Damaged);
        }
        let made = [other.made_pages(), laid.made_pages()];
        let compared = self.compared(laid, &none)?.into_iter();
        let new = compared.map(|page| (page, self.copied(page, &made)));
        Ok(on_top(laid, new.collect()))
    }

    /// The pages whose cells may differ from `base`, and those of `more`, ascending.
    pub(super) fn compared(&self, base: &Lines, more: &Lines) -> Result<Vec<u32>, Error> {
        let Some(laid) = &self.laid else {
            return Ok(union(&self.dirty_cells()?, base, more));
        };
        let mut pages = self.own()?;
        if !base.is_same(laid) {
            pages.extend(laid.pages.iter().map(|p| p.0));
            return Ok(union(&pages, base, more));
        }
        // What was zeroed since is not in memory, and no longer the file's.
        let laid = self.laid_pages();
        let mut ranges = laid.iter().peekable();
        pages.extend(base.pages.iter().map(|p| p.0).filter(|p| {
            while ranges.next_if(|r| r.end <= *p).is_some() {}
            ranges.peek().is_none_or(|r| *p < r.start)
        }));
        Ok(union(&pages, &Lines::default(), more))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all, diff, take_up};
    use super::*;
    use crate::window::{AccessKind, Window, in_each_window};
    use hindsight_isa::observe::MARK;

    fn gives_its_memory_away<C: Marks>(w: &mut WindowOf<C>) {
        let whole = w.beyond(&Lines::default()).unwrap();
        let mut other = WindowOf::<C>::observed().unwrap();
        other.begin_anywhere(&w.take_content().unwrap()).unwrap();
        assert!(other.beyond(&Lines::default()).unwrap() == whole);
        assert!(w.pages().unwrap().len() <= 1);
    }

    /// Content that lies in a file, in pages that others have, or is made later, does the same as a copy of it.
    #[test]
    fn content_of_another_window_needs_no_copy() {
        in_each_window!(content_of_another_window_in);
    }

    fn content_of_another_window_in<C: Marks>() {
        let mut from = Window::new(hindsight_isa::Predictor::WINDOW).unwrap();
        for page in [0, 1, 2, 3, 9, 10, 30, (1 << 20) - 1] {
            from.write(page * 4096 + 100, &[page as u8 | 1; 3000]);
        }
        from.write(20 * 4096, &[0; 64]);
        let copy = from.beyond(&Lines::default()).unwrap();
        let file = from.take_content().unwrap();
        assert!(from.pages().unwrap().len() <= 1, "the first page stays");
        assert!(from.beyond(&Lines::default()).unwrap().pages.is_empty());
        assert_eq!(file.pages.len(), 8);
        let mut seed = 7u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(99);
            (seed >> 33) % n
        };
        let mut pages = vec![(5, None)];
        file.each_shared(&mut |page, its| pages.push((page, Some(its))));
        pages.sort_by_key(|p| p.0);
        assert!(Lines::shared(pages.iter().rev().cloned()).is_none());
        let shared = Lines::shared(pages.iter().cloned()).unwrap();
        assert!(shared.parts().eq(file.parts()));
        let held = file.clone();
        let make = move |number| {
            let mut its = None;
            held.each_shared(&mut |page, bytes| {
                if page == number {
                    its = Some(bytes);
                }
            });
            Some(its.unwrap_or_else(|| Arc::new(NONE)))
        };
        let numbers = pages.iter().map(|p| p.0).collect();
        let later = Lines::later(numbers, Box::new(make)).unwrap();
        let mut windows = [(); 4].map(|_| WindowOf::<C>::observed().unwrap());
        let bases = [&copy, &file, &shared, &later];
        let mut kept: Vec<[[Lines; 3]; 4]> = Vec::new();
        for round in 0..300 {
            if round % 60 == 0 {
                for (w, base) in windows.iter_mut().zip(bases) {
                    w.begin_anywhere(base).unwrap();
                }
                kept.clear();
            }
            let (at, len, what) = (random(32) * 4096 + random(4096), random(9000), random(5));
            let byte = random(256) as u8;
            for w in &mut windows {
                match what {
                    0 => w.zero(at, len).unwrap(),
                    1 => w.set_marks(AccessKind::Writes, at, len, MARK),
                    2 => w.clear_marks().unwrap(),
                    _ => w.write(at, &vec![byte; len as usize % 300]),
                }
            }
            match random(4) {
                0 => kept.push([0, 1, 2, 3].map(|n| diff(&mut windows[n], bases[n]))),
                1 if !kept.is_empty() => {
                    let its = &kept[random(kept.len() as u64) as usize];
                    let each = windows.iter_mut().zip(bases).zip(its);
                    each.for_each(|((w, base), its)| take_up(w, base, its));
                }
                _ => {}
            }
            let held = windows.each_ref().map(all);
            for n in 1..4 {
                assert!(held[0] == held[n], "round {round}, window {n}");
            }
            let whole = windows
                .each_ref()
                .map(|w| w.beyond(&Lines::default()).unwrap());
            assert!(whole[0] == whole[1], "round {round}");
            assert!(whole[0] == whole[2], "round {round}");
            assert!(whole[0] == whole[3], "round {round}");
            // What it hands over is the same, without a look at all of it.
            let mut other = WindowOf::<C>::observed().unwrap();
            other
                .begin_anywhere(&windows[3].content().unwrap())
                .unwrap();
            assert!(
                other.beyond(&Lines::default()).unwrap() == whole[0],
                "round {round}"
            );
        }
        // What another window begins with has nothing of it.
        let [a, mut b, c, mut d] = windows;
        gives_its_memory_away(&mut d);
        drop((a, c, d));
        b.begin_with(&Lines::default()).unwrap();
        assert!(all(&b).iter().all(|b| *b == 0));
        assert!(file.parts().any(|p| p.2.iter().any(|b| *b != 0)));
        assert!(shared.parts().eq(file.parts()));
        // Adding to them makes a copy.
        let mut longer = shared.clone();
        longer.push((1 << 20) - 1, 1, &[3; PAGE]);
        assert_eq!(longer.size(), shared.size() + 16 + 64);
        assert_eq!(longer.into_bytes()[..PAGE], *shared.bytes.part(0, PAGE));
    }
}
