//! Finds the translation of an address without a lock.
//!
//! Who has locked the cache writes the table, anybody reads it. A reader may get what was true a
//! moment ago. Blocks that are not reachable any more stay in the cache as long as a thread may be
//! in them, so that is no worse than having looked a moment ago.

use super::chunks::{BlockId, CHUNKS, SIZE};
use crate::sys;
use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*, fence};

/// Slots of the first table: for the blocks of a small program.
const FEW: usize = 4096;

/// Bytes of guest code whose blocks have slots near each other.
const GROUP: u64 = 1024;

/// Bytes of guest code for each slot in a group. Large programs execute about ten blocks of a group.
const APART: u64 = 32;

/// A block that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub(super) id: BlockId,
    /// Offset of its hot code from the cache's base.
    pub(super) hot: u32,
    /// Whether some flags may be needed at its beginning.
    pub takes_flags: bool,
}

impl Entry {
    /// Where the block is executed.
    pub fn host(&self) -> u64 {
        super::base() + self.hot as u64
    }
}

const HOT_BITS: u32 = 30;
const CHUNK_BITS: u32 = 5;
const NUMBER_BITS: u32 = 24;
const _: () = assert!(SIZE * CHUNKS as u64 <= 1 << HOT_BITS);
const _: () = assert!(CHUNKS <= 1 << CHUNK_BITS);
// A block takes at least 8 bytes.
const _: () = assert!(SIZE / 8 <= 1 << NUMBER_BITS);

/// The bit of a packed entry that distinguishes it from none.
const SOME: u64 = 1 << 63;

impl Entry {
    fn pack(self) -> u64 {
        let id = (self.id.chunk() as u64) << NUMBER_BITS | self.id.number() as u64;
        SOME | (self.takes_flags as u64) << 62 | id << HOT_BITS | self.hot as u64
    }

    fn unpack(v: u64) -> Option<Entry> {
        let bits = |from: u32, n: u32| v >> from & ((1 << n) - 1);
        let number = bits(HOT_BITS, NUMBER_BITS) as usize;
        let chunk = bits(HOT_BITS + NUMBER_BITS, CHUNK_BITS) as usize;
        (v & SOME != 0).then(|| Entry {
            id: BlockId::new(chunk, number),
            hot: bits(0, HOT_BITS) as u32,
            takes_flags: v & 1 << 62 != 0,
        })
    }
}

/// A key and its entry. Key 0: nothing was ever here. Entry 0: the key has none.
#[derive(Default)]
struct Slot {
    key: AtomicU64,
    entry: AtomicU64,
}

/// A table whose number of slots is a power of two.
struct Slots(Box<[Slot]>);

/// Where a key has its slot, if it has one.
struct Place<'a> {
    slot: &'a Slot,
    found: bool,
}

impl Slots {
    fn new(n: usize) -> Slots {
        // SAFETY: zeros are valid for atomic numbers.
        Slots(unsafe { Box::new_zeroed_slice(n).assume_init() })
    }

    /// The slot of a key, or the empty one where it would be. There is always an empty one.
    ///
    /// Blocks near each other have slots near each other: in a large program each page of the table that
    /// is touched is one that the processor has no translation for.
    fn place(&self, key: u64) -> Place<'_> {
        let mask = self.0.len() - 1;
        let group = (key / GROUP).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut i = (group + key % GROUP / APART) as usize & mask;
        loop {
            let slot = &self.0[i];
            match slot.key.load(Acquire) {
                k if k == key => return Place { slot, found: true },
                0 => return Place { slot, found: false },
                _ => i = (i + 1) & mask,
            }
        }
    }
}

/// The blocks of the present generation, by [`super::key`].
pub(super) struct BlockTable {
    /// Null before the first [`BlockTable::begin`].
    slots: AtomicPtr<Slots>,
    /// Odd while slots are given to other keys.
    edits: AtomicU64,
    /// Number of slots that have a key. Only for who has locked the cache.
    keys: AtomicU64,
    /// Number of these that have an entry. As above.
    entries: AtomicU64,
}

impl BlockTable {
    pub(super) const fn new() -> BlockTable {
        BlockTable {
            slots: AtomicPtr::new(null_mut()),
            edits: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            entries: AtomicU64::new(0),
        }
    }

    fn slots(&self) -> Option<&Slots> {
        // SAFETY: it is null or comes from a box in `replace`. Tables are never freed.
        unsafe { self.slots.load(Acquire).as_ref() }
    }

    /// The entry of a key. May miss one while the table is edited.
    pub(super) fn find(&self, key: u64) -> Option<Entry> {
        let edits = self.edits.load(Acquire);
        let place = self.slots()?.place(key);
        let entry = place.slot.entry.load(Acquire);
        fence(Acquire);
        let stable = edits.is_multiple_of(2) && self.edits.load(Relaxed) == edits;
        Entry::unpack(entry).filter(|_| place.found && stable)
    }

    /// Gives a key an entry. The caller has locked the cache, as for all that follows.
    pub(super) fn set(&self, key: u64, entry: Entry) {
        let slots = match self.slots() {
            Some(s) if 4 * (self.keys.load(Relaxed) + 1) <= 3 * s.0.len() as u64 => s,
            _ => match self.grow() {
                Some(s) => s,
                None => return,
            },
        };
        let place = slots.place(key);
        let old = place.slot.entry.swap(entry.pack(), Release);
        if old == 0 {
            self.entries.fetch_add(1, Relaxed);
        }
        if !place.found {
            place.slot.key.store(key, Release);
            self.keys.fetch_add(1, Relaxed);
        }
    }

    /// Takes the entry of a key away.
    pub(super) fn remove(&self, key: u64) {
        let Some(place) = self.slots().map(|s| s.place(key)) else {
            return;
        };
        if place.found && place.slot.entry.swap(0, Release) != 0 {
            self.entries.fetch_sub(1, Relaxed);
        }
    }

