//! The shared cache: byte strings in memory that several processes share. All program images of a recording put
//! translated code and other common knowledge there, and find what others put.
//!
//! It consists of a header, an index of [`SLOTS`] words, and the entries. A process first writes an entry
//! whole, into room that nobody else has. Then it sets the entry's slot with one atomic operation. An entry
//! never changes afterwards. So a process that is killed leaves at most unused room behind. Each entry has a
//! checksum, because the recorded programs can write anywhere.
//!
//! The index may also name entries that an earlier recording has left in a file. They stay there: whoever has
//! the file mapped too finds them, and nobody else does. So what is not used is not even read.

use crate::shared::{AtomicU64, Ordering::*};
use alloc::vec::Vec;
use core::marker::PhantomData;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a shared cache. Only what is used of them takes memory. A large compiler leaves 250 MiB of blocks.
pub const LEN: usize = 512 << 20;

/// Number of slots in the index. There are many more slots than entries, so an entry is found near its first
/// slot.
const SLOTS: usize = 1 << 21;

/// Slots in a page of the index.
const PAGE: usize = 512;

/// Slots that are searched for one key.
const PROBES: usize = 16;

const INDEX: usize = 4096;
const ENTRIES: usize = INDEX + 8 * SLOTS;

/// Bytes of an entry before its content: checksum of what follows, key, length, kind.
const HEAD: usize = 24;

/// The bits of a slot that hold the entry's offset, in words. Offsets from [`LEN`] on are those of entries in
/// the file of an earlier recording.
const ENTRY_OFFSET: u64 = (1 << 31) - 1;
const _: () = assert!(LEN / 8 <= ENTRY_OFFSET as usize);

/// Bytes of an entry's name in a [`Stock`]: its key, and where it is.
pub const NAME: usize = 16;

/// The bit of a slot whose entry was made or used in this recording.
const USED: u64 = 1 << 31;

/// An entry that a search found.
pub struct Found<'m> {
    pub content: &'m [u8],
    slot: &'m AtomicU64,
}

impl Found<'_> {
    /// Notes that the entry was used.
    pub fn serves(&self) {
        if self.slot.load(Relaxed) & USED == 0 {
            self.slot.fetch_or(USED, Relaxed);
        }
    }
}

/// Numbers of entries.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    /// Entries of an earlier recording that were used.
    pub served: usize,
    /// Entries that were put in the shared cache in this recording.
    pub made: usize,
}

/// Entries to be kept for later recordings.
#[derive(Default)]
pub struct Stock {
    /// For each entry its key, and its offset in `entries` in words of 8 bytes.
    pub names: Vec<u8>,
    /// The entries.
    pub entries: Vec<u8>,
}

/// Kinds of entries.
pub mod kind {
    /// A translated block.
    pub const BLOCK: u32 = 1;
    /// What the processor says about itself.
    pub const PROCESSOR: u32 = 2;
    /// All blocks of one file that an image of a program executed.
    pub const SET: u32 = 3;
    /// A note that an image of this program has run.
    pub const MET: u32 = 4;
}

/// The first page.
#[repr(C)]
struct Header {
    /// Bytes given out to entries.
    used: AtomicU64,
    /// One bit for each page of the index that names an entry. A scan of all slots skips the other pages.
    pages: [AtomicU64; SLOTS / PAGE / 64],
}

const _: () = assert!(size_of::<Header>() <= INDEX);

/// The key for this `hash` whose first slot is `bucket`. Entries that are searched one after the other are
/// found faster if their slots are near each other.
pub fn key(hash: u64, bucket: u64) -> u64 {
    const LOW: u64 = SLOTS as u64 - 1;
    hash & !LOW | bucket & LOW
}

/// The shared cache in a mapping.
#[derive(Clone, Copy)]
pub struct SharedCache<'m> {
    base: *mut u8,
    mapping: PhantomData<&'m [AtomicU64]>,
    /// The file that an earlier recording has left. Empty: there is none.
    kept: &'m [u8],
}

// SAFETY: the header and the index are atomics, and entries are written before the index names them.
unsafe impl Send for SharedCache<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedCache<'_> {}

