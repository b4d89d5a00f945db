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
    /// The number of each page that differs, ascending, the mask of its lines that differ, and the number of lines before these.
    /// A page that differs in several steps is there several times.
    pages: Vec<(u32, u64, usize)>,
    lines: Pieces,
    /// The pieces that were unpacked last, with their numbers: the last one used is at the end.
    recent: Mutex<Vec<(usize, Vec<u8>)>>,
}

impl Differences {
    /// Those of all steps of a summary.
    pub fn of_steps(steps: &[IntervalStep], lines: Pieces) -> Differences {
        let all = steps.iter().flat_map(|s| &s.pages);
        let mut all: Vec<_> = all.map(|c| (c.page, c.new, c.before)).collect();
        all.sort_by_key(|p| p.0);
        Differences::new(all, lines)
    }

    fn new(pages: Vec<(u32, u64, usize)>, lines: Pieces) -> Differences {
        Differences {
            pages,
            lines,
            recent: Mutex::default(),
        }
    }

    /// The numbers of the pages, ascending.
    pub fn pages(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().map(|p| p.0)
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
        for (_, mask, before) in its {
            let mut recent = lock(&self.recent);
            for (i, at) in bits(*mask).zip((before * LINE..).step_by(LINE)) {
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
