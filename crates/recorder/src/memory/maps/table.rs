//! The mappings by address, with sums and indexes that are kept up to date. A program may have tens
//! of thousands of mappings. So no common system call looks at all of them.

use super::Region;
use super::cells::Cells;
use crate::sys::PROT_WRITE;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;
use linux_raw_sys::general::MAP_GROWSDOWN;

/// Addresses that are a multiple of this many bytes apart have the same low 32 bits.
pub const SPAN: u64 = 1 << 32;

/// Names of files, each once.
pub struct Paths {
    list: Vec<Box<[u8]>>,
    /// Number of mappings of each.
    counts: Vec<usize>,
    numbers: BTreeMap<Box<[u8]>, u32>,
}

impl Paths {
    /// The name of a number. Empty if there is none.
    pub fn get(&self, number: u32) -> &[u8] {
        self.list.get(number as usize).map_or(&[], |p| p)
    }

    /// The number of a name, which it gets now if it has none.
    pub fn number(&mut self, path: &[u8]) -> u32 {
        if let Some(i) = self.numbers.get(path) {
            return *i;
        }
        let i = self.list.len() as u32;
        self.list.push(path.into());
        self.counts.push(0);
        self.numbers.insert(path.into(), i);
        i
    }

    /// Whether any mapping has this name.
    pub fn is_mapped(&self, path: &[u8]) -> bool {
        self.numbers
            .get(path)
            .is_some_and(|i| self.counts[*i as usize] != 0)
    }
}

/// See the module's description.
pub struct Table {
    regions: BTreeMap<u64, Region>,
    /// The names.
    pub paths: Paths,
    /// Beginnings of the mappings that grow downwards.
    growing: BTreeSet<u64>,
    /// Beginnings of the mappings of [`SPAN`] bytes or more.
    wide: BTreeSet<u64>,
    /// Low address bits of all other mappings.
    pub cells: Cells,
    /// Bytes of all mappings.
    bytes: u64,
    /// Bytes of those that count as data.
    data: u64,
}

/// Whether a mapping counts for `RLIMIT_DATA`.
pub fn is_data(r: &Region) -> bool {
    r.prot & PROT_WRITE != 0 && !r.is_shared() && r.flags & MAP_GROWSDOWN == 0
}

impl Table {
    /// Without mappings.
    pub const fn new() -> Table {
        Table {
            regions: BTreeMap::new(),
            paths: Paths {
                list: Vec::new(),
                counts: Vec::new(),
                numbers: BTreeMap::new(),
            },
            growing: BTreeSet::new(),
            wide: BTreeSet::new(),
            cells: Cells::new(),
            bytes: 0,
            data: 0,
        }
    }

    /// Adds a mapping where there is none.
    pub fn put(&mut self, r: Region) {
        invariant!(
            r.start < r.end && self.overlapping(r.start..r.end).next().is_none(),
            "mappings do not overlap",
            "{:#x}-{:#x}",
            r.start,
            r.end
        );
        let len = r.end - r.start;
        if let Some(n) = self.paths.counts.get_mut(r.path as usize) {
            *n += 1;
        }
        self.bytes += len;
        self.data += if is_data(&r) { len } else { 0 };
        match () {
            _ if r.flags & MAP_GROWSDOWN != 0 => drop(self.growing.insert(r.start)),
            _ if len >= SPAN => drop(self.wide.insert(r.start)),
            _ => self.cells.add(r.start, len),
        }
        self.regions.insert(r.start, r);
    }

    /// Takes out the mapping that begins at `start`.
    pub fn drop(&mut self, start: u64) -> Option<Region> {
        let r = self.regions.remove(&start)?;
        let len = r.end - r.start;
        if let Some(n) = self.paths.counts.get_mut(r.path as usize) {
            *n -= 1;
        }
        self.bytes -= len;
        self.data -= if is_data(&r) { len } else { 0 };
        if !self.growing.remove(&start) && !self.wide.remove(&start) {
            self.cells.remove(start, len);
        }
        Some(r)
    }

