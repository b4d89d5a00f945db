//! Pages by their numbers. Those that nobody has written to take no memory.

use super::super::store::PAGE_LEN;
use std::cell::Cell;
use std::ops::Range;

/// Pages that the tables of a thread may have together: 512 MiB. A host with little address space ends when memory does, so it is
/// not asked for that much.
pub const MOST: usize = 1 << 17;

thread_local! {
    /// The pages of all tables. Hosts with these tables have one thread.
    static PAGES: Cell<usize> = const { Cell::new(0) };
}

/// A page is found in two steps of ten bits.
const STEP: usize = 1 << 10;

pub static NONE: [u8; PAGE_LEN] = [0; PAGE_LEN];

pub type Page = Box<[u8; PAGE_LEN]>;
type Block = Box<[Option<Page>; STEP]>;

/// 2^20 pages of 4096 bytes, most of which are not there.
pub struct Table {
    blocks: Box<[Option<Block>; STEP]>,
    count: usize,
    /// Takes what is written to pages that are one too many.
    spare: Option<Page>,
}

impl Table {
    pub fn new() -> Table {
        Table {
            blocks: Box::new([const { None }; STEP]),
            count: 0,
            spare: None,
        }
    }

    /// A page that is there.
    #[inline(always)]
    pub fn get(&self, page: u32) -> Option<&[u8; PAGE_LEN]> {
        let block = self.blocks[page as usize / STEP % STEP].as_ref()?;
        block[page as usize % STEP].as_deref()
    }

    /// A page that is there, for changes.
    #[inline(always)]
    pub fn get_mut(&mut self, page: u32) -> Option<&mut [u8; PAGE_LEN]> {
        let block = self.blocks[page as usize / STEP % STEP].as_mut()?;
        block[page as usize % STEP].as_deref_mut()
    }

    /// A page for changes. If it is not there, it is made with this content. If there are too many, what is written to it is lost, and
    /// [`Table::is_full`] from then on.
    #[inline(always)]
    pub fn entry(&mut self, page: u32, content: impl FnOnce() -> Page) -> &mut [u8; PAGE_LEN] {
        let block = &mut self.blocks[page as usize / STEP % STEP];
        let block = block.get_or_insert_with(|| Box::new([const { None }; STEP]));
        let place = &mut block[page as usize % STEP];
        if place.is_none() {
            if PAGES.get() >= MOST {
                let spare = self.spare.get_or_insert_with(|| Box::new(NONE));
                **spare = NONE;
                return spare;
            }
            PAGES.set(PAGES.get() + 1);
            self.count += 1;
        }
        place.get_or_insert_with(content)
    }

    /// A page for changes, which is zero if it is not there.
    #[inline(always)]
    pub fn made(&mut self, page: u32) -> &mut [u8; PAGE_LEN] {
        self.entry(page, || Box::new(NONE))
    }

    /// Whether a page was lost.
    pub fn is_full(&self) -> bool {
        self.spare.is_some()
    }

    /// Takes pages away.
    pub fn remove(&mut self, pages: Range<u32>) {
        let (mut page, mut gone) = (pages.start, 0);
        while page < pages.end {
            let behind = (page / STEP as u32 + 1) * STEP as u32;
            let end = behind.min(pages.end);
            if let Some(block) = &mut self.blocks[page as usize / STEP % STEP] {
                let its = page as usize % STEP..(end - 1) as usize % STEP + 1;
                let were = block[its].iter_mut().map(Option::take);
                gone += were.filter(Option::is_some).count();
            }
            page = end;
        }
        self.forget(gone);
    }

    /// Takes all pages away.
    pub fn clear(&mut self) {
        self.blocks.fill_with(|| None);
        self.spare = None;
        self.forget(self.count);
    }

    fn forget(&mut self, pages: usize) {
        self.count -= pages;
        PAGES.set(PAGES.get().saturating_sub(pages));
    }

    /// Numbers of the pages that are there, ascending, from those in a range.
    pub fn numbers(&self, pages: Range<u32>) -> impl Iterator<Item = u32> {
        let blocks = pages.start / STEP as u32..pages.end.div_ceil(STEP as u32);
        let blocks = blocks.filter_map(|b| Some((b, self.blocks[b as usize % STEP].as_ref()?)));
        let all = blocks.flat_map(|(b, block)| {
            let there = block.iter().enumerate().filter(|(_, p)| p.is_some());
            there.map(move |(i, _)| b * STEP as u32 + i as u32)
        });
        all.filter(move |page| pages.contains(page))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.forget(self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go() {
        let mut t = Table::new();
        let all = 0..1 << 20;
        for page in [0, 5, 1023, 1024, (1 << 20) - 1] {
            assert_eq!(t.get(page), None);
            t.entry(page, || Box::new([page as u8; PAGE_LEN]))[1] = 7;
            assert_eq!(
                t.get(page).map(|p| p[..2].to_vec()),
                Some(vec![page as u8, 7])
            );
        }
        let there: Vec<u32> = t.numbers(all.clone()).collect();
        assert_eq!(there, [0, 5, 1023, 1024, (1 << 20) - 1]);
        assert_eq!(t.numbers(1..1024).collect::<Vec<_>>(), [5, 1023]);
        t.remove(5..1025);
        assert_eq!(t.numbers(all.clone()).count(), 2);
        t.clear();
        assert_eq!(
            (t.numbers(all).count(), t.count, t.is_full()),
            (0, 0, false)
        );
    }
}
