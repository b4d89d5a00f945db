//! The code cache: translated blocks, where they came from, and the jumps between them.
//!
//! One mapping of several segments, of which one is in use. In it hot code grows up from the start,
//! stubs grow down from the end. When they meet, the segment is retired: a new generation begins, whose
//! code is reached only through the runtime, where each thread notices it. A retired segment is used
//! again when all threads have noticed.

use crate::context::{Context, R11, RIP};
use crate::lock::{Guard, Lock};
use crate::maps::regions;
use crate::thread::Thread;
use crate::{arena, birth, code, fail, guard, kept, line, ring, select};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::*};
use hashbrown::HashMap;
use hindsight_events::Event;
use hindsight_isa::ctx::{CNT_REG, SCR_REG, d, table};
use hindsight_isa::{CpuState, Desc};
use hindsight_translate::{Input, Mode, Policy, Translator};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE,
};

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// Bytes of a segment.
const SIZE: u64 = 40 << 20;

/// Segments of the cache.
const SEGMENTS: usize = 24;

/// Most source bytes handed to the translator for one block.
const SOURCE: usize = 512;

/// Exits that are not linked on account of a thread before a new generation begins without it.
const PATIENCE: u32 = 50_000;

/// Bytes kept free between the two ends.
const MARGIN: u64 = 64 << 10;

/// One translated block.
struct Block {
    pc: u64,
    src_len: u32,
    /// Offsets from the cache's base.
    hot: u32,
    hot_len: u32,
    self_check: bool,
    /// Plain code, which no thread that is recorded runs.
    plain: bool,
    /// As [`Translator::ordered`] was.
    ordered: bool,
    live: bool,
    /// Threads whose streams have not announced this epoch of the code must not come here.
    since: u64,
    /// Where in [`Segment::bytes`] its source is, and behind that what the translator saw at its exits.
    bytes: u32,
    /// Bytes of the latter.
    peeked: u8,
}

/// A guest instruction boundary in translated code.
#[derive(Clone, Copy, Debug)]
pub struct Boundary {
    pub guest_pc: u64,
    /// Counter minus position.
    pub ahead: u16,
    /// Guest registers that are in the context block's spill slots (see the translator).
    pub spilled: [u8; 9],
}

/// Why there is no translation of an address.
#[derive(Clone, Copy, Debug)]
pub enum Fetch {
    NotMapped,
    NotExecutable,
}

/// One segment of the mapping.
struct Segment {
    base: u64,
    hot: u64,
    cold: u64,
    /// In the order of their hot code.
    blocks: Vec<Block>,
    bytes: Vec<u8>,
    /// The last generation that used it.
    generation: u64,
}

impl Segment {
    fn new(base: u64) -> Segment {
        Segment {
            base,
            hot: base,
            cold: base + SIZE,
            blocks: Vec::new(),
            bytes: Vec::new(),
            generation: 0,
        }
    }
}

pub struct Cache {
    segments: Vec<Segment>,
    /// The segment in use.
    current: usize,
    translator: Translator,
    /// The block whose map the translator holds: segment and index.
    mapped: Option<(usize, usize)>,
    /// By [`key`].
    by_pc: Map<u64, u32>,
    by_page: Map<u64, Vec<u32>>,
    /// Exits that could not be linked, since the present generation began, for a thread that has not
    /// announced the present code.
    refused: u32,
    pub code: code::Recorder,
    pub translated: u64,
}

/// The present generation.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The present epoch of the code.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The present generation of translated code.
pub fn generation() -> u64 {
    GENERATION.load(Acquire)
}

/// First address of the cache; descriptors and their offsets count from here.
pub fn base() -> u64 {
    RANGE[0].load(Relaxed)
}

/// Descriptor of an exit.
pub fn desc(offset: u64) -> Desc {
    // SAFETY: exit stubs store the offsets of descriptors in the cache, whose segments are not
    // used again before the thread has noticed a new generation, which it does after this.
    unsafe { Desc::read((base() + offset) as *const u8) }
}

static CACHE: Lock<Option<Cache>> = Lock::new(None);
static RANGE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The process's cache. It must have been made with [`init`].
pub struct Held(Guard<'static, Option<Cache>>);

impl core::ops::Deref for Held {
    type Target = Cache;
    fn deref(&self) -> &Cache {
        match self.0.as_ref() {
            Some(c) => c,
            None => fail::die(fail::STATUS, &line!("internal error: no code cache")),
        }
    }
}

impl core::ops::DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Cache {
        match self.0.as_mut() {
            Some(c) => c,
            None => fail::die(fail::STATUS, &line!("internal error: no code cache")),
        }
    }
}

