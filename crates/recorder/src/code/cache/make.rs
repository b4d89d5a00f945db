//! How code that has no translation yet gets one.
//!
//! Threads translate at the same time. A thread has the cache only
//!
//! - to find room for its block, and to record the code;
//! - to put the block there, once it was prepared for its place and checked.
//!
//! If something has changed in between, it begins again.

use super::maker::{Lent, Maker, Site};
use super::{
    Block, BlockId, Cache, Entry, Fetch, LockedCache, MARGIN, SHARED, base, cache, key, memory,
    mend, mode,
};
use crate::sys::{config, generation};
use crate::thread::{Thread, threads};
use core::sync::atomic::Ordering::*;
use hindsight_translate::Input;

/// How often a thread begins again before it keeps the cache meanwhile.
const TRIES: u32 = 3;

/// Room for a block.
struct Place {
    id: BlockId,
    hot: u64,
    cold: u64,
}

/// The translation of `pc`, which is made if there is none, and the cache. May begin a new
/// generation.
pub fn get(t: &mut Thread, pc: u64) -> Result<(LockedCache, Entry), Fetch> {
    let (mut maker, mut anew) = (None::<Lent>, false);
    for tries in 0.. {
        t.code.leave();
        let mut cache = cache();
        cache.attend(t);
        if let Some(found) = SHARED.blocks.find(key(pc, t.is_plain())) {
            return Ok((cache, found));
        }
        let maker = maker.get_or_insert_with(|| Maker::borrow(cache.translator.policy));
        cache.instruct(maker, t.is_plain());
        let changes = SHARED.changes.load(Relaxed);
        // Nobody else wants it, or whoever wants it changes something all the time.
        let keep = threads::is_alone() || tries >= TRIES;
        let kept = give_back(t, cache, keep);
        let site = Site::of(pc)?;
        maker.make(&site, anew)?;
        let mut cache = take_back(t, kept);
        if SHARED.changes.load(Relaxed) != changes {
            continue;
        }
        let Some(place) = cache.reserve(t, maker, &site) else {
            continue;
        };
        let changes = SHARED.changes.load(Relaxed);
        let kept = give_back(t, cache, keep);
        let settled = maker.settle(place.hot, place.cold);
        let mut cache = take_back(t, kept);
        if let Err(refusal) = settled {
            log!(
                Warn,
                "the code check refuses the block at {pc:#x}: {refusal}"
            );
            anew = true;
            cache.dead += 1;
            if !maker.restored {
                let input = Input {
                    pc,
                    code: maker.source(),
                    max_instrs: u32::MAX,
                    self_check: site.writable,
                    peeked: &maker.translator.block.peeked,
                };
                cache.refuse(&input, t.is_plain(), &refusal);
            }
            continue;
        }
        if SHARED.changes.load(Relaxed) != changes {
            cache.dead += 1;
        } else if let Some(made) = cache.publish(t, maker, &site, &place) {
            return Ok((cache, made));
        }
    }
    unreachable!("it tries again and again")
}

/// Gives the cache back, unless it is to be kept.
fn give_back(t: &Thread, cache: LockedCache, keep: bool) -> Option<LockedCache> {
    let kept = keep.then_some(cache);
    if kept.is_none() {
        t.code.leave();
    }
    kept
}

/// Has the cache again.
fn take_back(t: &mut Thread, kept: Option<LockedCache>) -> LockedCache {
    kept.unwrap_or_else(|| {
        let mut cache = cache();
        cache.attend(t);
        cache
    })
}

impl Cache {
    /// Tells a maker how to translate.
    fn instruct(&self, maker: &mut Maker, plain: bool) {
        let (to, from) = (&mut maker.translator, &self.translator);
        (to.ordered, to.fuse) = (from.ordered, from.fuse);
        to.refused.clone_from(&from.refused);
        to.policy.mode = mode(plain);
    }

    /// Records the code of the maker's block, and finds room for the block. `None`: there may be a
    /// block now.
    #[cold]
    fn reserve(&mut self, t: &mut Thread, maker: &Maker, site: &Site) -> Option<Place> {
        if SHARED.blocks.find(key(site.pc, t.is_plain())).is_some() {
            return None;
        }
        if !site.writable
            && let Some(file) = self.sets.first_look(&site.region, t.is_plain())
            && self.take_set(t, &file)
        {
            return None;
        }
        let src = maker.source();
        let since = self.record_source(t, site, src);
        self.tell_epoch(t);
        let b = &maker.translator.block;
        let (hot_len, cold_len) = (b.hot.len() as u64, b.cold.len() as u64);
        let s = &self.chunks[self.current];
        if s.hot + hot_len + cold_len + MARGIN > s.cold {
            self.extend(t);
        }
        let (hot, cold) = self.chunks[self.current].take(hot_len, cold_len);
        let id = self.note(t, maker, site, hot, since);
        Some(Place { id, hot, cold })
    }

