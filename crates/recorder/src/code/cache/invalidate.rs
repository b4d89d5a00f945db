//! How translations become unreachable when their code has changed.

use super::{BlockId, Cache, CacheChunk, Entry, MARGIN, SHARED, SOURCE, base, key, memory};
use crate::sys::{generation, guard};
use crate::thread::Thread;
use alloc::vec::Vec;
use core::ops::Range;
use hindsight_isa::Desc;
use hindsight_isa::ctx::{d, table};

impl Cache {
    /// Code in `range` has changed, and its epoch has begun. Blocks of the former code must not run
    /// any more, even if that code comes back: streams would say that it is the new code.
    pub(super) fn replaced(&mut self, t: &mut Thread, range: Range<u64>) {
        self.change();
        self.translator.refused.retain(|at| !range.contains(at));
        let pages = range.start >> 12..=(range.end - 1) >> 12;
        let overlaps = |id: &BlockId| {
            let b = self.block(*id);
            b.pc < range.end && b.pc + b.src_len as u64 > range.start
        };
        let hit: Vec<BlockId> = pages
            .filter_map(|p| self.by_page.get(&p))
            .flatten()
            .copied()
            .filter(overlaps)
            .collect();
        for i in hit {
            self.kill(t, i);
        }
    }

    /// Drops the block at `pc` if its code has changed. If it has not, another thread has already
    /// put it in the place of one whose code had.
    pub fn drop_block(&mut self, t: &mut Thread, pc: u64) {
        let Some(Entry { id, .. }) = SHARED.blocks.find(key(pc, t.is_plain())) else {
            return;
        };
        let (s, b) = (self.chunk(id), self.block(id));
        let source = &s.bytes[b.bytes as usize..][..b.src_len as usize];
        let mut now = [0; SOURCE];
        let now = &mut now[..source.len()];
        if guard::read(pc, now).is_err() || now != source {
            self.kill(t, id);
        }
    }

    /// Drops all blocks made from `addr..addr+len`.
    pub fn invalidate(&mut self, t: &mut Thread, addr: u64, len: u64) {
        self.change();
        self.code.forget(addr, len);
        if len == 0 {
            return;
        }
        let end = addr + len;
        self.translator
            .refused
            .retain(|at| !(addr..end).contains(at));
        let pages = addr >> 12..=(addr + len - 1) >> 12;
        let hit: Vec<BlockId> = if len >> 12 > self.by_page.len() as u64 {
            self.by_page
                .iter()
                .filter(|(p, _)| pages.contains(p))
                .flat_map(|(_, v)| v.iter().copied())
                .collect()
        } else {
            pages
                .clone()
                .filter_map(|p| self.by_page.get(&p))
                .flatten()
                .copied()
                .collect()
        };
        for i in hit {
            self.kill(t, i);
        }
        if len >> 12 > self.by_page.len() as u64 {
            self.by_page.retain(|p, _| !pages.contains(p));
        } else {
            for p in pages {
                self.by_page.remove(&p);
            }
        }
    }

    /// Makes a block unreachable. Its beginning becomes a jump to a stub that asks for a new block.
    fn kill(&mut self, t: &mut Thread, id: BlockId) {
        // Killing another block may have begun a new generation.
        let Some(b) = self.present_block(id).filter(|b| b.live) else {
            return;
        };
        b.live = false;
        let (pc, hot) = (b.pc, base() + b.hot as u64);
        let key = key(pc, b.plain);
        self.sets.end();
        if SHARED.blocks.find(key).is_some_and(|e| e.id == id) {
            SHARED.blocks.remove(key);
        }
        t.ctx.ibl[table::CHECKED].forget(pc);
        t.ctx.ibl[table::PLAIN].forget(pc);
        self.dead += 1;
        let generation = generation::present();
        let full = |s: &CacheChunk| s.cold < s.hot + MARGIN / 2;
        if full(&self.chunks[self.current]) {
            self.extend(t);
            if generation::present() != generation {
                return;
            }
        }
        let chunk = &mut self.chunks[self.current];
        // An ordinary exit, so it can be linked to the block that takes this one's place.
        let mut desc = Desc::new(hindsight_isa::DescKind::Exit, pc, 0);
        desc.patch = (hot + 1 - base()) as u32;
        let desc = desc.encode();
        // mov dword gs:[DESC], offset; jmp gs:[EXIT_PTR]; descriptor
        let mut stub = [0u8; 20 + Desc::SHORT];
        chunk.cold -= stub.len() as u64;
        stub[..4].copy_from_slice(&[0x65, 0xc7, 0x04, 0x25]);
        stub[4..8].copy_from_slice(&d::DESC.to_le_bytes());
        stub[8..12].copy_from_slice(&((chunk.cold + 20 - base()) as u32).to_le_bytes());
        stub[12..16].copy_from_slice(&[0x65, 0xff, 0x24, 0x25]);
        stub[16..20].copy_from_slice(&d::EXIT_PTR.to_le_bytes());
        stub[20..].copy_from_slice(&desc[..Desc::SHORT]);
        let rel = (chunk.cold.wrapping_sub(hot + 5) as u32).to_le_bytes();
        // SAFETY: the stub lies in the free room below `cold`, as was checked above. A block begins
        // with one instruction of 7 bytes or more, so no thread stands inside the five bytes that
        // change. Blocks are aligned to 8 bytes, so other threads see the old bytes or the new
        // ones.
        unsafe {
            let to = memory::writable(chunk.cold, stub.len() as u64);
            core::ptr::copy_nonoverlapping(stub.as_ptr(), to, stub.len());
            let word: *mut u64 = memory::writable(hot, 8).cast();
            let mut bytes = word.read_volatile().to_le_bytes();
            bytes[0] = 0xe9;
            bytes[1..5].copy_from_slice(&rel);
            word.write_volatile(u64::from_le_bytes(bytes));
        }
    }
}