/// The cache, locked.
pub fn cache() -> Held {
    Held(CACHE.lock())
}

/// Makes the cache.
pub fn init(policy: Policy) {
    let prot = PROT_READ | PROT_WRITE | PROT_EXEC;
    let base = match arena::map(
        SIZE * SEGMENTS as u64,
        prot,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
        -1,
        0,
    ) {
        Ok(b) => b,
        Err(e) => fail::die(
            fail::STATUS,
            &line!("cannot map memory for translated code (error {e})"),
        ),
    };
    RANGE[0].store(base, Relaxed);
    RANGE[1].store(base + SIZE * SEGMENTS as u64, Relaxed);
    let segment = |i: usize| Segment::new(base + i as u64 * SIZE);
    *CACHE.lock() = Some(Cache {
        segments: (0..SEGMENTS).map(segment).collect(),
        current: 0,
        translator: Translator::new(policy),
        mapped: None,
        by_pc: Map::default(),
        by_page: Map::default(),
        refused: 0,
        code: code::Recorder::new(),
        translated: 0,
    });
}

/// Whether a host address is translated code.
pub fn contains(pc: u64) -> bool {
    (RANGE[0].load(Relaxed)..RANGE[1].load(Relaxed)).contains(&pc)
}

/// The guest instruction boundary at host address `pc`, if it is exactly one. Only while no lock
/// of the recorder is held: from a signal handler that interrupted translated code.
pub fn boundary(pc: u64) -> Option<Boundary> {
    // Whoever holds the lock may be waiting for this thread to leave old code.
    CACHE.try_lock()?.as_mut()?.entry(pc, true)
}

/// Guest state of an instruction that raised a fault in translated code.
pub struct GuestFault {
    pub pos: u64,
    pub cpu: CpuState,
}

/// The guest's state before the instruction that was executing at the host state `at`, which a
/// signal handler saved. The runtime runs, with r10 and r11 in the context block.
pub fn fault_state(t: &mut Thread, at: &Context) -> Option<GuestFault> {
    let b = cache().entry(at.regs[RIP], false)?;
    let mut cpu = t.cpu();
    at.to_cpu(&mut cpu);
    cpu.gpr[SCR_REG] = t.ctx.gpr[SCR_REG];
    cpu.gpr[CNT_REG] = t.ctx.gpr[CNT_REG];
    for (i, r) in b.spilled.iter().enumerate().filter(|(_, r)| **r < 16) {
        cpu.gpr[*r as usize] = t.ctx.spill[i];
    }
    cpu.rip = b.guest_pc;
    Some(GuestFault {
        pos: at.regs[R11].wrapping_sub(b.ahead as u64),
        cpu,
    })
}

impl Cache {
    /// The translation of `pc`, made if necessary. May begin a new generation.
    pub fn get(&mut self, t: &mut Thread, pc: u64) -> Result<u64, Fetch> {
        notice(t);
        if self.refused > PATIENCE {
            self.flush(t);
        }
        self.tell_epoch(t);
        match self.by_pc.get(&key(pc, t.is_plain())) {
            Some(i) => {
                let s = &self.segments[self.current];
                Ok(base() + s.blocks[*i as usize].hot as u64)
            }
            None => self.translate(t, pc),
        }
    }

    /// Says in the thread's stream which code it runs from here on.
    fn tell_epoch(&mut self, t: &mut Thread) {
        let epoch = self.code.epoch;
        if t.is_unrecorded() {
            // From its code there is no way to recorded code but through here.
            return t.announced.store(u64::MAX, Release);
        }
        if epoch != t.code_epoch {
            t.code_epoch = epoch;
            t.event(&Event::CodeEpoch { epoch });
        }
        t.announced.store(epoch, Release);
    }

