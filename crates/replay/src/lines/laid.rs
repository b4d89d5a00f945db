//! Content in a file in memory, which a window takes over without a copy: the file lies over its cells, and a page is copied
//! when it is written to.

use super::bytes::Bytes;
use super::{Lines, NONE, PAGE, union};
use crate::Error;
use crate::memory::MemoryFile;
use crate::window::Window;
use std::sync::Arc;

/// A window releases its memory in blocks of this many pages. The kernel may have it in pieces of this size.
const BLOCK: u32 = 512;
/// A file is laid over a window in at most this many places. The kernel limits how many mappings a process has.
const PLACES: usize = 8192;

impl Window {
    /// Does the same without a copy, if the lines are in a file. A page then takes memory of its own when it is written to.
    pub(super) fn lay(&mut self, lines: &Lines) -> Result<bool, Error> {
        let Some(file) = lines.file() else {
            return Ok(false);
        };
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

    /// All that the window holds, in a file. The window gives its memory away page by page, and holds nothing afterwards.
    /// Where there can be no file, or something lies over the window, it is a copy.
    pub(crate) fn take_content(&mut self) -> Result<Lines, Error> {
        let pages = self.pages()?;
        let file = MemoryFile::new(pages.len() * PAGE);
        let Some(mut file) = file.ok().filter(|_| self.laid.is_none()) else {
            return self.beyond(&Lines::default());
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

    /// The pages whose cells may differ from `base`, and those of `more`, ascending.
    pub(super) fn compared(&self, base: &Lines, more: &Lines) -> Result<Vec<u32>, Error> {
        let Some(laid) = &self.laid else {
            return Ok(union(&self.dirty_cells()?, base, more));
        };
        let is_base = (base.file().zip(laid.file())).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        let mut pages = self.own()?;
        if !is_base {
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
    use crate::window::AccessKind;
    use hindsight_isa::observe::MARK;

    /// Content that lies in a file, or in pages that others have, does the same as a copy of it.
    #[test]
    fn content_of_another_window_needs_no_copy() {
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
        let mut windows = [(); 3].map(|_| Window::observed().unwrap());
        let bases = [&copy, &file, &shared];
        let mut kept: Vec<[[Lines; 3]; 3]> = Vec::new();
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
                0 => kept.push([0, 1, 2].map(|n| diff(&mut windows[n], bases[n]))),
                1 if !kept.is_empty() => {
                    let its = &kept[random(kept.len() as u64) as usize];
                    let each = windows.iter_mut().zip(bases).zip(its);
                    each.for_each(|((w, base), its)| take_up(w, base, its));
                }
                _ => {}
            }
            let held = windows.each_ref().map(all);
            assert!(held[0] == held[1] && held[0] == held[2], "round {round}");
            let whole = windows
                .each_ref()
                .map(|w| w.beyond(&Lines::default()).unwrap());
            assert!(whole[0] == whole[1], "round {round}");
            assert!(whole[0] == whole[2], "round {round}");
        }
        // What another window begins with has nothing of it.
        let [a, mut b, c] = windows;
        drop((a, c));
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
