//! What an interval accessed, in the form that the file has. It is made once and takes little memory.

use super::codec::Reader;
use super::page_access::PageAccess;

/// What an interval touched, by page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Pages, ascending, each with the end of its bytes.
    pages: Vec<(u32, usize)>,
    /// For each page what [`PageAccess::write`] writes.
    bytes: Vec<u8>,
    /// Its approximate size in an index file, in bytes.
    size: usize,
}

impl History {
    /// An empty history with room for this many pages. They must be pushed in ascending order.
    pub fn of(pages: usize) -> History {
        History {
            pages: Vec::with_capacity(pages),
            ..History::default()
        }
    }

    /// Makes room for more pages.
    pub fn reserve(&mut self, pages: usize) {
        self.pages.reserve(pages);
    }

    pub fn push(&mut self, t: &PageAccess) {
        debug_assert!(self.pages.last().is_none_or(|p| p.0 < t.page));
        t.write(&mut self.bytes);
        self.pages.push((t.page, self.bytes.len()));
        self.size += t.size();
    }

    /// Its approximate size in an index file, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    pub fn pages(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().map(|p| p.0)
    }

    /// The bytes of the `n`th page.
    fn said(&self, n: usize) -> &[u8] {
        let begin = n.checked_sub(1).map_or(0, |n| self.pages[n].1);
        &self.bytes[begin..self.pages[n].1]
    }

    fn nth(&self, n: usize) -> Option<PageAccess> {
        let mut r = Reader {
            b: self.said(n),
            at: 0,
        };
        PageAccess::read(self.pages[n].0, &mut r)
    }

    /// How a page was accessed. `None`: not at all.
    pub fn touched(&self, page: u32) -> Option<PageAccess> {
        let n = self.pages.binary_search_by_key(&page, |p| p.0);
        self.nth(n.ok()?)
    }

    pub fn iter(&self) -> impl Iterator<Item = PageAccess> {
        (0..self.pages.len()).filter_map(|n| self.nth(n))
    }

    /// The pages in `from..to`, with their bytes in the file's form.
    pub fn between(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, &[u8])> {
        let at = |page: u32| self.pages.partition_point(|p| p.0 < page);
        (at(from)..at(to)).map(|n| (self.pages[n].0, self.said(n)))
    }
}

impl History {
    /// A history of pages with these numbers, ascending, and lengths of what is said of each. `None`: they do not agree with `bytes`.
    pub fn made(lengths: &[(u32, usize)], bytes: &[u8]) -> Option<History> {
        let (mut pages, mut end) = (Vec::with_capacity(lengths.len()), 0usize);
        for (page, len) in lengths {
            end = end.checked_add(*len)?;
            pages.push((*page, end));
        }
        (end == bytes.len()).then(|| History {
            pages,
            bytes: bytes.to_vec(),
            size: 0,
        })
    }
}

impl FromIterator<PageAccess> for History {
    fn from_iter<T: IntoIterator<Item = PageAccess>>(all: T) -> History {
        let mut h = History::default();
        all.into_iter().for_each(|t| h.push(&t));
        h
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_again() {
        let page = |page: u32| {
            let mut words = [[0; 2]; 64];
            words[page as usize] = [page as u8, 1];
            let mut t = PageAccess::new(page, &words);
            t.set_masks(page as usize, [7, page as u64]);
            t
        };
        let all: Vec<PageAccess> = [3, 4, 9, 60].map(page).into();
        let h: History = all.iter().cloned().collect();
        assert_eq!(h.iter().collect::<Vec<_>>(), all);
        assert_eq!(h.pages().collect::<Vec<_>>(), [3, 4, 9, 60]);
        assert_eq!(h.touched(9), Some(page(9)));
        assert_eq!((h.touched(2), h.touched(61)), (None, None));
        let some: Vec<_> = h.between(4, 60).map(|(p, b)| (p, b.to_vec())).collect();
        let bytes = |p: u32| {
            let mut out = Vec::new();
            page(p).write(&mut out);
            (p, out)
        };
        assert_eq!(some, [4, 9].map(bytes));
        assert_eq!(h.size(), all.iter().map(PageAccess::size).sum::<usize>());
    }
}
