//! A shelf of byte strings in memory that several processes share: they put translated code on it,
//! and what else all program images of a recording may know, and find there what others have put.
//!
//! A header, then an index of [`SLOTS`] words, then the entries. An entry is written whole into room
//! that nobody else has, then its slot is set by one atomic operation; it never changes afterwards.
//! So a process that is killed at any moment leaves at most unused room behind. Each entry has a
//! checksum, since the programs that run in these processes can write anywhere.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::*};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a shelf.
pub const LEN: usize = 64 << 20;

/// Entries that it can name.
const SLOTS: usize = 1 << 17;

/// Slots looked at for one key.
const PROBES: usize = 16;

const INDEX: usize = 4096;
const ENTRIES: usize = INDEX + 8 * SLOTS;

/// Bytes of an entry before its content: checksum of what follows, key, length and kind.
const HEAD: usize = 24;

/// What an entry is.
pub mod kind {
    /// A translated block.
    pub const BLOCK: u32 = 1;
    /// What the processor says of itself.
    pub const PROCESSOR: u32 = 2;
}

/// The first page.
#[repr(C)]
struct Header {
    /// Bytes of entries given out.
    used: AtomicU64,
}

/// The shelf in a mapping.
#[derive(Clone, Copy)]
pub struct Shelf<'m> {
    base: *mut u8,
    mapping: PhantomData<&'m [AtomicU64]>,
}

// SAFETY: the header and the index are atomics; entries are written before they are named there.
unsafe impl Send for Shelf<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shelf<'_> {}

impl<'m> Shelf<'m> {
    /// # Safety
    /// `base` is the start of [`LEN`] bytes of shared memory, zeros at first, that stay mapped for
    /// `'m`, are aligned to a page, and are written through this type only.
    pub unsafe fn new(base: *mut u8) -> Shelf<'m> {
        Shelf {
            base,
            mapping: PhantomData,
        }
    }

    fn header(&self) -> &'m Header {
        // SAFETY: by the contract of `new`; only atomics.
        unsafe { &*self.base.cast::<Header>() }
    }

    fn slot(&self, i: usize) -> &'m AtomicU64 {
        // SAFETY: within the index.
        unsafe { &*self.base.add(INDEX + 8 * (i % SLOTS)).cast::<AtomicU64>() }
    }

    /// Slots in which `key` may be.
    fn slots(&self, key: u64) -> impl Iterator<Item = &'m AtomicU64> {
        let first = key as usize % SLOTS;
        let shelf = *self;
        (first..first + PROBES).map(move |i| shelf.slot(i))
    }

    /// The contents of kind `kind` that were put under `key`.
    pub fn find(&self, kind: u32, key: u64) -> impl Iterator<Item = &'m [u8]> {
        let shelf = *self;
        self.slots(key)
            .map(|s| s.load(Acquire))
            .take_while(|v| *v != 0)
            .filter(move |v| v >> 32 == key >> 32)
            .filter_map(move |v| shelf.entry((v as u32 as usize) * 8, kind, key))
    }

    fn entry(&self, at: usize, kind: u32, key: u64) -> Option<&'m [u8]> {
        if at < ENTRIES || at + HEAD > LEN {
            return None;
        }
        // SAFETY: within the shelf; entries that are named do not change.
        let head: [u64; 3] = unsafe { self.base.add(at).cast::<[u64; 3]>().read() };
        let len = head[2] as u32 as usize;
        if head[1] != key || head[2] >> 32 != kind as u64 || len > LEN - at - HEAD {
            return None;
        }
        // SAFETY: as above.
        let whole = unsafe { core::slice::from_raw_parts(self.base.add(at + 8), HEAD - 8 + len) };
        (xxh3_64(whole) == head[0]).then(|| &whole[HEAD - 8..])
    }

    /// Puts `content` of kind `kind` on the shelf under `key`, unless there is no room.
    pub fn put(&self, kind: u32, key: u64, content: &[u8]) {
        let total = (HEAD + content.len()).next_multiple_of(8);
        let room = LEN - ENTRIES;
        let used = &self.header().used;
        if content.len() > room || used.load(Relaxed) > (room - total.min(room)) as u64 {
            return;
        }
        let at = ENTRIES as u64 + used.fetch_add(total as u64, Relaxed);
        if at > (LEN - total) as u64 {
            return;
        }
        let at = at as usize;
        // SAFETY: `total` bytes within the shelf that were given to nobody else.
        unsafe {
            let entry = self.base.add(at);
            entry
                .add(8)
                .cast::<[u64; 2]>()
                .write([key, (kind as u64) << 32 | content.len() as u64]);
            core::ptr::copy_nonoverlapping(content.as_ptr(), entry.add(HEAD), content.len());
            let whole = core::slice::from_raw_parts(entry.add(8), HEAD - 8 + content.len());
            entry.cast::<u64>().write(xxh3_64(whole));
        }
        let named = key >> 32 << 32 | (at / 8) as u64;
        for slot in self.slots(key) {
            if slot.compare_exchange(0, named, Release, Relaxed).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
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
        // SAFETY: aligned and long enough, used through the shelf only.
        let s = unsafe { Shelf::new(m.as_mut_ptr().cast()) };
        // The same slot, and one key twice.
        let keys = [7, 7 + SLOTS as u64, 7 + (1 << 40), 7];
        for (i, k) in keys.iter().enumerate() {
            s.put(KIND, *k, &[i as u8; 100][..i * 10]);
        }
        let lens = |k| s.find(KIND, k).map(|b| b.len()).collect::<vec::Vec<_>>();
        assert_eq!(lens(7), [0, 30]);
        assert_eq!(lens(7 + SLOTS as u64), [10]);
        assert_eq!(lens(7 + (1 << 40)), [20]);
        assert_eq!(lens(8), [0usize; 0]);
        assert_eq!(s.find(kind::PROCESSOR, 7).count(), 0);
    }

    #[test]
    fn damage_is_not_returned() {
        let mut m = memory();
        // SAFETY: as above.
        let s = unsafe { Shelf::new(m.as_mut_ptr().cast()) };
        s.put(KIND, 1, b"something to be kept");
        for byte in 0..HEAD + 20 {
            // SAFETY: within the first entry.
            let b = unsafe { &mut *s.base.add(ENTRIES + byte) };
            *b ^= 0x40;
            assert_eq!(s.find(KIND, 1).count(), 0, "byte {byte}");
            *b ^= 0x40;
        }
        s.slot(1).store(1 << 20 | 12345, Relaxed);
        assert_eq!(s.find(KIND, 1).count(), 0);
        s.slot(1).store(u32::MAX as u64, Relaxed);
        assert_eq!(s.find(KIND, 1).count(), 0);
    }

    #[test]
    fn it_can_be_full() {
        let mut m = memory();
        // SAFETY: as above.
        let s = unsafe { Shelf::new(m.as_mut_ptr().cast()) };
        let big = vec![1; 1 << 20];
        for k in 0..100 {
            s.put(KIND, k, &big);
        }
        let kept = (0..100).filter(|k| s.find(KIND, *k).count() == 1).count();
        assert_eq!(kept, (LEN - ENTRIES) / (big.len() + HEAD));
        s.put(KIND, 0, &vec![0; LEN]);
        assert_eq!(s.find(KIND, 0).count(), 1);
    }
}
