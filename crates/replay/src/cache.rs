//! Translated blocks, their links and what they depend on.

use crate::Error;
use crate::memory::Mapping;
use hindsight_isa::Ctx;
use hindsight_isa::ctx::table;
use hindsight_translate::Block as Translated;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes of each of the two parts, hot and cold.
const PART: usize = 32 << 20;
const ALIGN: usize = 16;

/// Name of a block: its guest address, and the number of instructions it is limited to (0: none).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub pc: u64,
    pub limit: u32,
}

/// Mixes integers; guest addresses need no more.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(*b as u64));
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(29) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// One translated block.
pub struct Block {
    pub key: Key,
    hot: u32,
    hot_len: u32,
    cold: u32,
    cold_len: u32,
    live: bool,
    /// Displacements that were redirected to this block, with the value they had.
    incoming: Vec<(u32, i32)>,
}

/// The code cache of one machine.
pub struct Cache {
    map: Mapping,
    hot: usize,
    cold: usize,
    blocks: Vec<Block>,
    /// Number and host address of each block.
    index: Map<Key, (u32, u64)>,
    /// Blocks made from, or with a look at, the code of a page.
    pages: Map<u64, Vec<u32>>,
    /// Times the cache was emptied.
    pub flushes: u64,
}

impl Cache {
    pub fn new() -> Result<Cache, Error> {
        Ok(Cache {
            map: Mapping::new(2 * PART, true)?,
            hot: 0,
            cold: PART,
            blocks: Vec::new(),
            index: Map::default(),
            pages: Map::default(),
            flushes: 0,
        })
    }

    pub fn base(&self) -> u64 {
        self.map.base() as u64
    }

    pub fn range(&self) -> std::ops::Range<u64> {
        self.base()..self.base() + self.map.len() as u64
    }

    /// Host address of a block, if it is translated.
    #[inline(always)]
    pub fn find(&self, key: Key) -> Option<(u32, u64)> {
        self.index.get(&key).copied()
    }

    /// Where a block of these sizes would go: host addresses of its parts. `None` when full.
    pub fn room(&self, hot: usize, cold: usize) -> Option<(u64, u64)> {
        let fits = self.hot + hot <= PART && self.cold + cold <= 2 * PART;
        fits.then(|| {
            (
                self.base() + self.hot as u64,
                self.base() + self.cold as u64,
            )
        })
    }

    /// Enters a block at the place that `room` gave. It depends on the code in `pages`.
    pub fn insert(&mut self, key: Key, code: &Translated, pages: &[u64]) {
        assert!(self.room(code.hot.len(), code.cold.len()).is_some());
        // SAFETY: there is room for both parts, and no reference into the cache exists.
        unsafe {
            let base = self.map.base();
            std::ptr::copy_nonoverlapping(code.hot.as_ptr(), base.add(self.hot), code.hot.len());
            std::ptr::copy_nonoverlapping(code.cold.as_ptr(), base.add(self.cold), code.cold.len());
        }
        let id = self.blocks.len() as u32;
        let hot = self.hot as u64;
        self.blocks.push(Block {
            key,
            hot: self.hot as u32,
            hot_len: code.hot.len() as u32,
            cold: self.cold as u32,
            cold_len: code.cold.len() as u32,
            live: true,
            incoming: Vec::new(),
        });
        self.index.insert(key, (id, self.base() + hot));
        for page in pages {
            self.pages.entry(*page).or_default().push(id);
        }
        self.hot = (self.hot + code.hot.len()).next_multiple_of(ALIGN);
        self.cold = (self.cold + code.cold.len()).next_multiple_of(ALIGN);
    }

    /// Redirects the displacement at offset `patch` to block `id`. `false` if the offset is not
    /// one that translated code can have named.
    pub fn link(&mut self, patch: u32, id: u32) -> bool {
        let at = patch as usize;
        if at + 4 > 2 * PART {
            return false;
        }
        let Some(block) = self.blocks.get_mut(id as usize) else {
            return false;
        };
        let displacement = (block.hot as i64 - (patch as i64 + 4)) as i32;
        // SAFETY: four bytes within the cache; this thread is the only one that runs it.
        unsafe {
            let p = self.map.base().add(at).cast::<i32>();
            block.incoming.push((patch, p.read_unaligned()));
            p.write_unaligned(displacement);
        }
        true
    }

    /// Drops what was made from the code in `page`.
    pub fn drop_page(&mut self, page: u64, ctx: &mut Ctx) {
        for id in self.pages.remove(&page).unwrap_or_default() {
            let Some(b) = self.blocks.get_mut(id as usize) else {
                continue;
            };
            if !std::mem::take(&mut b.live) {
                continue;
            }
            for (patch, displacement) in std::mem::take(&mut b.incoming) {
                // SAFETY: the offset was checked when the link was made.
                unsafe {
                    self.map
                        .base()
                        .add(patch as usize)
                        .cast::<i32>()
                        .write_unaligned(displacement)
                }
            }
            ctx.targets[table::CHECKED].forget(b.key.pc);
            self.index.remove(&b.key);
        }
    }

    /// Drops everything.
    pub fn flush(&mut self, ctx: &mut Ctx) {
        ctx.targets[table::CHECKED].clear();
        self.hot = 0;
        self.cold = PART;
        self.blocks.clear();
        self.index.clear();
        self.pages.clear();
        self.flushes += 1;
    }

    /// Whether nothing is translated.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block that contains host address `pc`, and the offset in its hot or (second) cold part.
    pub fn at(&self, pc: u64) -> Option<(&Block, Result<u32, u32>)> {
        let at = pc.checked_sub(self.base())? as u32;
        let i = if (at as usize) < PART {
            self.blocks.partition_point(|b| b.hot <= at)
        } else {
            self.blocks.partition_point(|b| b.cold <= at)
        };
        let b = self.blocks.get(i.checked_sub(1)?)?;
        if (at as usize) < PART {
            let offset = at - b.hot;
            (offset < b.hot_len).then_some((b, Ok(offset)))
        } else {
            let offset = at - b.cold;
            (offset < b.cold_len).then_some((b, Err(offset)))
        }
    }
}
