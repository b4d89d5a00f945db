//! Translations that all program images of a recording share.
//!
//! An image takes what another one has translated from the shared cache. It does so only if the
//! code is the same byte by byte, and so is what was looked at behind its exits. Only code that the
//! program may not write is stored.

use crate::code::epochs;
use crate::stream::ring;
use alloc::vec::Vec;
use hindsight_events::shared_cache::{self, kind};
use hindsight_translate::{Saved, Translator};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A block is found by this many bytes from its beginning.
const PREFIX: usize = 32;

/// Where a block is stored whose code is at `offset` of the file `path`. Blocks of one page are
/// near each other.
pub fn bucket(path: &[u8], offset: u64) -> u64 {
    xxh3_64_with_seed(path, offset >> 12).wrapping_add((offset & 0xfff) >> 3)
}

/// The name under which a block with this [`bucket`] is stored.
pub fn key(translator: &Translator, pc: u64, source: &[u8], bucket: u64) -> u64 {
    let ways = [translator.ordered, !translator.fuse];
    let way = ways
        .iter()
        .fold(translator.policy.mode as u64, |n, w| 2 * n + *w as u64);
    let seed = pc & 0xfff | way << 12;
    let hash = xxh3_64_with_seed(&source[..source.len().min(PREFIX)], seed);
    shared_cache::key(hash, bucket)
}

/// Makes a stored translation of the code at `pc` the translator's present block. The code begins
/// with `source`. Adds the pages that it depends on to `pages`. False if there is none.
pub fn restore(
    translator: &mut Translator,
    pc: u64,
    source: &[u8],
    bucket: u64,
    pages: &mut Vec<u64>,
) -> bool {
    let key = key(translator, pc, source, bucket);
    find(key, pc, source, pages, |saved, _| {
        translator.restore(pc, saved).is_some()
    })
}

/// Looks under `key` for a stored translation that serves for the code at `pc`, which begins with
/// `source`. `take` decides whether it is used. It gets the pages that the block depends on besides
/// its own. These are added to `pages`, which is empty before.
pub fn find(
    key: u64,
    pc: u64,
    source: &[u8],
    pages: &mut Vec<u64>,
    mut take: impl FnMut(&Saved, &[u64]) -> bool,
) -> bool {
    let Some(shared) = ring::shared_cache() else {
        return false;
    };
    shared.find(kind::BLOCK, key).any(|found| {
        let Some(saved) = Saved::read(found.content) else {
            return false;
        };
        let same = |(distance, seen): (i64, &[u8])| {
            seen.is_empty()
                || epochs::peek(pc.wrapping_add_signed(distance), pages).starts_with(seen)
        };
        let good = saved.serves(pc)
            && source.starts_with(saved.source)
            && saved.looks().all(same)
            && take(&saved, pages);
        if good {
            found.serves();
        } else {
            pages.clear();
        }
        good
    })
}

/// Stores the translator's present block, made from the code at `pc`, which begins with `source`.
pub fn put(translator: &Translator, pc: u64, source: &[u8], bucket: u64) {
    let Some(shared) = ring::shared_cache() else {
        return;
    };
    let block = &translator.block;
    let mut content = Vec::new();
    block.save(pc, &source[..block.src_len as usize], &mut content);
    shared.put(kind::BLOCK, key(translator, pc, source, bucket), &content);
}
