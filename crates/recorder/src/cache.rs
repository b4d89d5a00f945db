//! The code cache: translated blocks, where they came from, and the jumps between them.
//!
//! One mapping. Hot code grows up from its start, stubs grow down from its end; when they meet,
//! everything is forgotten and translation begins anew.

use crate::context::{Context, R11, RIP};
use crate::lock::{Guard, Lock};
use crate::maps::regions;
use crate::thread::Thread;
use crate::{arena, code, fail, guard, line};
use alloc::vec::Vec;
use hashbrown::HashMap;
use hindsight_isa::ctx::{CNT_REG, SCR_REG, d};
use hindsight_isa::{CpuState, Desc};
use hindsight_translate::{Input, Mode, Policy, Translator};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE,
};

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// Bytes of the cache.
const SIZE: u64 = 40 << 20;

/// Most source bytes handed to the translator for one block.
const SOURCE: usize = 512;

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
    live: bool,
    /// What a self-checking block was translated from.
    source: Vec<u8>,
    /// What the translator saw at its exits.
    peeked: Vec<u8>,
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

pub struct Cache {
    base: u64,
    hot: u64,
    cold: u64,
    translator: Translator,
    /// The block whose map the translator holds.
    mapped: Option<usize>,
    /// In the order of their hot code.
    blocks: Vec<Block>,
    by_pc: Map<u64, u32>,
    by_page: Map<u64, Vec<u32>>,
    pub code: code::Recorder,
    pub flushes: u64,
    pub translated: u64,
}

static CACHE: Lock<Option<Cache>> = Lock::new(None);
static RANGE: [core::sync::atomic::AtomicU64; 2] =
    [const { core::sync::atomic::AtomicU64::new(0) }; 2];

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
        SIZE,
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
    RANGE[0].store(base, core::sync::atomic::Ordering::Relaxed);
    RANGE[1].store(base + SIZE, core::sync::atomic::Ordering::Relaxed);
    *CACHE.lock() = Some(Cache {
        base,
        hot: base,
        cold: base + SIZE,
        translator: Translator::new(policy),
        mapped: None,
        blocks: Vec::new(),
        by_pc: Map::default(),
        by_page: Map::default(),
        code: code::Recorder::new(),
        flushes: 0,
        translated: 0,
    });
}

/// Whether a host address is translated code.
pub fn contains(pc: u64) -> bool {
    use core::sync::atomic::Ordering::Relaxed;
    (RANGE[0].load(Relaxed)..RANGE[1].load(Relaxed)).contains(&pc)
}

