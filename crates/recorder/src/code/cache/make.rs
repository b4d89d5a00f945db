//! How code that has no translation yet gets one.

use super::{
    Block, BlockId, Cache, Fetch, MARGIN, SHARED, SOURCE, base, key, memory, mend, mode, sets,
};
use crate::code::{epochs, select, shared_translations};
use crate::memory::maps::regions;
use crate::sys::{config, generation, guard};
use crate::thread::Thread;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::*;
use hindsight_confine::Refusal;
use hindsight_translate::Input;
use linux_raw_sys::general::PROT_EXEC;

/// Where code lies that is to be translated.
struct Site {
    pc: u64,
    /// Where the executable memory ends, or further than a block reaches.
    end: u64,
    /// The program may write to it.
    writable: bool,
    /// Where the shared cache has its translation.
    bucket: u64,
    /// A file to whose code the program has come for the first time.
    file: Option<sets::File>,
}

impl Cache {
    /// Translates the code at `pc`, or takes its translation from the shared cache. Returns where that is executed.
    #[cold]
    pub(super) fn translate(&mut self, t: &mut Thread, pc: u64) -> Result<u64, Fetch> {
        let site = self.site(t, pc)?;
        if let Some(file) = &site.file
            && self.take_set(t, file)
            && let Some(id) = self.by_pc.get(&key(pc, t.is_plain()))
        {
            return Ok(base() + self.block(*id).hot as u64);
        }
        let mut source = [0; SOURCE];
        let n = read_source(&site, &mut source)?;
        let mut pages = core::mem::take(&mut self.pages);
        pages.clear();
        let restored = self.make(t, &site, &source[..n], &mut pages)?;
        let src = &source[..self.translator.block.src_len as usize];
        let since = self.record_source(t, &site, src);
        self.tell_epoch(t);
        let hot = match self.settle(t) {
            Ok(hot) => hot,
            Err(refusal) => {
                self.pages = pages;
                self.refuse(pc, src, site.writable, restored, &refusal);
                return self.translate(t, pc);
            }
        };
        self.translated += self.translator.block.instrs as u64;
        if let Some(c) = t.emit.ctl() {
            c.translated.store(self.translated, Relaxed);
            c.flushes.store(generation::present() - 1, Relaxed);
        }
        let id = self.note(&site, src, hot, since, t.is_plain());
        // The pages that were looked at count, too: other code there may need other flags.
        pages.extend(pc >> 12..=(pc + src.len() as u64 - 1) >> 12);
        pages.sort_unstable();
        pages.dedup();
        for page in &pages {
            self.by_page.entry(*page).or_default().push(id);
        }
        self.pages = pages;
        Ok(hot)
    }

    /// Where the code at `pc` lies.
    fn site(&mut self, t: &Thread, pc: u64) -> Result<Site, Fetch> {
        let mut r = regions();
        if r.find(pc).is_none() {
            r.refresh_stack();
        }
        let Some(region) = r.find(pc) else {
            return Err(Fetch::NotMapped);
        };
        if region.prot & PROT_EXEC == 0 {
            return Err(Fetch::NotExecutable);
        }
        let mut end = region.end;
        while end - pc < SOURCE as u64 && r.is_exec(end) {
            end = r.find(end).map_or(end, |n| n.end);
        }
        let path = r.path(region);
        let bucket = shared_translations::bucket(path, region.offset + (pc - region.start));
        let writable = r.is_writable(pc) || r.is_writable(end - 1);
        let file = match writable {
            true => None,
            false => self.sets.first_look(region, path, t.is_plain()),
        };
        Ok(Site {
            pc,
            end,
            writable,
            bucket,
            file,
        })
    }

