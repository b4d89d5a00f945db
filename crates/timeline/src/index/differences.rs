//! How memory changed in an interval of the coarse level, page by page: each page can be changed without the others.

use super::codec::{LINE, Page, bits};
use super::pieces::{PIECE, Pieces};
use super::summary::IntervalStep;
use crate::base::sync::lock;
use std::fs::File;
use std::sync::{Arc, Mutex};

/// So many pieces stay unpacked: neighbouring pages have their differences in the same ones.
const RECENT: usize = 4;

/// Differences of lines, still compressed.
pub struct Differences {
    /// The number of each page that differs, ascending, the number of lines before its own, and the mask of its lines that differ.
    /// A page that differs in several steps is there several times.
    pages: Box<[(u32, u32, u64)]>,
    lines: Pieces,
    /// The pieces that were unpacked last, with their numbers: the last one used is at the end.
    recent: Mutex<Vec<(usize, Vec<u8>)>>,
}

impl Differences {
    /// Those of all steps of a summary.
    pub fn of_steps(steps: &[IntervalStep], lines: Pieces) -> Differences {
        let all = steps.iter().flat_map(|s| &s.pages);
        let mut all: Vec<_> = all.map(|c| (c.page, c.before as u32, c.new)).collect();
        all.sort_by_key(|p| p.0);
        Differences {
            pages: all.into(),
            lines,
            recent: Mutex::default(),
        }
    }

    /// The numbers of the pages, ascending.
    pub fn pages(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().map(|p| p.0)
    }

    /// The bytes of memory that it takes, about.
    pub fn size(&self) -> usize {
        size_of_val(&*self.pages) + self.lines.size() + RECENT * PIECE
    }

    /// Whether a page differs.
    pub fn has(&self, page: u32) -> bool {
        self.pages.binary_search_by_key(&page, |p| p.0).is_ok()
    }

    /// Changes a page from what it holds at the interval's beginning to what it holds at the end, or back. `None`: the data is
    /// damaged.
    pub fn toggle(&self, page: u32, content: &mut Page) -> Option<()> {
        let first = self.pages.partition_point(|p| p.0 < page);
        let its = self.pages[first..].iter().take_while(|p| p.0 == page);
        for (_, before, mask) in its {
            let mut recent = lock(&self.recent);
            let first = *before as usize * LINE;
            for (i, at) in bits(*mask).zip((first..).step_by(LINE)) {
                // A line lies in one piece, as a piece has a whole number of lines.
                let piece = self.piece(&mut recent, at / PIECE)?;
                let differs = piece.get(at % PIECE..at % PIECE + LINE)?;
                let line = content[i * LINE..(i + 1) * LINE].iter_mut();
                line.zip(differs).for_each(|(b, d)| *b ^= d);
            }
        }
        Some(())
    }

    /// A piece, unpacked.
    fn piece<'a>(&self, recent: &'a mut Vec<(usize, Vec<u8>)>, number: usize) -> Option<&'a [u8]> {
        match recent.iter().position(|p| p.0 == number) {
            Some(i) if i + 1 == recent.len() => {}
            Some(i) => {
                let last = recent.remove(i);
                recent.push(last);
            }
            None => {
                let spare = match recent.len() {
                    RECENT.. => recent.remove(0).1,
                    _ => Vec::new(),
                };
                recent.push((number, self.lines.one(number, spare)?));
            }
        }
        recent.last().map(|p| &p.1[..])
    }

    /// Reads what is compressed from a file from now on, when it is needed. `at`: the section begins there.
    pub fn leave_in(&mut self, file: &Arc<File>, at: u64) {
        self.lines.leave_in(file, at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::PAGE;
    use super::super::pieces::pack;
    use super::super::summary::Changed;
    use super::*;
    use hindsight_random::Rng;

    /// Each page changes to what it is to be and back, in whatever order pages come, also if several steps changed it.
    #[test]
    fn pages_change_alone_and_back() {
        let mut random = Rng(29);
        let (mut steps, mut raw) = (Vec::new(), Vec::new());
        let mut expected = std::collections::BTreeMap::<u32, Box<Page>>::new();
        for _ in 0..300 {
            let (page, mask) = (random.below(90) as u32, random.u64() & random.u64());
            let changed = Changed {
                page,
                any: mask,
                written: mask,
                new: mask,
                before: raw.len() / LINE,
                masks: 0,
            };
            steps.push(IntervalStep {
                from: 0,
                state: None,
                pages: vec![changed],
            });
            for i in bits(mask) {
                let its = expected.entry(page).or_insert_with(|| Box::new([0; PAGE]));
                let line: [u8; LINE] = std::array::from_fn(|_| random.below(4) as u8);
                let to = its[i * LINE..(i + 1) * LINE].iter_mut();
                to.zip(line).for_each(|(b, d)| *b ^= d);
                raw.extend_from_slice(&line);
            }
        }
        let mut blob = Vec::new();
        pack(&raw, 1, &mut blob).unwrap();
        let all = Differences::of_steps(&steps, Pieces::new(&blob.into(), 0).unwrap());
        for _ in 0..400 {
            let page = random.below(100) as u32;
            let before: Page = std::array::from_fn(|i| i as u8);
            let mut now = before;
            all.toggle(page, &mut now).unwrap();
            let its = expected.get(&page);
            for (i, b) in now.iter().enumerate() {
                assert_eq!(
                    *b,
                    i as u8 ^ its.map_or(0, |its| its[i]),
                    "page {page}, byte {i}"
                );
            }
            assert!(all.has(page) || its.is_none());
            all.toggle(page, &mut now).unwrap();
            assert_eq!(now, before);
        }
        assert!(lock(&all.recent).len() <= RECENT);
    }
}
