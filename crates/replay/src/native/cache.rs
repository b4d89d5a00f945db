//! The translation cache: blocks, links between them, and the code that they depend on.

use super::executable::{Executable, code_was_written};
use crate::Error;
use crate::library::Key;
use crate::maps::Map;
use hindsight_isa::ctx::table;
use hindsight_isa::{Ctx, Desc};
use hindsight_translate::Block as Translated;

/// Bytes of each half, hot and cold.
const HALF: usize = 32 << 20;
const ALIGN: usize = 16;

/// One translated block.
pub struct Block {
    pub key: Key,
    hot: u32,
    hot_len: u32,
    cold: u32,
    cold_len: u32,
    /// Start of the bytes that make the translation the same again (see [`Translated::peeked`]), as an index
    /// of [`Cache::peeked`].
    peeked: u32,
    peeked_len: u8,
    live: bool,
    /// The last displacement that was redirected to this block, as an index of the links.
    incoming: u32,
}

/// Ends a list.
const NONE: u32 = u32::MAX;

/// A displacement that was redirected to a block.
struct Link {
    /// Its offset in the cache.
    patch: u32,
    /// Its value before.
    before: i32,
    /// The link that was redirected to the same block before.
    next: u32,
}

/// Number of links for which memory is reserved at once.
const LINKS: usize = 1 << 12;

/// End of the usable bytes. The last descriptor may be a short one, and must be readable as a long one.
const END: usize = 2 * HALF - Desc::LONG;

/// The translation cache of one machine.
pub struct Cache {
    map: Executable,
    hot: usize,
    cold: usize,
    blocks: Vec<Block>,
    /// Number and host address of each block.
    index: Map<Key, (u32, u64)>,
    /// For each page: the last block made from its code, or with a look at it, as an index of `uses`.
    pages: Map<u64, u32>,
    /// A block, and the index of the previous block of the same page. These lists, and the ones below, use
    /// few large allocations: much code is translated only once.
    uses: Vec<(u32, u32)>,
    links: Vec<Link>,
    peeked: Vec<u8>,
    /// How often the cache was emptied.
    pub flushes: u64,
}

impl Cache {
    pub fn new() -> Result<Cache, Error> {
        Ok(Cache {
            map: Executable::new(2 * HALF)?,
            hot: 0,
            cold: HALF,
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

    /// Number and host address of a block, if it is translated.
    #[inline(always)]
    pub fn find(&self, key: Key) -> Option<(u32, u64)> {
        self.index.get(&key).copied()
    }

    /// Host addresses at which the halves of a block with these sizes would be placed. `None` if the cache is
    /// full.
    pub fn room(&self, hot: usize, cold: usize) -> Option<(u64, u64)> {
        let fits = self.hot + hot <= HALF && self.cold + cold <= END;
        fits.then(|| {
            (
                self.base() + self.hot as u64,
                self.base() + self.cold as u64,
            )
        })
    }

    /// Places a block where `room` said. It depends on the code in `pages`.
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

    /// Whether [`Cache::link`] needs no allocation.
    #[inline(always)]
    pub fn can_link(&self) -> bool {
        self.links.len() < self.links.capacity()
    }

    /// Allocates memory for more links.
    pub fn reserve_links(&mut self) {
        self.links.reserve(LINKS);
    }

    /// Redirects the displacement at offset `patch` to block `id`. `false` if translated code cannot have
    /// named this offset.
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

    /// Drops the blocks made from code in `page`.
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

    /// Drops the blocks made from pages for which `same` says that the code changed.
    pub fn keep_pages(&mut self, ctx: &mut Ctx, mut same: impl FnMut(u64) -> bool) {
        let changed: Vec<u64> = self.pages.keys().copied().filter(|p| !same(*p)).collect();
        for page in changed {
            self.drop_page(page, ctx);
        }
    }

    /// Drops all blocks.
    pub fn flush(&mut self, ctx: &mut Ctx) {
        ctx.ibl[table::CHECKED].clear();
        self.hot = 0;
        self.cold = HALF;
        self.blocks.clear();
        self.index.clear();
        self.pages.clear();
        self.uses.clear();
        self.links.clear();
        self.peeked.clear();
        self.flushes += 1;
    }

    /// Whether the cache has no blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The bytes that make a block's translation the same again (see [`Translated::peeked`]).
    pub fn peeked(&self, block: &Block) -> &[u8] {
        let start = block.peeked as usize;
        self.peeked
            .get(start..start + block.peeked_len as usize)
            .unwrap_or_default()
    }

    /// The block that contains host address `pc`, and the offset in its half: `Ok` for hot, `Err` for cold.
    pub fn at(&self, pc: u64) -> Option<(&Block, Result<u32, u32>)> {
        let at = pc.checked_sub(self.base())? as u32;
        let i = if (at as usize) < HALF {
            self.blocks.partition_point(|b| b.hot <= at)
        } else {
            self.blocks.partition_point(|b| b.cold <= at)
        };
        let b = self.blocks.get(i.checked_sub(1)?)?;
        if (at as usize) < HALF {
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

    /// Translated code names a descriptor by its offset. The offset is checked before the descriptor is read.
    #[test]
    fn the_last_descriptor_can_be_read() {
        let cache = Cache::new().unwrap();
        let most = HALF - Desc::LONG;
        let (_, cold) = cache.room(0, most).unwrap();
        assert_eq!(cold + (most + Desc::LONG) as u64, cache.range().end);
        assert!(cache.room(0, most + 1).is_none());
    }
}
