//! Which pages have changed since which key frame.
//!
//! Key frame `n` of a chain restates what has changed since key frame `n - lowest_bit(n)`, its base. Number 0 restates
//! everything. So replay that begins at `n` needs `log2(n) + 1` key frames at most, and on average a page that keeps
//! changing is restated once in each key frame, not more often.
//!
//! Of each page the table has a hash of its content at the last look, and the number of the key frame before which that
//! had changed. The table is indexed by the page's cell: in the quiet regime no two pages share one. A page that is gone,
//! or that holds zeros again, stays in the table, since older key frames of the chain have it.

use crate::sys::PAGE;
use crate::sys::common::{Common, Plain};
use alloc::vec::Vec;

/// Entries in a leaf: those of 4 MiB of memory.
const LEAF: usize = 1024;
/// Leaves for all cells.
const LEAVES: usize = (1 << 32) / PAGE as usize / LEAF;
/// Bits for the number of a key frame in [`Entry::word`].
const NUMBER: u32 = 26;
/// Bit of [`Entry::word`]: the page was seen in a look with an odd number.
const ODD: u64 = 1 << NUMBER;
/// The page's number begins at this bit of [`Entry::word`].
const AT: u32 = NUMBER + 1;
/// That many pages may be gone before a new chain is worth it, even if there are few others.
const FEW: u64 = 4096;

/// What is known of a page.
#[derive(Clone, Copy)]
struct Entry {
    /// 0: it holds zeros, or is not there.
    hash: u64,
    /// Number of the page, parity of the last look that saw it, number of the key frame. 0: never seen.
    word: u64,
}

/// The pages of a process, as a chain of key frames has them. A copy of the process that makes a key frame changes them for
/// the process. Until the copy has ended, the process leaves them alone.
pub struct Pages(Option<Common<Table>>);

struct Table {
    /// The number of the next key frame.
    next: u32,
    /// Not 0: the number of the present look is odd.
    odd: u32,
    /// How many entries have a page that holds something, and how many have one that does not.
    live: u64,
    gone: u64,
    /// Bytes of pages in the last key frame.
    said: u64,
    /// Not 0: some entry of that leaf is in use. Others are not touched, so they take no memory.
    used: [u8; LEAVES],
    leaves: [[Entry; LEAF]; LEAVES],
}

// SAFETY: it consists of integers.
unsafe impl Plain for Table {}

/// A page that has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed {
    pub addr: u64,
    /// It holds zeros, or is not there.
    pub gone: bool,
}

impl Pages {
    pub const fn new() -> Pages {
        Pages(None)
    }

    /// The number of the next key frame in its chain.
    pub fn next(&self) -> u32 {
        self.0.as_ref().map_or(0, |t| t.next)
    }

    /// How many key frames before the next one its base is. 0: it has none, and restates everything.
    pub fn back(&self) -> u32 {
        self.next() & self.next().wrapping_neg()
    }

    /// Bytes of pages in the last key frame.
    pub fn said(&self) -> u64 {
        self.0.as_ref().map_or(0, |t| t.said)
    }

    /// Forgets everything: the next key frame begins a chain.
    pub fn restart(&mut self) {
        self.0 = None;
    }

    /// Whether a new chain is worth it: there is much to say of pages that are gone.
    pub fn is_worn(&self) -> bool {
        let worn = |t: &Common<Table>| t.gone > t.live + FEW || t.next >= (1 << NUMBER) - 1;
        self.0.as_ref().is_some_and(worn)
    }

    /// Makes sure that there is memory for the table. False if there is none.
    pub fn is_there(&mut self) -> bool {
        if self.0.is_none() {
            self.0 = Common::new().ok();
        }
        self.0.is_some()
    }

    /// Begins to look at all pages that hold something. False if there is no memory for that.
    pub fn begin_look(&mut self) -> bool {
        self.is_there();
        if let Some(t) = &mut self.0 {
            t.odd = (t.odd == 0) as u32;
        }
        self.0.is_some()
    }

    /// Notes that the page at `addr` holds something with this hash. A look has begun.
    pub fn see(&mut self, addr: u64, hash: u64) {
        let Some(t) = &mut self.0 else { return };
        let cell = (addr as u32 as u64 / PAGE) as usize;
        let (next, odd) = (t.next as u64, t.odd());
        t.used[cell / LEAF] = 1;
        let entry = &mut t.leaves[cell / LEAF][cell % LEAF];
        let before = *entry;
        // 0 has another meaning.
        let hash = hash.max(1);
        let changed = match before.hash == hash {
            true => before.word & (ODD - 1),
            false => next,
        };
        *entry = Entry {
            hash,
            word: ((addr / PAGE) << AT) | odd | changed,
        };
        if before.hash == 0 {
            t.live += 1;
            t.gone -= (before.word != 0) as u64;
        }
    }

    /// The pages that were seen at some look, but not yet at this one.
    pub fn unseen(&self) -> Vec<u64> {
        let Some(t) = &self.0 else {
            return Vec::new();
        };
        let odd = t.odd();
        let unseen = (t.entries()).filter(|e| e.word != 0 && (e.hash == 0 || e.word & ODD != odd));
        unseen.map(|e| (e.word >> AT) * PAGE).collect()
    }

