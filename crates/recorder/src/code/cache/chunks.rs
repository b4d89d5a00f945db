//! The parts of the code cache.

use super::{Block, memory};
use crate::sys;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a chunk.
pub(super) const SIZE: u64 = 40 << 20;

/// Number of chunks in the cache.
pub(super) const CHUNKS: usize = 24;

/// Bytes of memory that are made present at a time.
const STEP: u64 = 64 << 10;

/// Blocks for which a chunk has room from the beginning. Only what is used of that takes memory.
/// Nothing is moved while it suffices.
const BLOCKS: usize = 32 << 10;

/// Bytes kept free between the two ends of a chunk.
pub(super) const MARGIN: u64 = 64 << 10;

/// One chunk of the mapping.
pub(super) struct CacheChunk {
    pub(super) base: u64,
    pub(super) hot: u64,
    pub(super) cold: u64,
    /// The part of the free room in the middle whose pages were not made present.
    bare: Range<u64>,
    /// In the order of their hot code.
    pub(super) blocks: Vec<Block>,
    pub(super) bytes: Vec<u8>,
    /// The last generation that used the chunk.
    pub(super) generation: u64,
}

impl CacheChunk {
    /// Makes room for a block. Returns where its hot and its cold part go.
    pub(super) fn take(&mut self, hot_len: u64, cold_len: u64) -> (u64, u64) {
        let hot = self.hot.next_multiple_of(8);
        let cold = self.cold - cold_len;
        (self.hot, self.cold) = (hot + hot_len, cold);
        while self.hot > self.bare.start && self.bare.end - self.bare.start >= STEP {
            memory::populate(self.bare.start, STEP);
            self.bare.start += STEP;
        }
        while self.cold < self.bare.end && self.bare.end - self.bare.start >= STEP {
            self.bare.end -= STEP;
            memory::populate(self.bare.end, STEP);
        }
        (hot, cold)
    }

    /// Makes room for what is known of the blocks.
    pub(super) fn prepare(&mut self) {
        if self.blocks.capacity() == 0 {
            self.blocks.reserve(BLOCKS);
            self.bytes.reserve(BLOCKS * 32);
            sys::madvise_populate(self.blocks.as_ptr() as u64, STEP);
            sys::madvise_populate(self.bytes.as_ptr() as u64, STEP);
        }
    }

    pub(super) fn new(base: u64) -> CacheChunk {
        CacheChunk {
            base,
            hot: base,
            cold: base + SIZE,
            bare: base..base + SIZE,
            blocks: Vec::new(),
            bytes: Vec::new(),
            generation: 0,
        }
    }
}