/// The guest instruction boundary at host address `pc`, if it is exactly one. Only while no lock
/// of the recorder is held: from a signal handler that interrupted translated code.
pub fn boundary(pc: u64) -> Option<Boundary> {
    cache().entry(pc, true)
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
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The translation of `pc`, made if necessary. May forget all other translations.
    pub fn get(&mut self, t: &mut Thread, pc: u64) -> Result<u64, Fetch> {
        match self.by_pc.get(&pc) {
            Some(i) => Ok(self.base + self.blocks[*i as usize].hot as u64),
            None => self.translate(t, pc),
        }
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
        let input = Input {
            pc,
            code: &source[..n],
            max_instrs: u32::MAX,
            self_check: writable,
            peeked: &[],
        };
        let mut pages = Vec::new();
        self.mapped = None;
        self.translator.want_map = false;
        if self
            .translator
            .translate(&input, &mut |at| peek(at, &mut pages))
            .is_err()
        {
            return Err(Fetch::NotMapped);
        }
        let (hot_len, cold_len) = (
            self.translator.block.hot.len() as u64,
            self.translator.block.cold.len() as u64,
        );
        if self.hot + hot_len + cold_len + MARGIN > self.cold {
            self.flush(t);
        }
        let hot = self.hot.next_multiple_of(16);
        let cold = self.cold - cold_len;
        self.hot = hot + hot_len;
        self.cold = cold;
        self.translator.place(hot, cold, self.base);
        let b = &self.translator.block;
        // SAFETY: both ranges lie in the cache's mapping between the two ends, where nothing is.
        unsafe {
            core::ptr::copy_nonoverlapping(b.hot.as_ptr(), hot as *mut u8, b.hot.len());
            core::ptr::copy_nonoverlapping(b.cold.as_ptr(), cold as *mut u8, b.cold.len());
        }
        let src_len = b.src_len;
        self.translated += b.instrs as u64;
        if let Some(c) = t.emit.ctl() {
            c.translated
                .store(self.translated, core::sync::atomic::Ordering::Relaxed);
            c.flushes
                .store(self.flushes, core::sync::atomic::Ordering::Relaxed);
        }
        let src = &source[..src_len as usize];
        let index = self.blocks.len() as u32;
        self.blocks.push(Block {
            pc,
            src_len,
            hot: (hot - self.base) as u32,
            hot_len: hot_len as u32,
            self_check: writable,
            live: true,
            source: if writable { src.to_vec() } else { Vec::new() },
            peeked: self.translator.block.peeked.clone(),
        });
        self.by_pc.insert(pc, index);
        // The pages looked at count too: other code there may need other flags.
        pages.extend(pc >> 12..=(pc + src_len as u64 - 1) >> 12);
        pages.sort_unstable();
        pages.dedup();
        for page in pages {
            self.by_page.entry(page).or_default().push(index);
        }
        self.code.record(t, pc, src, writable);
        Ok(hot)
    }

    /// Forgets everything. Only while no thread is between an exit and its resumption.
    pub fn flush(&mut self, t: &mut Thread) {
        self.hot = self.base;
        self.cold = self.base + SIZE;
        self.blocks.clear();
        self.by_pc.clear();
        self.by_page.clear();
        t.ctx.clear_lookup();
        self.flushes += 1;
    }

    /// Redirects the direct exit at cache offset `patch` to `host`.
    pub fn link(&mut self, patch: u32, host: u64) {
        let at = self.base + patch as u64;
        let rel = host.wrapping_sub(at + 4) as u32;
        // SAFETY: `patch` comes from a descriptor in the cache and names a displacement there.
        unsafe { (at as *mut u32).write_unaligned(rel) }
    }

    /// Whether the descriptor and its patch place are still current after `get`.
    pub fn generation(&self) -> u64 {
        self.flushes
    }

    /// Drops the block at `pc`, whose source has changed.
    pub fn drop_block(&mut self, t: &mut Thread, pc: u64) {
        if let Some(i) = self.by_pc.get(&pc).copied() {
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
        // Killing another one may have emptied the cache.
        let Some(b) = self.blocks.get_mut(index as usize).filter(|b| b.live) else {
            return;
        };
        b.live = false;
        let (pc, hot) = (b.pc, self.base + b.hot as u64);
        if self.by_pc.get(&pc) == Some(&index) {
            self.by_pc.remove(&pc);
        }
        t.ctx.forget_lookup(pc);
        if self.cold < self.hot + MARGIN {
            return self.flush(t);
        }
        let desc = Desc::new(hindsight_isa::DescKind::Stale, pc, 0).encode();
        // mov dword gs:[DESC], offset; jmp gs:[EXIT_PTR]; descriptor
        let mut stub = [0u8; 20 + Desc::SHORT];
        self.cold -= stub.len() as u64;
        stub[..4].copy_from_slice(&[0x65, 0xc7, 0x04, 0x25]);
        stub[4..8].copy_from_slice(&d::DESC.to_le_bytes());
        stub[8..12].copy_from_slice(&((self.cold + 20 - self.base) as u32).to_le_bytes());
        stub[12..16].copy_from_slice(&[0x65, 0xff, 0x24, 0x25]);
        stub[16..20].copy_from_slice(&d::EXIT_PTR.to_le_bytes());
        stub[20..].copy_from_slice(&desc[..Desc::SHORT]);
        let mut entry = [0xe9, 0, 0, 0, 0];
        entry[1..].copy_from_slice(&(self.cold.wrapping_sub(hot + 5) as u32).to_le_bytes());
        // SAFETY: the stub lies in free cache memory; a block's hot part has at least the counter's
        // `lea` and a jump, more than 5 bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(stub.as_ptr(), self.cold as *mut u8, stub.len());
            core::ptr::copy_nonoverlapping(entry.as_ptr(), hot as *mut u8, 5);
        }
    }

    /// Finds the guest instruction at host address `pc` by translating its block again with a map.
    fn entry(&mut self, pc: u64, exact: bool) -> Option<Boundary> {
        let offset = pc.wrapping_sub(self.base);
        let i = self
            .blocks
            .partition_point(|b| b.hot as u64 <= offset)
            .checked_sub(1)?;
        let b = &self.blocks[i];
        let within = offset - b.hot as u64;
        if within >= b.hot_len as u64 {
            return None;
        }
        if self.mapped != Some(i) {
            self.map(i)?;
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

    /// Translates block `i` again, with a map.
    fn map(&mut self, i: usize) -> Option<()> {
        self.mapped = None;
        let b = &self.blocks[i];
        let mut source = [0; SOURCE];
        let code = if b.self_check {
            source[..b.source.len()].copy_from_slice(&b.source);
            &source[..b.source.len()]
        } else {
            // As many bytes as there were: instructions behind the block do not matter to it.
            let n = b.src_len as usize;
            guard::read(b.pc, &mut source[..n]).ok()?;
            &source[..n]
        };
        let input = Input {
            pc: b.pc,
            code,
            max_instrs: u32::MAX,
            self_check: b.self_check,
            peeked: &b.peeked,
        };
        self.translator.want_map = true;
        let made = self.translator.translate(&input, &mut |_| &[]);
        self.translator.want_map = false;
        made.ok()?;
        if self.translator.block.hot.len() != b.hot_len as usize {
            return None;
        }
        self.mapped = Some(i);
        Some(())
    }

    /// Descriptor of the last exit.
    pub fn desc(&self, offset: u64) -> Desc {
        // SAFETY: exit stubs store the offsets of descriptors in the cache.
        unsafe { Desc::read((self.base + offset) as *const u8) }
    }
}

/// Policy for the recorder's configuration on this machine.
pub fn policy(plain: bool, predictor: hindsight_isa::Predictor, wide_checks: bool) -> Policy {
    Policy {
        mode: if plain { Mode::Plain } else { Mode::Record },
        predictor,
        wide_checks: wide_checks && !plain,
    }
}

/// Code bytes at `pc` for the translator's look ahead, noting the page. Code that can change without
/// the recorder's knowledge is not looked at.
fn peek(pc: u64, pages: &mut Vec<u64>) -> &'static [u8] {
    let r = regions();
    match r.find(pc) {
        Some(m)
            if m.prot & (PROT_EXEC | PROT_READ) == PROT_EXEC | PROT_READ && !r.is_writable(pc) =>
        {
            pages.push(pc >> 12);
            // Within the page: mapped files may end before their mapping does.
            let end = m.end.min((pc & !4095) + 4096).min(pc + 64);
            // SAFETY: readable according to the table of mappings; the bytes may change under the
            // reader, who only looks at them and takes whatever is there.
            unsafe { core::slice::from_raw_parts(pc as *const u8, (end - pc) as usize) }
        }
        _ => &[],
    }
}