    #[cold]
    fn translate(&mut self, t: &mut Thread, pc: u64) -> Result<u64, Fetch> {
        let (exec_end, writable) = {
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
            (end, r.is_writable(pc) || r.is_writable(end - 1))
        };
        let mut source = [0; SOURCE];
        let n = SOURCE.min((exec_end - pc) as usize);
        let n = match guard::read(pc, &mut source[..n]) {
            Ok(()) => n,
            // Behind the end of a file, say: up to the page's end.
            Err(_) => {
                let n = n.min((4096 - pc % 4096) as usize);
                if guard::read(pc, &mut source[..n]).is_err() {
                    return Err(Fetch::NotMapped);
                }
                n
            }
        };
        let plain = t.is_plain();
        let mut pages = Vec::new();
        self.mapped = None;
        self.translator.want_map = false;
        self.translator.policy.mode = mode(plain);
        // A place where recording begins or ends begins a block, unless an instruction lies across it.
        let limit = select::room(pc, n);
        let known = &source[..limit];
        if writable || !kept::restore(&mut self.translator, pc, known, &mut pages) {
            let mut translate = |n: usize| {
                let input = Input {
                    pc,
                    code: &source[..n],
                    max_instrs: u32::MAX,
                    self_check: writable,
                    peeked: &[],
                };
                let peek = &mut |at| code::peek(at, &mut pages);
                self.translator.translate(&input, peek).is_ok()
            };
            let within = translate(limit);
            if !(within || limit < n && translate(n)) {
                return Err(Fetch::NotMapped);
            }
            if within && !writable {
                kept::keep(&self.translator, pc, known);
            }
        }
        let src_len = self.translator.block.src_len as usize;
        let src = &source[..src_len];
        let mut since = 0;
        if !t.is_unrecorded() {
            if let Some(range) = self.code.record(pc, src, writable) {
                EPOCH.store(self.code.epoch, SeqCst);
                self.replaced(t, range);
            }
            since = self.code.since(pc..pc + src_len as u64);
        }
        self.tell_epoch(t);
        let (hot_len, cold_len) = (
            self.translator.block.hot.len() as u64,
            self.translator.block.cold.len() as u64,
        );
        let s = &self.segments[self.current];
        if s.hot + hot_len + cold_len + MARGIN > s.cold {
            self.flush(t);
        }
        let s = &mut self.segments[self.current];
        let hot = s.hot.next_multiple_of(16);
        let cold = s.cold - cold_len;
        s.hot = hot + hot_len;
        s.cold = cold;
        self.translator.place(hot, cold, base());
        let b = &self.translator.block;
        // SAFETY: both ranges lie in the segment between its two ends, where nothing is.
        unsafe {
            core::ptr::copy_nonoverlapping(b.hot.as_ptr(), hot as *mut u8, b.hot.len());
            core::ptr::copy_nonoverlapping(b.cold.as_ptr(), cold as *mut u8, b.cold.len());
        }
        self.translated += b.instrs as u64;
        if let Some(c) = t.emit.ctl() {
            c.translated.store(self.translated, Relaxed);
            c.flushes.store(generation() - 1, Relaxed);
        }
        let index = s.blocks.len() as u32;
        s.blocks.push(Block {
            pc,
            src_len: src_len as u32,
            hot: (hot - base()) as u32,
            hot_len: hot_len as u32,
            self_check: writable,
            plain,
            ordered: self.translator.ordered,
            live: true,
            since,
            bytes: s.bytes.len() as u32,
            peeked: self.translator.block.peeked.len() as u8,
        });
        s.bytes.extend_from_slice(src);
        s.bytes.extend_from_slice(&self.translator.block.peeked);
        self.by_pc.insert(key(pc, plain), index);
        // The pages looked at count too: other code there may need other flags.
        pages.extend(pc >> 12..=(pc + src_len as u64 - 1) >> 12);
        pages.sort_unstable();
        pages.dedup();
        for page in pages {
            self.by_page.entry(page).or_default().push(index);
        }
        Ok(hot)
    }

    /// Code in `range` is not what it was, and its epoch has begun. Blocks with the former code must not
    /// run any more, even if it comes back: streams would say that it is the new code.
    fn replaced(&mut self, t: &mut Thread, range: Range<u64>) {
        let pages = range.start >> 12..=(range.end - 1) >> 12;
        let blocks = &self.segments[self.current].blocks;
        let overlaps = |i: &u32| {
            let b = &blocks[*i as usize];
            b.pc < range.end && b.pc + b.src_len as u64 > range.start
        };
        let hit: Vec<u32> = pages
            .filter_map(|p| self.by_page.get(&p))
            .flatten()
            .copied()
            .filter(overlaps)
            .collect();
        for i in hit {
            self.kill(t, i);
        }
    }

    /// From now on the order of atomic operations is recorded.
    pub fn order_atomics(&mut self, t: &mut Thread) {
        if !self.translator.ordered {
            self.translator.ordered = true;
            self.flush(t);
        }
    }

