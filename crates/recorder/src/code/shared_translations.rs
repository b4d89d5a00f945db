//! Translations that all program images of a recording share.
//!
//! What one image has translated, another takes from the shared cache, if the code is the same byte by byte:
//! that of the block and what was looked at behind its exits. Only code that the program may not
//! write is kept.

use crate::code::epochs;
use crate::stream::ring;
use alloc::vec::Vec;
use hindsight_events::shared_cache::{self, kind};
use hindsight_translate::{Saved, Translator};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of the code at a block's start by which it is found.
const PREFIX: usize = 32;

/// Where blocks of code are kept that is at `offset` of the file `path`: those of a page near each other.
pub fn bucket(path: &[u8], offset: u64) -> u64 {
    xxh3_64_with_seed(path, offset >> 12).wrapping_add((offset & 0xfff) >> 3)
}

/// Under what name a block is kept whose [`bucket`] is known.
pub fn key(translator: &Translator, pc: u64, source: &[u8], bucket: u64) -> u64 {
    let ways = [translator.ordered, !translator.fuse];
    let way = ways
        .iter()
        .fold(translator.policy.mode as u64, |n, w| 2 * n + *w as u64);
    let seed = pc & 0xfff | way << 12;
    let hash = xxh3_64_with_seed(&source[..source.len().min(PREFIX)], seed);
    shared_cache::key(hash, bucket)
}

/// Makes the kept translation of the code at `pc`, which begins with `source`, the translator's
/// present block, and adds the pages that it depends on to `pages`. `false` if there is none.
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

/// Looks for a kept translation under `key` that serves for the code at `pc`, which begins with `source`,
/// and is to the liking of `take`, which is given the pages besides its own that it depends on: these are added
/// to `pages`, which is empty.
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

/// Keeps the translator's present block, made from the code at `pc`, which begins with `source`.
pub fn put(translator: &Translator, pc: u64, source: &[u8], bucket: u64) {
    let Some(shared) = ring::shared_cache() else {
        return;
    };
    let block = &translator.block;
    let mut content = Vec::new();
    block.save(pc, &source[..block.src_len as usize], &mut content);
    shared.put(kind::BLOCK, key(translator, pc, source, bucket), &content);
}
