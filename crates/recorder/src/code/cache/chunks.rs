//! The parts of the code cache.

use super::{Block, Cache, base, memory};
use crate::sys::{self, generation};
use crate::thread::{Thread, threads};
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a chunk.
pub(super) const SIZE: u64 = 40 << 20;

/// Number of chunks in the cache.
pub(super) const CHUNKS: usize = 24;

/// The most chunks of one generation. A large compiler executes code that takes a hundred megabytes translated. If that did
/// not fit, each generation would translate it again.
const MOST: usize = 8;

/// The generation of chunks that the present one uses.
const PRESENT: u64 = u64::MAX;

/// Bytes of memory that are made present at a time.
const STEP: u64 = 64 << 10;

/// Blocks for which a chunk has room from the beginning. Only what is used of that takes memory.
/// Nothing is moved while it suffices.
const BLOCKS: usize = 32 << 10;

/// Bytes kept free between the two ends of a chunk.
pub(super) const MARGIN: u64 = 64 << 10;

/// Which block: its chunk, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockId {
    chunk: u32,
    number: u32,
}

impl BlockId {
    pub(super) fn new(chunk: usize, number: usize) -> BlockId {
        BlockId {
            chunk: chunk as u32,
            number: number as u32,
        }
    }

    /// The number of its chunk.
    pub(super) fn chunk(self) -> usize {
        self.chunk as usize
    }

    /// Its number in its chunk.
    pub(super) fn number(self) -> usize {
        self.number as usize
    }
}

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
    /// The last generation that used the chunk. [`PRESENT`] if the present one does. 0 if none has.
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

    fn new(base: u64) -> CacheChunk {
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

/// All chunks of a cache at `base`. The first one is in use.
pub(super) fn all(base: u64) -> Vec<CacheChunk> {
    let chunk = |i: usize| CacheChunk::new(base + i as u64 * SIZE);
    let mut all: Vec<CacheChunk> = (0..CHUNKS).map(chunk).collect();
    all[0].generation = PRESENT;
    all
}

impl Cache {
    /// The chunk of a block.
    pub(super) fn chunk(&self, id: BlockId) -> &CacheChunk {
        &self.chunks[id.chunk()]
    }

    pub(super) fn block(&self, id: BlockId) -> &Block {
        &self.chunk(id).blocks[id.number()]
    }

    /// A block, if it is there and belongs to the present generation.
    pub(super) fn present_block(&mut self, id: BlockId) -> Option<&mut Block> {
        let chunk = &mut self.chunks[id.chunk()];
        let present = chunk.generation == PRESENT;
        chunk.blocks.get_mut(id.number()).filter(|_| present)
    }

    /// Whether the code at host address `at` belongs to the present generation.
    pub(super) fn is_present(&self, at: u64) -> bool {
        let chunk = self.chunks.get((at.wrapping_sub(base()) / SIZE) as usize);
        chunk.is_some_and(|s| s.generation == PRESENT)
    }

    /// Goes on in another chunk, since the one in use is full. Begins a new generation if the present one has enough chunks,
    /// if most of its blocks are dead, or if no chunk is free.
    pub(super) fn extend(&mut self, t: &mut Thread) {
        let present = || self.chunks.iter().filter(|s| s.generation == PRESENT);
        let blocks: usize = present().map(|s| s.blocks.len()).sum();
        if present().count() >= MOST || 2 * self.dead > blocks || !self.begin_chunk() {
            return self.flush(t);
        }
        log!(
            Info,
            "generation {} of code goes on behind {blocks} blocks, {} of them dead",
            generation::present(),
            self.dead
        );
        // Sets are of code in one chunk.
        self.sets.end();
    }

    /// The present generation ends. Its chunks belong to it until all threads have noticed.
    pub(super) fn retire(&mut self) {
        let present = generation::present();
        for s in self.chunks.iter_mut().filter(|s| s.generation == PRESENT) {
            s.generation = present;
        }
    }

    /// Puts a chunk in use whose code no thread can be running. False if there is none. Those that come first have been used
    /// before, so they take no more memory.
    pub(super) fn begin_chunk(&mut self) -> bool {
        let oldest = threads::oldest_generation();
        let Some(i) = self.chunks.iter().position(|s| s.generation < oldest) else {
            return false;
        };
        self.mapped = None;
        let s = &mut self.chunks[i];
        let mut new = CacheChunk::new(s.base);
        new.generation = PRESENT;
        let old = core::mem::replace(s, new);
        if self.mended {
            core::mem::forget(old);
        }
        self.current = i;
        memory::renew(self.chunks[i].base, SIZE);
        true
    }
}