impl<'m> SharedCache<'m> {
    /// # Safety
    /// - `base` is the start of [`LEN`] bytes of shared memory that is zero at first.
    /// - The memory stays mapped for `'m` and is aligned to a page.
    /// - It is written through this type only.
    pub unsafe fn new(base: *mut u8) -> SharedCache<'m> {
        SharedCache {
            base,
            mapping: PhantomData,
            kept: &[],
        }
    }

    /// The same with the file of an earlier recording, mapped. It may hold anything.
    pub fn with_kept(self, kept: &'m [u8]) -> SharedCache<'m> {
        SharedCache { kept, ..self }
    }

    fn header(&self) -> &'m Header {
        // SAFETY: the contract of `new` keeps it valid, and all fields are atomics.
        unsafe { &*self.base.cast::<Header>() }
    }

    fn slot(&self, i: usize) -> &'m AtomicU64 {
        // SAFETY: the slot lies within the index.
        unsafe { &*self.base.add(INDEX + 8 * (i % SLOTS)).cast::<AtomicU64>() }
    }

    /// Numbers of the slots that may name `key`.
    fn numbers(key: u64) -> impl Iterator<Item = usize> {
        let first = key as usize % SLOTS;
        (first..first + PROBES).map(|i| i % SLOTS)
    }

    /// Slots that may name `key`.
    fn slots(&self, key: u64) -> impl Iterator<Item = &'m AtomicU64> {
        let cache = *self;
        SharedCache::numbers(key).map(move |i| cache.slot(i))
    }

    /// The values of all slots that are not empty.
    fn named(&self) -> impl Iterator<Item = u64> {
        let cache = *self;
        let pages = &self.header().pages;
        let has = |p: &usize| pages[p / 64].load(Acquire) & 1 << (p % 64) != 0;
        (0..SLOTS / PAGE)
            .filter(has)
            .flat_map(|p| p * PAGE..(p + 1) * PAGE)
            .map(move |i| cache.slot(i).load(Acquire))
            .filter(|v| *v != 0)
    }

    /// The contents of kind `kind` that were put under `key`.
    pub fn find(&self, kind: u32, key: u64) -> impl Iterator<Item = Found<'m>> {
        let cache = *self;
        self.slots(key)
            .map(|slot| (slot, slot.load(Acquire)))
            .take_while(|(_, v)| *v != 0)
            .filter(move |(_, v)| v >> 32 == key >> 32)
            .filter_map(move |(slot, v)| {
                let content = cache.entry(entry_offset(v), kind, key)?;
                Some(Found { content, slot })
            })
    }

    /// The `len` bytes at offset `at`, if entries can be there.
    fn bytes(&self, at: usize, len: usize) -> Option<&'m [u8]> {
        if let Some(kept) = at.checked_sub(LEN) {
            return self.kept.get(kept..)?.get(..len);
        }
        if at < ENTRIES || len > LEN - at {
            return None;
        }
        // SAFETY: within the shared cache, and entries that the index names do not change.
        Some(unsafe { core::slice::from_raw_parts(self.base.add(at), len) })
    }

    fn entry(&self, at: usize, kind: u32, key: u64) -> Option<&'m [u8]> {
        let [sum, own_key, last] = words(self.bytes(at, HEAD)?)?;
        let len = last as u32 as usize;
        if own_key != key || last >> 32 != kind as u64 {
            return None;
        }
        let whole = &self.bytes(at, HEAD + len)?[8..];
        (xxh3_64(whole) == sum).then(|| &whole[HEAD - 8..])
    }

    /// Puts `content` of kind `kind` in the shared cache under `key`. Does nothing if there is no room.
    pub fn put(&self, kind: u32, key: u64, content: &[u8]) {
        self.put_parts(kind, key, &[content]);
    }

    /// The same with content in several parts.
    pub fn put_parts(&self, kind: u32, key: u64, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let total = (HEAD + len).next_multiple_of(8);
        let room = LEN - ENTRIES;
        let used = &self.header().used;
        if len > room || used.load(Relaxed) > (room - total.min(room)) as u64 {
            return;
        }
        let at = ENTRIES as u64 + used.fetch_add(total as u64, Relaxed);
        if at > (LEN - total) as u64 {
            return;
        }
        let at = at as usize;
        // SAFETY: these `total` bytes lie within the shared cache and were given to nobody else.
        unsafe {
            let entry = self.base.add(at);
            entry
                .add(8)
                .cast::<[u64; 2]>()
                .write([key, (kind as u64) << 32 | len as u64]);
            let mut to = entry.add(HEAD);
            for p in parts {
                core::ptr::copy_nonoverlapping(p.as_ptr(), to, p.len());
                to = to.add(p.len());
            }
            let whole = core::slice::from_raw_parts(entry.add(8), HEAD - 8 + len);
            entry.cast::<u64>().write(xxh3_64(whole));
        }
        let flags = if kind == kind::BLOCK { USED } else { 0 };
        self.name(key, at, flags);
    }

    /// Puts the entry at `at` in the index. `false` if there is no room.
    fn name(&self, key: u64, at: usize, flags: u64) -> bool {
        let named = key >> 32 << 32 | flags | (at / 8) as u64;
        let set = |i: &usize| {
            let slot = self.slot(*i);
            slot.compare_exchange(0, named, Release, Relaxed).is_ok()
        };
        let found = SharedCache::numbers(key).find(set);
        if let Some(p) = found.map(|i| i / PAGE) {
            let (word, bit) = (&self.header().pages[p / 64], 1 << (p % 64));
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Release);
            }
        }
        found.is_some()
    }

    /// Copies the translated blocks, at most `most` bytes, to be saved for later recordings. If `all`, this
    /// includes blocks that this recording did not use. Every entry is checked: processes that can write this
    /// memory need not be trusted.
    pub fn stock(&self, most: usize, all: bool) -> Stock {
        let mut offsets: Vec<usize> = self
            .named()
            .filter(|v| all || v & USED != 0)
            .map(entry_offset)
            .collect();
        offsets.sort_unstable();
        let (mut out, mut end) = (Stock::default(), 0);
        // A slot may name bytes that are not an entry. This bounds how often the same bytes are read for
        // that.
        let mut bad = 0;
        for at in offsets {
            let Some(len) = self.len_at(at).filter(|_| at >= end) else {
                continue;
            };
            let start = out.entries.len();
            if start + len > most || bad > LEN {
                break;
            }
            if !self.copy(at, len, &mut out.entries) {
                continue;
            }
            match key_of_block(&out.entries[start..]) {
                Some(key) => {
                    end = at + len;
                    out.names.extend_from_slice(&key.to_le_bytes());
                    out.names
                        .extend_from_slice(&(start as u64 / 8).to_le_bytes());
                }
                None => {
                    bad += len;
                    out.entries.truncate(start);
                }
            }
        }
        out
    }

    /// Copies `len` bytes from offset `at` to the end of `out`. False if they are not there.
    fn copy(&self, at: usize, len: usize, out: &mut Vec<u8>) -> bool {
        let Some(from) = self.bytes(at, len) else {
            return false;
        };
        out.reserve(len);
        // SAFETY: `reserve` made room in the vector. A concurrent change of the source makes the copy's
        // checksum wrong.
        unsafe {
            let end = out.as_mut_ptr().add(out.len());
            core::ptr::copy_nonoverlapping(from.as_ptr(), end, len);
            out.set_len(out.len() + len);
        }
        true
    }

    /// Length in bytes of the entry at `at`, if there can be one.
    fn len_at(&self, at: usize) -> Option<usize> {
        let [_, _, last] = words(self.bytes(at, HEAD)?)?;
        let len = (HEAD + last as u32 as usize).next_multiple_of(8);
        self.bytes(at, len).map(|_| len)
    }

    /// Names the entries of a [`Stock`], which begin at offset `from` of the file that an earlier recording has
    /// left. Returns how many. A search does not find what is not an entry.
    pub fn adopt(&self, names: &[u8], from: usize) -> usize {
        let name = |n: &[u8; NAME]| {
            let (key, at) = n.split_at(8);
            let [key, at] =
                [key, at].map(|w| w.first_chunk().map_or(0, |w| u64::from_le_bytes(*w)));
            let at = at.checked_mul(8)?.checked_add((LEN + from) as u64)?;
            let fits = at % 8 == 0 && at / 8 <= ENTRY_OFFSET;
            Some(fits && self.name(key, at as usize, 0))
        };
        let names = names.as_chunks().0.iter();
        names.filter(|n| name(n) == Some(true)).count()
    }

    /// How many translated blocks were used and made.
    pub fn count(&self) -> Count {
        let mut n = Count::default();
        for v in self.named() {
            match v & USED != 0 {
                true if entry_offset(v) >= LEN => n.served += 1,
                true => n.made += 1,
                false => {}
            }
        }
        n
    }
}