    /// Takes all entries away.
    pub(super) fn clear(&self) {
        self.edit(|| self.empty());
    }

    fn empty(&self) {
        for slot in self.slots().iter().flat_map(|s| &s.0) {
            // What was never used stays untouched memory.
            if slot.key.load(Relaxed) != 0 {
                slot.entry.store(0, Relaxed);
                slot.key.store(0, Relaxed);
            }
        }
        self.keys.store(0, Relaxed);
        self.entries.store(0, Relaxed);
    }

    /// During the call readers find nothing. Somebody may have been killed in such a call.
    fn edit(&self, change: impl FnOnce()) {
        let now = self.edits.load(Relaxed) | 1;
        self.edits.store(now, Relaxed);
        fence(Release);
        change();
        self.edits.store(now + 1, Release);
    }

    /// Makes room. If most keys have no entry any more, without more memory. What readers may still
    /// look at is not freed; all former tables together are smaller than the present one.
    #[cold]
    fn grow(&self) -> Option<&Slots> {
        let len = self.slots().map_or(0, |s| s.0.len());
        let kept: alloc::vec::Vec<(u64, u64)> = self
            .slots()
            .iter()
            .flat_map(|s| &s.0)
            .map(|s| (s.key.load(Relaxed), s.entry.load(Relaxed)))
            .filter(|(_, entry)| *entry != 0)
            .collect();
        let fill = |slots: &Slots| {
            for (key, entry) in &kept {
                let slot = slots.place(*key).slot;
                slot.entry.store(*entry, Relaxed);
                slot.key.store(*key, Relaxed);
            }
        };
        if 2 * kept.len() < len && len >= FEW {
            self.edit(|| {
                self.empty();
                self.slots().iter().for_each(|s| fill(s));
            });
        } else {
            let larger = Box::new(Slots::new((2 * len).max(FEW)));
            if len == 0 {
                // Most of it will be used, and so each page needs no fault of its own.
                let slots = larger.0.as_ptr_range();
                let (from, to) = (slots.start as u64, slots.end as u64);
                sys::madvise_populate(from, to - from);
            }
            fill(&larger);
            self.slots.store(Box::into_raw(larger), Release);
        }
        self.keys.store(kept.len() as u64, Relaxed);
        self.entries.store(kept.len() as u64, Relaxed);
        self.slots()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;
    use std::vec::Vec;

    /// The generator SplitMix64.
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ z >> 31) % n
        }
    }

    fn entry(n: u64) -> Entry {
        Entry {
            id: BlockId::new(n as usize % CHUNKS, n as usize % 1_000_000),
            hot: n as u32 & ((1 << HOT_BITS) - 1),
            takes_flags: n.is_multiple_of(3),
        }
    }

    #[test]
    fn an_entry_is_packed_whole() {
        let last = Entry {
            id: BlockId::new(CHUNKS - 1, (1 << NUMBER_BITS) - 1),
            hot: (SIZE * CHUNKS as u64 - 1) as u32,
            takes_flags: true,
        };
        let first = Entry {
            id: BlockId::new(0, 0),
            hot: 0,
            takes_flags: false,
        };
        for e in [first, last, entry(77)] {
            assert_eq!(Entry::unpack(e.pack()), Some(e));
        }
        assert_eq!(Entry::unpack(0), None);
    }

    /// The same as in a map, over growth, removal and many keys that come and go.
    #[test]
    fn it_has_what_a_map_has() {
        let (table, mut map) = (BlockTable::new(), HashMap::new());
        assert_eq!(table.find(1), None);
        table.remove(1);
        let mut rng = Rng(7);
        let steps = if cfg!(miri) { 2_000 } else { 200_000 };
        for step in 0..steps {
            // The range of keys moves on, as code that is made again and again does.
            let key = 1 + step / 64 * 16 + rng.below(4000);
            if rng.below(3) == 0 {
                table.remove(key);
                map.remove(&key);
            } else {
                table.set(key, entry(step));
                map.insert(key, entry(step));
            }
            if step == steps / 2 {
                table.clear();
                map.clear();
            }
            let other = 1 + step / 64 * 16 + rng.below(4000);
            assert_eq!(table.find(other), map.get(&other).copied(), "step {step}");
        }
        let found: Vec<_> = map.keys().filter_map(|k| table.find(*k)).collect();
        assert_eq!(found.len(), map.len());
        assert_eq!(table.entries.load(Relaxed), map.len() as u64);
    }

    /// Who reads meanwhile finds the entry of its key or none.
    #[test]
    fn readers_find_their_own_key() {
        let (table, done) = (BlockTable::new(), AtomicBool::new(false));
        let of = |key: u64| Entry {
            hot: key as u32,
            ..entry(key)
        };
        let rounds = if cfg!(miri) { 30 } else { 3000 };
        std::thread::scope(|s| {
            let reader = || {
                let mut found = 0u64;
                while !done.load(Relaxed) {
                    for key in 1..200 {
                        if let Some(e) = table.find(key) {
                            assert_eq!(e, of(key));
                            found += 1;
                        }
                    }
                }
                found
            };
            let readers = [s.spawn(reader), s.spawn(reader)];
            let mut rng = Rng(1);
            for round in 0..rounds {
                for _ in 0..100 {
                    let key = 1 + rng.below(5000);
                    match rng.below(4) {
                        0 => table.remove(key),
                        _ => table.set(key, of(key)),
                    }
                }
                if round % 100 == 0 {
                    table.clear();
                }
            }
            done.store(true, Relaxed);
            for r in readers {
                assert!(r.join().unwrap() > 0 || cfg!(miri));
            }
        });
    }
}