    /// Ends the look: pages that were not seen are gone.
    pub fn end_look(&mut self) {
        let Some(t) = &mut self.0 else { return };
        let t = &mut **t;
        let (next, odd) = (t.next as u64, t.odd());
        let mut went = 0;
        for (leaf, _) in t.leaves.iter_mut().zip(t.used).filter(|l| l.1 != 0) {
            for e in leaf
                .iter_mut()
                .filter(|e| e.hash != 0 && e.word & ODD != odd)
            {
                e.hash = 0;
                e.word = (e.word & !(ODD - 1)) | next;
                went += 1;
            }
        }
        (t.live, t.gone) = (t.live - went, t.gone + went);
    }

    /// What has changed since the base of the next key frame, ascending by cells. Without a base, all that hold
    /// something.
    pub fn changed(&self) -> impl Iterator<Item = Changed> + '_ {
        let base = (self.next() != 0).then(|| (self.next() - self.back()) as u64);
        let entries = self.0.iter().flat_map(|t| t.entries());
        entries.filter_map(move |e| {
            let gone = e.hash == 0;
            let wanted = match base {
                Some(base) => e.word & (ODD - 1) > base,
                None => !gone,
            };
            wanted.then_some(Changed {
                addr: (e.word >> AT) * PAGE,
                gone,
            })
        })
    }

    /// Notes that a key frame says what has changed, with this many bytes of pages.
    pub fn written(&mut self, bytes: u64) {
        if let Some(t) = &mut self.0 {
            t.next += 1;
            t.said = bytes;
        }
    }
}

impl Table {
    /// [`ODD`] or 0, as this look sets it in entries.
    fn odd(&self) -> u64 {
        if self.odd != 0 { ODD } else { 0 }
    }

    /// The entries that may be in use.
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let leaves = self.leaves.iter().zip(&self.used);
        leaves.filter(|l| *l.1 != 0).flat_map(|l| l.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Memory that changes between key frames: page numbers with contents.
    fn changes() -> impl Strategy<Value = Vec<Vec<(u8, u8)>>> {
        let frame = proptest::collection::vec((0u8..12, 0u8..4), 0..6);
        proptest::collection::vec(frame, 1..40)
    }

    /// Pages are far from each other. Those of odd numbers move between two addresses with the same cell.
    fn address(page: u8, frame: usize) -> u64 {
        let place = if page % 2 == 1 {
            frame as u64 / 3 % 2
        } else {
            0
        };
        0x7f00_0000_0000 + (place << 32) + page as u64 * 0x123_4000
    }

    proptest! {
        /// What the key frames of a chain say, the oldest first, is what memory holds.
        #[test]
        fn a_chain_says_what_memory_holds(frames in changes()) {
            let mut pages = Pages::new();
            let mut memory: BTreeMap<u8, u8> = BTreeMap::new();
            // Of each key frame: how many key frames before it its base is, and what it says of cells.
            let mut said: Vec<(u32, BTreeMap<u32, u8>)> = Vec::new();
            for (n, changes) in frames.iter().enumerate() {
                memory.extend(changes.iter().copied());
                // A key frame may need two looks.
                for _ in 0..1 + n % 2 {
                    prop_assert!(pages.begin_look());
                    for (page, content) in memory.iter().filter(|p| *p.1 != 0) {
                        pages.see(address(*page, n), *content as u64);
                    }
                    pages.end_look();
                }
                let held: BTreeMap<u32, u8> = (memory.iter().filter(|p| *p.1 != 0))
                    .map(|(page, content)| (address(*page, n) as u32, *content))
                    .collect();
                let says = |c: Changed| {
                    let cell = c.addr as u32;
                    (cell, if c.gone { 0 } else { held[&cell] })
                };
                said.push((pages.back(), pages.changed().map(says).collect()));
                pages.written(0);

                let (mut chain, mut at) = (vec![n], n);
                while said[at].0 != 0 {
                    at -= said[at].0 as usize;
                    chain.push(at);
                }
                prop_assert_eq!(at, 0);
                prop_assert!(chain.len() <= 1 + (n + 1).ilog2() as usize);
                let mut laid: BTreeMap<u32, u8> = BTreeMap::new();
                chain.iter().rev().for_each(|i| laid.extend(&said[*i].1));
                laid.retain(|_, content| *content != 0);
                prop_assert_eq!(laid, held);
            }
        }
    }

    #[test]
    fn a_chain_wears_out_by_pages_that_are_gone() {
        let mut pages = Pages::new();
        for n in 0..3 {
            assert!(pages.begin_look());
            (0..3000).for_each(|i| pages.see((n * 3000 + i) * PAGE, 7));
            pages.end_look();
            assert_eq!(pages.changed().filter(|c| !c.gone).count(), 3000);
            assert!(!pages.is_worn());
            pages.written(0);
        }
        assert!(pages.begin_look());
        pages.end_look();
        assert!(pages.is_worn());
        pages.restart();
        assert!((pages.next(), pages.back(), pages.is_worn()) == (0, 0, false));
    }
}
