//! The shared cache: byte strings in memory that several processes share. All program images of a recording put
//! translated code and other common knowledge there, and find what others put.
//!
//! It consists of a header, an index of [`SLOTS`] words, and the entries. A process first writes an entry
//! whole, into room that nobody else has. Then it sets the entry's slot with one atomic operation. An entry
//! never changes afterwards. So a process that is killed leaves at most unused room behind. Each entry has a
//! checksum, because the recorded programs can write anywhere.

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

/// The bits of a slot that hold the entry's offset, in words.
const ENTRY_OFFSET: u64 = (1 << 31) - 1;
const _: () = assert!(LEN / 8 <= ENTRY_OFFSET as usize);

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
    /// Restored entries that were used.
    pub served: usize,
    /// Entries that were put in the shared cache in this recording.
    pub made: usize,
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
    /// Of these, bytes of entries that were restored from an earlier recording.
    restored: AtomicU64,
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
        }
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

    fn entry(&self, at: usize, kind: u32, key: u64) -> Option<&'m [u8]> {
        if at < ENTRIES || at + HEAD > LEN {
            return None;
        }
        // SAFETY: within the shared cache, and entries that the index names do not change.
        let head: [u64; 3] = unsafe { self.base.add(at).cast::<[u64; 3]>().read() };
        let len = head[2] as u32 as usize;
        if head[1] != key || head[2] >> 32 != kind as u64 || len > LEN - at - HEAD {
            return None;
        }
        // SAFETY: as above.
        let whole = unsafe { core::slice::from_raw_parts(self.base.add(at + 8), HEAD - 8 + len) };
        (xxh3_64(whole) == head[0]).then(|| &whole[HEAD - 8..])
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
    pub fn stock(&self, most: usize, all: bool) -> Vec<u8> {
        let mut offsets: Vec<usize> = self
            .named()
            .filter(|v| all || v & USED != 0)
            .map(entry_offset)
            .collect();
        offsets.sort_unstable();
        let (mut out, mut end) = (Vec::new(), 0);
        // A slot may name bytes that are not an entry. This bounds how often the same bytes are read for
        // that.
        let mut bad = 0;
        for at in offsets {
            let Some(len) = self.len_at(at).filter(|_| at >= end) else {
                continue;
            };
            let start = out.len();
            if start + len > most || bad > LEN {
                break;
            }
            self.copy(at, len, &mut out);
            let good = Entry::read(&out[start..]).is_some_and(|e| e.kind == kind::BLOCK);
            if good {
                end = at + len;
            } else {
                bad += len;
                out.truncate(start);
            }
        }
        out
    }

    /// Copies `len` bytes from offset `at` to the end of `out`.
    fn copy(&self, at: usize, len: usize, out: &mut Vec<u8>) {
        assert!(at <= LEN && len <= LEN - at);
        out.reserve(len);
        // SAFETY: the source lies within the shared cache, and `reserve` made room in the vector. A concurrent
        // change makes the copy's checksum wrong.
        unsafe {
            let end = out.as_mut_ptr().add(out.len());
            core::ptr::copy_nonoverlapping(self.base.add(at).cast_const(), end, len);
            out.set_len(out.len() + len);
        }
    }

    /// Length in bytes of the entry at `at`, if there can be one.
    fn len_at(&self, at: usize) -> Option<usize> {
        if at < ENTRIES || at + HEAD > LEN {
            return None;
        }
        // SAFETY: within the shared cache.
        let word = unsafe { self.base.add(at + 16).cast::<u64>().read_volatile() };
        let len = (HEAD + word as u32 as usize).next_multiple_of(8);
        (len <= LEN - at).then_some(len)
    }

    /// Restores `len` bytes that [`SharedCache::stock`] made, in an empty shared cache. `read` writes them into its
    /// argument and says whether it could. Returns the number of entries that were named. A search does not
    /// find damaged entries.
    pub fn restock(&self, len: usize, read: impl FnOnce(&mut [u8]) -> bool) -> usize {
        let used = &self.header().used;
        if used.load(Relaxed) != 0 || len > LEN - ENTRIES {
            return 0;
        }
        // SAFETY: within the shared cache, and nobody has been given any of it.
        let room = unsafe { core::slice::from_raw_parts_mut(self.base.add(ENTRIES), len) };
        if !read(room) {
            return 0;
        }
        let (mut at, mut entries) = (0, 0);
        while let Some(e) = room.get(at..).and_then(Entry::parse) {
            entries += self.name(e.key, ENTRIES + at, 0) as usize;
            at += e.len;
        }
        self.header().restored.store(at as u64, Relaxed);
        used.store(at as u64, Relaxed);
        entries
    }

    /// How many translated blocks were used and made.
    pub fn count(&self) -> Count {
        let restored = self.header().restored.load(Relaxed);
        let mut n = Count::default();
        for v in self.named() {
            match v & USED != 0 {
                true if (entry_offset(v) as u64) < restored.saturating_add(ENTRIES as u64) => {
                    n.served += 1
                }
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

/// An entry in bytes that nobody changes.
struct Entry {
    key: u64,
    kind: u32,
    /// Length of the whole entry in bytes.
    len: usize,
}

impl Entry {
    /// The entry at the start of `bytes`. Does not check the checksum.
    fn parse(bytes: &[u8]) -> Option<Entry> {
        let ([_, key, last], _) = bytes.get(..HEAD)?.as_chunks::<8>() else {
            return None;
        };
        let last = u64::from_le_bytes(*last);
        let len = (HEAD + last as u32 as usize).next_multiple_of(8);
        let entry = Entry {
            key: u64::from_le_bytes(*key),
            kind: (last >> 32) as u32,
            len,
        };
        (entry.kind == kind::BLOCK && len <= bytes.len()).then_some(entry)
    }

    /// The same, but `None` if the checksum is wrong.
    fn read(bytes: &[u8]) -> Option<Entry> {
        let entry = Entry::parse(bytes)?;
        let sum = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
        let content = u64::from_le_bytes(*bytes.get(16..)?.first_chunk::<8>()?) as u32 as usize;
        (xxh3_64(bytes.get(8..HEAD + content)?) == sum).then_some(entry)
    }
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
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&stock);
            true
        };
        assert_eq!(other.restock(stock.len(), fill), 100);
        assert_eq!(other.restock(stock.len(), fill), 0, "not empty");
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
        assert_eq!(other.stock(LEN, true).len(), stock.len() + 32);
        let used = other.stock(LEN, false);
        assert!(used.len() < 1000, "{}", used.len());
        assert!(other.stock(500, true).len() <= 500);
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
        for at in (0..stock.len()).step_by(if cfg!(miri) { 211 } else { 3 }) {
            let (mut bad, mut m) = (stock.clone(), memory());
            bad[at] ^= 0x81;
            // SAFETY: as above.
            let s = unsafe { SharedCache::new(m.as_mut_ptr().cast()) };
            s.restock(bad.len() - at % 7, |to| {
                to.copy_from_slice(&bad[..bad.len() - at % 7]);
                true
            });
            for k in 0..20u64 {
                for f in s.find(KIND, k) {
                    assert_eq!(f.content, [k as u8; 50]);
                }
            }
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
        s.header().restored.store(u64::MAX, Relaxed);
        let large = ENTRIES + 4096;
        // SAFETY: within the shared cache.
        unsafe { s.base.add(large + 16).cast::<u64>().write(100 << 20) };
        for i in 0..SLOTS {
            let at = if i % 2 == 0 { large } else { ENTRIES };
            s.slot(i).store(USED | (at / 8) as u64, Relaxed);
        }
        let stock = s.stock(LEN, true);
        assert_eq!(stock.len(), HEAD + 1000);
        assert_eq!(s.count().served, SLOTS);
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