/// Offset of the entry that a slot names.
fn entry_offset(slot: u64) -> usize {
    (slot & ENTRY_OFFSET) as usize * 8
}

/// The words of an entry's head.
fn words(head: &[u8]) -> Option<[u64; 3]> {
    let (words, _) = head.get(..HEAD)?.as_chunks::<8>();
    let [a, b, c] = words else { return None };
    Some([a, b, c].map(|w| u64::from_le_bytes(*w)))
}

/// The key of the translated block whose entry begins `bytes`, which nobody changes. `None` if there is none,
/// or its checksum is wrong.
fn key_of_block(bytes: &[u8]) -> Option<u64> {
    let [sum, key, last] = words(bytes)?;
    let whole = bytes.get(8..HEAD + last as u32 as usize)?;
    (last >> 32 == kind::BLOCK as u64 && xxh3_64(whole) == sum).then_some(key)
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;

    const KIND: u32 = kind::BLOCK;

    fn memory() -> vec::Vec<u64> {
        vec![0; LEN / 8]
    }

    #[test]
    fn what_was_put_is_found() {
        let mut m = memory();
        // SAFETY: aligned and long enough, and used through the cache only.
        let s = unsafe { SharedCache::new(m.as_mut_ptr().cast()) };
        // Two keys with the same first slot, and one key twice.
        let keys = [7, 7 + SLOTS as u64, 7 + (1 << 40), 7];
        for (i, k) in keys.iter().enumerate() {
            s.put(KIND, *k, &[i as u8; 100][..i * 10]);
        }
        let lens = |k| {
            s.find(KIND, k)
                .map(|f| f.content.len())
                .collect::<vec::Vec<_>>()
        };
        assert_eq!(lens(7), [0, 30]);
        assert_eq!(lens(7 + SLOTS as u64), [10]);
        assert_eq!(lens(7 + (1 << 40)), [20]);
        assert_eq!(lens(8), [0usize; 0]);
        assert_eq!(s.find(kind::PROCESSOR, 7).count(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "checksums of megabytes")]
    fn damage_is_not_returned() {
        let mut m = memory();
        // SAFETY: as above.
        let s = unsafe { SharedCache::new(m.as_mut_ptr().cast()) };
        s.put(KIND, 1, b"something to be kept");
        // SAFETY: the bytes are in the first entry, and nobody has a reference to it.
        let flip = |byte: usize| unsafe {
            let b = s.base.add(ENTRIES + byte);
            b.write(b.read() ^ 0x40);
        };
        for byte in 0..HEAD + 20 {
            flip(byte);
            assert_eq!(s.find(KIND, 1).count(), 0, "byte {byte}");
            flip(byte);
        }
        s.slot(1).store(1 << 20 | 12345, Relaxed);
        assert_eq!(s.find(KIND, 1).count(), 0);
        s.slot(1).store(u32::MAX as u64, Relaxed);
        assert_eq!(s.find(KIND, 1).count(), 0);
    }

    /// A file with something before the entries.
    fn file(stock: &Stock) -> vec::Vec<u8> {
        [&[0; FROM][..], &stock.entries].concat()
    }

    const FROM: usize = 24;

    #[test]
    fn a_stock_serves_another_shared_cache() {
        let (mut a, mut b) = (memory(), memory());
        // SAFETY: as above.
        let [s, other] =
            [&mut a, &mut b].map(|m| unsafe { SharedCache::new(m.as_mut_ptr().cast()) });
        for k in 0..100u64 {
            s.put(KIND, k << 32 | k, &[k as u8; 100][..k as usize]);
        }
        s.put(kind::PROCESSOR, 5, b"of this machine");
        let stock = s.stock(LEN, false);
        let kept = file(&stock);
        assert_eq!(other.adopt(&stock.names, FROM), 100);
        // Who has not mapped the file finds nothing.
        assert_eq!(other.find(KIND, 7 << 32 | 7).count(), 0);
        let other = other.with_kept(&kept);
        assert_eq!(other.find(kind::PROCESSOR, 5).count(), 0);
        for k in 0..100u64 {
            let found = other.find(KIND, k << 32 | k).next().unwrap();
            assert_eq!(found.content, vec![k as u8; k as usize]);
            if k < 10 {
                found.serves();
            }
        }
        other.put(KIND, 1000, b"new");
        assert_eq!(
            other.count(),
            Count {
                served: 10,
                made: 1
            }
        );
        let all = other.stock(LEN, true);
        assert_eq!(all.entries.len(), stock.entries.len() + 32);
        assert_eq!(all.names.len(), 101 * NAME);
        let used = other.stock(LEN, false);
        assert!(used.entries.len() < 1000, "{}", used.entries.len());
        assert!(other.stock(500, true).entries.len() <= 500);
        // What was kept of what was kept.
        let (mut c, kept) = (memory(), file(&all));
        // SAFETY: as above.
        let third = unsafe { SharedCache::new(c.as_mut_ptr().cast()) }.with_kept(&kept);
        assert_eq!(third.adopt(&all.names, FROM), 101);
        assert_eq!(third.find(KIND, 1000).next().unwrap().content, b"new");
    }

    #[test]
    fn a_damaged_stock_does_no_harm() {
        let mut m = memory();
        // SAFETY: as above.
        let s = unsafe { SharedCache::new(m.as_mut_ptr().cast()) };
        for k in 0..20u64 {
            s.put(KIND, k, &[k as u8; 50]);
        }
        let stock = s.stock(LEN, false);
        let (names, whole) = (stock.names.len(), file(&stock));
        let all = [&stock.names[..], &whole].concat();
        for at in (0..all.len()).step_by(if cfg!(miri) { 211 } else { 3 }) {
            let (mut bad, mut m) = (all.clone(), memory());
            bad[at] ^= 0x81;
            let (names, kept) = bad.split_at(names);
            // SAFETY: as above.
            let s = unsafe { SharedCache::new(m.as_mut_ptr().cast()) };
            let s = s.with_kept(&kept[..kept.len() - at % 7]);
            s.adopt(names, FROM);
            for k in 0..20u64 {
                for f in s.find(KIND, k) {
                    assert_eq!(f.content, [k as u8; 50]);
                }
            }
            s.stock(LEN, true);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "half a million slots")]
    fn names_of_what_is_no_entry_cost_little() {
        let mut m = memory();
        // SAFETY: as above.
        let s = unsafe { SharedCache::new(m.as_mut_ptr().cast()) };
        s.put(KIND, 1, &[7; 1000]);
        // Half of the slots name a large stretch that is not an entry. The others name the good entry.
        s.header()
            .pages
            .iter()
            .for_each(|p| p.store(u64::MAX, Relaxed));
        let large = ENTRIES + 4096;
        // SAFETY: within the shared cache.
        unsafe { s.base.add(large + 16).cast::<u64>().write(100 << 20) };
        for i in 0..SLOTS {
            let at = if i % 2 == 0 { large } else { ENTRIES };
            s.slot(i).store(USED | (at / 8) as u64, Relaxed);
        }
        let stock = s.stock(LEN, true);
        assert_eq!(stock.entries.len(), HEAD + 1000);
        assert_eq!(s.count().made, SLOTS);
    }

    #[test]
    #[cfg_attr(miri, ignore = "checksums of 512 MiB")]
    fn it_can_be_full() {
        let mut m = memory();
        // SAFETY: as above.
        let s = unsafe { SharedCache::new(m.as_mut_ptr().cast()) };
        let big = vec![1; 4 << 20];
        for k in 0..200 {
            s.put(KIND, k, &big);
        }
        let kept = (0..200).filter(|k| s.find(KIND, *k).count() == 1).count();
        assert_eq!(kept, (LEN - ENTRIES) / (big.len() + HEAD));
        s.put(KIND, 0, &vec![0; LEN]);
        assert_eq!(s.find(KIND, 0).count(), 1);
    }
}