    /// Begins a new generation: nothing is translated.
    pub fn flush(&mut self, t: &mut Thread) {
        self.segments[self.current].generation = generation();
        GENERATION.fetch_add(1, SeqCst);
        notice(t);
        self.by_pc.clear();
        self.by_page.clear();
        self.mapped = None;
        self.refused = 0;
        let mut spins = 0u32;
        loop {
            let oldest = birth::oldest_generation();
            let free = |s: &Segment| s.generation < oldest;
            let cur = self.current;
            let next = (0..SEGMENTS).map(|i| (cur + i) % SEGMENTS);
            if let Some(i) = next.into_iter().find(|i| free(&self.segments[*i])) {
                let s = &mut self.segments[i];
                *s = Segment::new(s.base);
                self.current = i;
                return;
            }
            // All segments have threads in them that have not looked up for as many generations.
            spins += 1;
            if spins > 100_000 {
                fail::internal(
                    t,
                    &line!("no room for translated code: a thread does not leave the old"),
                );
            }
            crate::sys::sched_yield();
        }
    }

    /// In a child that has a copy of the memory: translations, and what is recorded of the code, are
    /// its own from here on.
    pub fn inherit(&mut self) {
        let epoch = self.code.epoch;
        ring::emit_process(&Event::CodeFrom { epoch });
        self.translated = 0;
    }

    /// Redirects the direct exit at cache offset `patch`, of this generation, to `host`, the block at `pc`,
    /// if all threads may go there without a look at their streams.
    pub fn link(&mut self, t: &Thread, patch: u32, pc: u64, host: u64) {
        let at = base() + patch as u64;
        let s = &self.segments[self.current];
        let i = self.by_pc.get(&key(pc, t.is_plain()));
        let since = i.map_or(u64::MAX, |i| s.blocks[*i as usize].since);
        if !(s.base..s.base + SIZE).contains(&at) {
            return;
        }
        if since > 0 && since > birth::oldest_epoch(generation()) {
            self.refused += 1;
            return;
        }
        let rel = host.wrapping_sub(at + 4) as u32;
        // SAFETY: `patch` comes from a descriptor in the cache and names a displacement there, which
        // the translator keeps within eight aligned bytes, so that other threads see the old or
        // the new one.
        unsafe { core::ptr::write_volatile(at as *mut [u8; 4], rel.to_le_bytes()) }
    }

    /// Drops the block at `pc`, unless its source is as it was: another thread may have put it in the
    /// place of one that was not.
    pub fn drop_block(&mut self, t: &mut Thread, pc: u64) {
        let Some(i) = self.by_pc.get(&key(pc, t.is_plain())).copied() else {
            return;
        };
        let s = &self.segments[self.current];
        let b = &s.blocks[i as usize];
        let source = &s.bytes[b.bytes as usize..][..b.src_len as usize];
        let mut now = [0; SOURCE];
        let now = &mut now[..source.len()];
        if guard::read(pc, now).is_err() || now != source {
            self.kill(t, i);
        }
    }