    /// Rebuilds the index of low address bits. It is exact again, if no two mappings share any now.
    pub fn sort_cells(&mut self) {
        self.cells = Cells::new();
        for r in self.regions.values() {
            if !self.growing.contains(&r.start) && !self.wide.contains(&r.start) {
                self.cells.add(r.start, r.end - r.start);
            }
        }
    }

    /// All mappings, in order of address.
    pub fn all(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    /// The mapping that contains `addr`.
    pub fn find(&self, addr: u64) -> Option<&Region> {
        self.up_to(addr).filter(|r| addr < r.end)
    }

    /// The last mapping that begins at `addr` or before it.
    pub fn up_to(&self, addr: u64) -> Option<&Region> {
        self.regions.range(..=addr).next_back().map(|(_, r)| r)
    }

    /// The last mapping that begins before `addr`.
    pub fn before(&self, addr: u64) -> Option<&Region> {
        self.regions.range(..addr).next_back().map(|(_, r)| r)
    }

    /// The first mapping that begins at `addr` or behind it.
    pub fn from(&self, addr: u64) -> Option<&Region> {
        self.regions.range(addr..).next().map(|(_, r)| r)
    }

    /// The mappings that share bytes with `range`, in order of address.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = &Region> {
        let first = self.find(range.start).map_or(range.start, |r| r.start);
        self.regions
            .range(first.min(range.end)..range.end)
            .map(|(_, r)| r)
    }

    /// The lowest mapping that grows downwards.
    pub fn growing(&self) -> Option<&Region> {
        self.regions.get(self.growing.first()?)
    }

    /// All mappings whose low address bits are not in [`Table::cells`].
    pub fn special(&self) -> impl Iterator<Item = &Region> {
        let starts = self.growing.iter().chain(&self.wide);
        starts.filter_map(|s| self.regions.get(s))
    }

    /// The mapping that begins at `start`.
    pub fn at(&self, start: u64) -> Option<&Region> {
        self.regions.get(&start)
    }

    /// Bytes of all mappings, and bytes of those that count as data.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes, self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[should_panic = "mappings do not overlap (0x2000-0x4000)"]
    fn mappings_that_overlap_are_refused() {
        let mut table = Table::new();
        table.put(Region::anonymous(0x1000..0x3000));
        table.put(Region::anonymous(0x2000..0x4000));
    }

    proptest! {
        /// Sums and indexes agree with what a walk over all mappings finds.
        #[test]
        fn indexes_agree_with_the_list(
            steps in proptest::collection::vec((0u64..64, 1u64..4, any::<bool>()), 1..60),
            asked in (0u64..64, 1u64..8),
        ) {
            const PAGE: u64 = 4096;
            let mut table = Table::new();
            let mut model: BTreeMap<u64, Region> = BTreeMap::new();
            for (at, pages, put) in steps {
                let range = at * PAGE..(at + pages) * PAGE;
                let meets = |r: &Region| r.start < range.end && range.start < r.end;
                if put && !model.values().any(meets) {
                    let r = Region::anonymous(range.clone());
                    table.put(r);
                    model.insert(range.start, r);
                } else {
                    prop_assert_eq!(table.drop(range.start), model.remove(&range.start));
                }
            }
            let bytes: u64 = model.values().map(|r| r.end - r.start).sum();
            prop_assert_eq!(table.bytes(), (bytes, bytes));
            prop_assert!(table.all().eq(model.values()));
            let range = asked.0 * PAGE..(asked.0 + asked.1) * PAGE;
            let meets = |r: &&Region| r.start < range.end && range.start < r.end;
            prop_assert!(table.overlapping(range.clone()).eq(model.values().filter(meets)));
            let inside = |r: &&Region| (r.start..r.end).contains(&range.start);
            prop_assert_eq!(table.find(range.start), model.values().find(inside));
            // Free low bits and those in use add up to all.
            let free: u64 = table.cells.free(1).map(|(_, len)| len).sum();
            prop_assert_eq!(free + bytes, SPAN);
        }
    }
}