    /// Records the source of a block. Returns the epoch of the code from which on the block may run.
    fn record_source(&mut self, t: &mut Thread, site: &Site, src: &[u8]) -> u64 {
        if t.is_unrecorded() {
            return 0;
        }
        if let Some(range) = self.code.record(site.pc, src, site.writable) {
            SHARED.epoch.store(self.code.epoch, SeqCst);
            log!(
                Debug,
                "epoch {} of code begins: {:#x}-{:#x} has changed",
                self.code.epoch,
                range.start,
                range.end
            );
            self.replaced(t, range);
        }
        self.code.since(site.pc..site.pc + src.len() as u64)
    }

    /// Notes the maker's block, which will be executed at `hot`. Nobody can come there yet. Returns
    /// which one it is.
    fn note(&mut self, t: &Thread, maker: &Maker, site: &Site, hot: u64, since: u64) -> BlockId {
        let s = &mut self.chunks[self.current];
        let (src, b) = (maker.source(), &maker.translator.block);
        s.prepare();
        let (pc, plain) = (site.pc, t.is_plain());
        let id = BlockId::new(self.current, s.blocks.len());
        log!(
            Trace,
            "block of {} bytes at {pc:#x} goes to {hot:#x}{}",
            src.len(),
            if plain { ", plain" } else { "" }
        );
        invariant!(
            s.blocks
                .last()
                .is_none_or(|b| base() + b.hot as u64 + b.hot_len as u64 <= hot),
            "blocks lie in their chunk one behind the other",
            "{pc:#x} at {hot:#x}"
        );
        mend::make_room(&mut s.blocks, 1);
        s.blocks.push(Block {
            pc,
            src_len: src.len() as u32,
            hot: (hot - base()) as u32,
            hot_len: b.hot.len() as u32,
            self_check: site.writable,
            plain,
            ordered: maker.translator.ordered,
            fuse: maker.translator.fuse,
            live: false,
            since,
            bytes: s.bytes.len() as u32,
            peeked: b.peeked.len() as u8,
        });
        mend::make_room(&mut s.bytes, src.len() + b.peeked.len());
        s.bytes.extend_from_slice(src);
        s.bytes.extend_from_slice(&b.peeked);
        id
    }

    /// Writes the maker's block to its place, where threads can come to it from now on. `None`:
    /// another thread was quicker.
    fn publish(
        &mut self,
        t: &mut Thread,
        maker: &mut Maker,
        site: &Site,
        place: &Place,
    ) -> Option<Entry> {
        let key = key(site.pc, t.is_plain());
        if SHARED.blocks.find(key).is_some() {
            self.dead += 1;
            return None;
        }
        self.made += 1;
        invariant!(
            config::get().violate_after != self.made,
            "for tests: this many blocks are not translated",
            "block {} at {:#x}",
            self.made,
            site.pc
        );
        let b = &maker.translator.block;
        // SAFETY: `take` gave out both ranges, which lie in the chunk between its two ends, where
        // nothing was. Nobody else has got them since, as no generation has begun. So nobody else
        // uses these bytes.
        unsafe {
            let to_hot = memory::writable(place.hot, b.hot.len() as u64);
            core::ptr::copy_nonoverlapping(b.hot.as_ptr(), to_hot, b.hot.len());
            let to_cold = memory::writable(place.cold, b.cold.len() as u64);
            core::ptr::copy_nonoverlapping(b.cold.as_ptr(), to_cold, b.cold.len());
        }
        self.translated += b.instrs as u64;
        if let Some(c) = t.emit.ctl() {
            c.translated.store(self.translated, Relaxed);
            c.flushes.store(generation::present() - 1, Relaxed);
        }
        self.present_block(place.id)?.live = true;
        let made = Entry {
            id: place.id,
            hot: (place.hot - base()) as u32,
            takes_flags: b.takes_flags,
        };
        // The pages that were looked at count, too: other code there may need other flags.
        let last = site.pc + b.src_len as u64 - 1;
        let pages = &mut maker.pages;
        pages.extend(site.pc >> 12..=last >> 12);
        pages.sort_unstable();
        pages.dedup();
        for page in pages.iter() {
            self.by_page.entry(*page).or_default().push(place.id);
        }
        SHARED.blocks.set(key, made);
        Some(made)
    }
}