    /// Drops all blocks made from `addr..addr+len`.
    pub fn invalidate(&mut self, t: &mut Thread, addr: u64, len: u64) {
        self.code.forget(addr, len);
        if len == 0 {
            return;
        }
        let pages = addr >> 12..=(addr + len - 1) >> 12;
        let hit: Vec<u32> = if len >> 12 > self.by_page.len() as u64 {
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

    /// Makes a block unreachable: its entry becomes a jump to a stub that asks for a new one.
    fn kill(&mut self, t: &mut Thread, index: u32) {
        let seg = &mut self.segments[self.current];
        // Killing another one may have begun a new generation.
        let Some(b) = seg.blocks.get_mut(index as usize).filter(|b| b.live) else {
            return;
        };
        b.live = false;
        let (pc, hot) = (b.pc, base() + b.hot as u64);
        let key = key(pc, b.plain);
        if self.by_pc.get(&key) == Some(&index) {
            self.by_pc.remove(&key);
        }
        t.ctx.forget_lookup(table::CHECKED, pc);
        t.ctx.forget_lookup(table::PLAIN, pc);
        let seg = &mut self.segments[self.current];
        if seg.cold < seg.hot + MARGIN / 2 {
            return self.flush(t);
        }
        // An ordinary exit, so that it becomes a jump to the block that takes this one's place.
        let mut desc = Desc::new(hindsight_isa::DescKind::Exit, pc, 0);
        desc.patch = (hot + 1 - base()) as u32;
        let desc = desc.encode();
        // mov dword gs:[DESC], offset; jmp gs:[EXIT_PTR]; descriptor
        let mut stub = [0u8; 20 + Desc::SHORT];
        seg.cold -= stub.len() as u64;
        stub[..4].copy_from_slice(&[0x65, 0xc7, 0x04, 0x25]);
        stub[4..8].copy_from_slice(&d::DESC.to_le_bytes());
        stub[8..12].copy_from_slice(&((seg.cold + 20 - base()) as u32).to_le_bytes());
        stub[12..16].copy_from_slice(&[0x65, 0xff, 0x24, 0x25]);
        stub[16..20].copy_from_slice(&d::EXIT_PTR.to_le_bytes());
        stub[20..].copy_from_slice(&desc[..Desc::SHORT]);
        let rel = (seg.cold.wrapping_sub(hot + 5) as u32).to_le_bytes();
        // SAFETY: the stub lies in free cache memory. A block begins with one instruction of 7 bytes
        // or more, so no thread stands inside the five that change; blocks are aligned, so that
        // other threads see all of them or none.
        unsafe {
            core::ptr::copy_nonoverlapping(stub.as_ptr(), seg.cold as *mut u8, stub.len());
            let word = hot as *mut u64;
            let mut bytes = word.read_volatile().to_le_bytes();
            bytes[0] = 0xe9;
            bytes[1..5].copy_from_slice(&rel);
            word.write_volatile(u64::from_le_bytes(bytes));
        }
    }

    /// Finds the guest instruction at host address `pc` by translating its block again with a map.
    fn entry(&mut self, pc: u64, exact: bool) -> Option<Boundary> {
        let at = (pc.wrapping_sub(base()) / SIZE) as usize;
        let segment = self.segments.get(at)?;
        let offset = pc.wrapping_sub(base());
        let i = segment
            .blocks
            .partition_point(|b| b.hot as u64 <= offset)
            .checked_sub(1)?;
        let b = &segment.blocks[i];
        let within = offset - b.hot as u64;
        if within >= b.hot_len as u64 {
            return None;
        }
        if self.mapped != Some((at, i)) {
            self.map(at, i)?;
        }
        let e = self
            .translator
            .block
            .map
            .iter()
            .rev()
            .find(|e| e.hot as u64 <= within)?;
        if exact && (e.hot as u64 != within || !e.begins) {
            return None;
        }
        Some(Boundary {
            guest_pc: e.pc,
            ahead: e.ahead,
            spilled: e.spilled,
        })
    }

    /// Translates block `i` of a segment again, with a map.
    fn map(&mut self, segment: usize, i: usize) -> Option<()> {
        self.mapped = None;
        let s = &self.segments[segment];
        let b = &s.blocks[i];
        let from = b.bytes as usize;
        let (code, rest) = s.bytes.get(from..)?.split_at_checked(b.src_len as usize)?;
        let peeked = rest.get(..b.peeked as usize)?;
        let input = Input {
            pc: b.pc,
            code,
            max_instrs: u32::MAX,
            self_check: b.self_check,
            peeked,
        };
        let present = core::mem::replace(&mut self.translator.ordered, b.ordered);
        self.translator.policy.mode = mode(b.plain);
        self.translator.want_map = true;
        let made = self.translator.translate(&input, &mut |_| &[]);
        self.translator.want_map = false;
        self.translator.ordered = present;
        made.ok()?;
        if self.translator.block.hot.len() != b.hot_len as usize {
            return None;
        }
        self.mapped = Some((segment, i));
        Some(())
    }
}

/// Translation of `pc` of the present generation, if the thread's table of indirect jumps has it.
pub fn known(t: &mut Thread, pc: u64) -> Option<u64> {
    // Whoever begins a generation or an epoch and then looks who may run code of the old one sees this,
    // or this thread sees the new one.
    t.seen.store(t.generation, SeqCst);
    if GENERATION.load(SeqCst) != t.generation
        || EPOCH.load(SeqCst) != t.code_epoch && !t.is_unrecorded()
    {
        return None;
    }
    let table = t.table();
    t.ctx.find_lookup(table, pc)
}

/// Takes note of the present generation, before the thread runs code of it.
fn notice(t: &mut Thread) {
    let now = generation();
    if t.generation != now {
        t.generation = now;
        t.ctx.clear_lookup(table::CHECKED);
        if t.is_plain() || t.quiet || t.spare_gap.is_some() {
            t.ctx.clear_lookup(table::PLAIN);
        }
    }
    t.seen.store(now, Release);
}

/// Distinguishes plain from other code of one address: of addresses that can be, the two highest bits
/// are equal.
fn key(pc: u64, plain: bool) -> u64 {
    pc ^ (plain as u64) << 63
}

fn mode(plain: bool) -> Mode {
    if plain { Mode::Plain } else { Mode::Record }
}

/// Policy for the recorder's configuration on this machine.
pub fn policy(plain: bool, predictor: hindsight_isa::Predictor, wide_checks: bool) -> Policy {
    Policy {
        mode: mode(plain),
        predictor,
        wide_checks: wide_checks && !plain,
    }
}
