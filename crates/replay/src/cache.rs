//! Translated blocks, their links and what they depend on.

use crate::Error;
use crate::executable::{Executable, code_was_written};
use hindsight_isa::ctx::table;
use hindsight_isa::{Ctx, Desc};
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

impl Key {
    /// In place of a limit: one instruction, which may write to watched places without being announced. A block that is
    /// limited to one instruction since something is due behind that one announces it.
    pub const UNWATCHED: u32 = u32::MAX;
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
    /// What makes the translation the same again, see [`Translated::peeked`]: where it begins in
    /// [`Cache::peeked`].
    peeked: u32,
    peeked_len: u8,
    live: bool,
    /// The last displacement that was redirected to this block.
    incoming: u32,
}

/// No place in a list.
const NONE: u32 = u32::MAX;

/// A displacement that was redirected to a block.
struct Link {
    /// Where it is.
    patch: u32,
    /// The value it had.
    before: i32,
    /// The one that was redirected to the same block before.
    next: u32,
}

/// Links for which there is room without a look at the host's memory.
const LINKS: usize = 1 << 12;

/// End of what is used: the last descriptor, which may be a short one, can be read as a long one.
const END: usize = 2 * PART - Desc::LONG;

/// The code cache of one machine.
pub struct Cache {
    map: Executable,
    hot: usize,
    cold: usize,
    blocks: Vec<Block>,
    /// Number and host address of each block.
    index: Map<Key, (u32, u64)>,
    /// Blocks made from, or with a look at, the code of a page: the last one, as a place in `uses`.
    pages: Map<u64, u32>,
    /// A block and the place of the one before it of the same page. Lists in few large pieces of memory, here
    /// and below: much code is translated only once.
    uses: Vec<(u32, u32)>,
    links: Vec<Link>,
    peeked: Vec<u8>,
    /// Times the cache was emptied.
    pub flushes: u64,
}

impl Cache {
    pub fn new() -> Result<Cache, Error> {
        Ok(Cache {
            map: Executable::new(2 * PART)?,
            hot: 0,
            cold: PART,
            blocks: Vec::new(),
            index: Map::default(),
            pages: Map::default(),
            uses: Vec::new(),
            links: Vec::new(),
            peeked: Vec::new(),
            flushes: 0,
        })
    }

    pub fn base(&self) -> u64 {
        self.map.base()
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
        let fits = self.hot + hot <= PART && self.cold + cold <= END;
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
        self.map.put(self.hot, &code.hot);
        self.map.put(self.cold, &code.cold);
        code_was_written();
        let id = self.blocks.len() as u32;
        let hot = self.hot as u64;
        self.blocks.push(Block {
            key,
            hot: self.hot as u32,
            hot_len: code.hot.len() as u32,
            cold: self.cold as u32,
            cold_len: code.cold.len() as u32,
            peeked: self.peeked.len() as u32,
            peeked_len: code.peeked.len() as u8,
            live: true,
            incoming: NONE,
        });
        self.peeked.extend_from_slice(&code.peeked);
        self.index.insert(key, (id, self.base() + hot));
        for page in pages {
            let last = self.pages.entry(*page).or_insert(NONE);
            let before = std::mem::replace(last, self.uses.len() as u32);
            self.uses.push((id, before));
        }
        self.hot = (self.hot + code.hot.len()).next_multiple_of(ALIGN);
        self.cold = (self.cold + code.cold.len()).next_multiple_of(ALIGN);
    }

    /// Whether [`Cache::link`] needs no memory from the host.
    #[inline(always)]
    pub fn can_link(&self) -> bool {
        self.links.len() < self.links.capacity()
    }

    /// Gets memory for further links.
    pub fn reserve_links(&mut self) {
        self.links.reserve(LINKS);
    }

    /// Redirects the displacement at offset `patch` to block `id`. `false` if the offset is not
    /// one that translated code can have named.
    #[inline(always)]
    pub fn link(&mut self, patch: u32, id: u32) -> bool {
        let Some(block) = self.blocks.get_mut(id as usize) else {
            return false;
        };
        let displacement = (block.hot as i64 - (patch as i64 + 4)) as i32;
        let Some(before) = self.map.replace(patch as usize, displacement) else {
            return false;
        };
        code_was_written();
        let next = std::mem::replace(&mut block.incoming, self.links.len() as u32);
        self.links.push(Link {
            patch,
            before,
            next,
        });
        true
    }

    /// Drops what was made from the code in `page`.
    pub fn drop_page(&mut self, page: u64, ctx: &mut Ctx) {
        let mut use_of = self.pages.remove(&page).unwrap_or(NONE);
        while let Some(&(id, before)) = self.uses.get(use_of as usize) {
            use_of = before;
            let Some(b) = self.blocks.get_mut(id as usize) else {
                continue;
            };
            if !std::mem::take(&mut b.live) {
                continue;
            }
            let mut link = std::mem::replace(&mut b.incoming, NONE);
            while let Some(l) = self.links.get(link as usize) {
                self.map.replace(l.patch as usize, l.before);
                link = l.next;
            }
            ctx.ibl[table::CHECKED].forget(b.key.pc);
            self.index.remove(&b.key);
        }
        code_was_written();
    }

    /// Drops what was made from code that is not `same` any more, which is asked for each page.
    pub fn keep_pages(&mut self, ctx: &mut Ctx, mut same: impl FnMut(u64) -> bool) {
        let changed: Vec<u64> = self.pages.keys().copied().filter(|p| !same(*p)).collect();
        for page in changed {
            self.drop_page(page, ctx);
        }
    }

    /// Drops everything.
    pub fn flush(&mut self, ctx: &mut Ctx) {
        ctx.ibl[table::CHECKED].clear();
        self.hot = 0;
        self.cold = PART;
        self.blocks.clear();
        self.index.clear();
        self.pages.clear();
        self.uses.clear();
        self.links.clear();
        self.peeked.clear();
        self.flushes += 1;
    }

    /// Whether nothing is translated.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// What makes the translation of a block the same again, see [`Translated::peeked`].
    pub fn peeked(&self, block: &Block) -> &[u8] {
        let start = block.peeked as usize;
        self.peeked
            .get(start..start + block.peeked_len as usize)
            .unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Translated code names its descriptor by an offset that is checked before it is read.
    #[test]
    fn the_last_descriptor_can_be_read() {
        let cache = Cache::new().unwrap();
        let most = PART - Desc::LONG;
        let (_, cold) = cache.room(0, most).unwrap();
        assert_eq!(cold + (most + Desc::LONG) as u64, cache.range().end);
        assert!(cache.room(0, most + 1).is_none());
    }
}