    /// Has the translator hold the translation of `source`, which begins at the site, and adds the pages on which it
    /// depends to `pages`. Whether it came from the shared cache.
    fn make(
        &mut self,
        t: &Thread,
        site: &Site,
        source: &[u8],
        pages: &mut Vec<u64>,
    ) -> Result<bool, Fetch> {
        let (pc, n) = (site.pc, source.len());
        self.mapped = None;
        self.translator.want_map = false;
        self.translator.policy.mode = mode(t.is_plain());
        // An address at which recording begins or ends begins a block, unless an instruction lies
        // across it.
        let limit = select::room(pc, n);
        let known = &source[..limit];
        let restored = !site.writable
            && !core::mem::take(&mut self.codecheck.anew)
            && shared_translations::restore(&mut self.translator, pc, known, site.bucket, pages);
        if restored {
            return Ok(true);
        }
        let mut translate = |n: usize| {
            let input = Input {
                pc,
                code: &source[..n],
                max_instrs: u32::MAX,
                self_check: site.writable,
                peeked: &[],
            };
            let peek = &mut |at| epochs::peek(at, pages);
            self.translator.translate(&input, peek).is_ok()
        };
        let within = translate(limit);
        if !(within || limit < n && translate(n)) {
            return Err(Fetch::NotMapped);
        }
        if within && !site.writable && self.translator.refused.is_empty() {
            shared_translations::put(&self.translator, pc, known, site.bucket);
        }
        Ok(false)
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

    /// Finds room for the translator's block, has it checked, and writes it there. Returns where it is executed.
    fn settle(&mut self, t: &mut Thread) -> Result<u64, Refusal> {
        let (hot_len, cold_len) = (
            self.translator.block.hot.len() as u64,
            self.translator.block.cold.len() as u64,
        );
        let s = &self.chunks[self.current];
        if s.hot + hot_len + cold_len + MARGIN > s.cold {
            self.extend(t);
        }
        let s = &mut self.chunks[self.current];
        let before = (s.hot, s.cold);
        let (hot, cold) = s.take(hot_len, cold_len);
        self.translator.relocate(hot, cold, base());
        if let Err(refusal) = self.read(hot, cold) {
            let s = &mut self.chunks[self.current];
            (s.hot, s.cold) = before;
            return Err(refusal);
        }
        let b = &self.translator.block;
        // SAFETY: `take` gave out both ranges, which lie in the chunk between its two ends, where
        // nothing is. So nobody else uses these bytes.
        unsafe {
            let (to_hot, to_cold) = (
                memory::writable(hot, hot_len),
                memory::writable(cold, cold_len),
            );
            core::ptr::copy_nonoverlapping(b.hot.as_ptr(), to_hot, b.hot.len());
            core::ptr::copy_nonoverlapping(b.cold.as_ptr(), to_cold, b.cold.len());
        }
        Ok(hot)
    }

    /// Notes the translator's block, made from `src`, which is executed at `hot`. Returns which one it is.
    fn note(&mut self, site: &Site, src: &[u8], hot: u64, since: u64, plain: bool) -> BlockId {
        let s = &mut self.chunks[self.current];
        let b = &self.translator.block;
        s.prepare();
        self.made += 1;
        let pc = site.pc;
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
        invariant!(
            config::get().violate_after != self.made,
            "for tests: this many blocks are not translated",
            "block {} at {pc:#x}",
            self.made
        );
        mend::make_room(&mut s.blocks, 1);
        s.blocks.push(Block {
            pc: site.pc,
            src_len: src.len() as u32,
            hot: (hot - base()) as u32,
            hot_len: b.hot.len() as u32,
            self_check: site.writable,
            plain,
            ordered: self.translator.ordered,
            fuse: self.translator.fuse,
            live: true,
            takes_flags: b.takes_flags,
            since,
            bytes: s.bytes.len() as u32,
            peeked: b.peeked.len() as u8,
        });
        mend::make_room(&mut s.bytes, src.len() + b.peeked.len());
        s.bytes.extend_from_slice(src);
        s.bytes.extend_from_slice(&b.peeked);
        self.by_pc.insert(key(site.pc, plain), id);
        id
    }
}

/// Reads the code at the site, up to as much as one block may have. Returns how many bytes that are.
fn read_source(site: &Site, source: &mut [u8; SOURCE]) -> Result<usize, Fetch> {
    let n = SOURCE.min((site.end - site.pc) as usize);
    if guard::read(site.pc, &mut source[..n]).is_ok() {
        return Ok(n);
    }
    // Perhaps behind the end of a file: up to the end of the page then.
    let n = n.min((4096 - site.pc % 4096) as usize);
    match guard::read(site.pc, &mut source[..n]) {
        Ok(()) => Ok(n),
        Err(_) => Err(Fetch::NotMapped),
    }
}
