//! From addresses in translated code back to the program's instructions.

use super::{CACHE, Cache, SIZE, base, cache, mode};
use crate::sys::context::{Context, R11, RIP};
use crate::thread::Thread;
use hindsight_isa::ctx::{CNT_REG, SCR_REG};
use hindsight_isa::{CpuState, LazyFlags};
use hindsight_translate::{Input, MapEntry, completed};

/// Number of rcx.
const RCX_REG: usize = 1;

/// A guest instruction boundary in translated code.
#[derive(Clone, Copy, Debug)]
pub struct Boundary {
    pub guest_pc: u64,
    /// Counter minus position.
    pub ahead: u16,
    /// Where the guest's flags are in `Ctx::flags`: what stands there.
    lazy_flags: Option<LazyFlags>,
    /// See [`MapEntry::fused`].
    fused: bool,
    /// Guest registers that are in the context block's spill slots (see the translator).
    pub spilled: [u8; 9],
}

impl Boundary {
    /// The guest's flags here, if the host's are `flags` and `lazy_flags` stands in `Ctx::flags`.
    pub fn flags(&self, flags: u64, lazy_flags: u64) -> u64 {
        self.lazy_flags
            .map_or(flags, |k| k.flags(flags, lazy_flags))
    }
}

/// The cache is in use.
pub struct Busy;

/// The guest instruction boundary at host address `pc`, if it is exactly one. Where instructions without host code
/// lie there it is that behind them, or behind the one at position `beyond`, the counter being `count`; never
/// that before this one. Only while no lock of the recorder is held: from a signal handler that interrupted
/// translated code.
pub fn boundary(pc: u64, count: u64, beyond: u64) -> Result<Option<Boundary>, Busy> {
    // Whoever holds the lock may be waiting for this thread to leave old code.
    let mut cache = CACHE.try_lock().ok_or(Busy)?;
    let at = Some((count, beyond));
    Ok(cache.as_mut().and_then(|c| c.entry(pc, at)))
}

/// Guest state of an instruction that raised a fault in translated code.
pub struct GuestFault {
    pub pos: u64,
    pub cpu: CpuState,
    /// Iterations that a repeated string instruction had completed, if it was one.
    pub iterations: Option<u64>,
    /// The program itself may not have faulted: the instruction is to be done again, by a block without fused reads.
    pub again: bool,
}

/// The guest's state before the instruction that was executing at the host state `at`, which a
/// signal handler saved. The runtime runs, with r10 and r11 in the context block.
pub fn fault_state(t: &mut Thread, at: &Context) -> Option<GuestFault> {
    let mut cache = cache();
    let b = cache.entry(at.regs[RIP], None)?;
    let mut cpu = t.cpu();
    at.to_cpu(&mut cpu);
    cpu.gpr[SCR_REG] = t.ctx.gpr[SCR_REG];
    cpu.gpr[CNT_REG] = t.ctx.gpr[CNT_REG];
    for (i, r) in b.spilled.iter().enumerate().filter(|(_, r)| **r < 16) {
        cpu.gpr[*r as usize] = t.ctx.spill[i];
    }
    cpu.rflags = b.flags(cpu.rflags, t.ctx.flags);
    cpu.rip = b.guest_pc;
    let code = cache.mapped_code(b.guest_pc)?;
    let iterations = completed(code, t.ctx, cpu.gpr[RCX_REG]);
    if b.fused && cache.translator.fuse {
        // There will hardly be many such faults; but a program that makes them may make them on purpose, and often.
        cache.translator.fuse = false;
        cache.flush(t);
    }
    Some(GuestFault {
        pos: at.regs[R11].wrapping_sub(b.ahead as u64),
        iterations,
        again: b.fused,
        cpu,
    })
}

impl Cache {
    /// Finds the guest instruction at host address `pc` by translating its block again with a map; only one that
    /// begins there if `exact` says what [`boundary`] knows: counter and position.
    fn entry(&mut self, pc: u64, exact: Option<(u64, u64)>) -> Option<Boundary> {
        let at = (pc.wrapping_sub(base()) / SIZE) as usize;
        let chunk = self.chunks.get(at)?;
        let offset = pc.wrapping_sub(base());
        let i = chunk
            .blocks
            .partition_point(|b| b.hot as u64 <= offset)
            .checked_sub(1)?;
        let b = &chunk.blocks[i];
        let within = offset - b.hot as u64;
        if within >= b.hot_len as u64 {
            return None;
        }
        if self.mapped != Some((at, i)) {
            self.map(at, i)?;
        }
        let map = &self.translator.block.map;
        let mut e = map.iter().rev().find(|e| e.hot as u64 <= within)?;
        if let Some((count, beyond)) = exact {
            if e.hot as u64 != within || !e.begins {
                return None;
            }
            if beyond != u64::MAX {
                let here = |e: &&MapEntry| e.hot as u64 == within && e.begins;
                let passed = |e: &&MapEntry| count.wrapping_sub(e.ahead as u64) > beyond;
                e = map.iter().filter(here).find(passed)?;
            }
        }
        Some(Boundary {
            guest_pc: e.pc,
            ahead: e.ahead,
            lazy_flags: e.lazy_flags,
            fused: e.fused,
            spilled: e.spilled,
        })
    }

    /// The code that was translated at `pc`, in the block that has been mapped last.
    fn mapped_code(&self, pc: u64) -> Option<&[u8]> {
        let (chunk, i) = self.mapped?;
        let s = &self.chunks[chunk];
        let b = &s.blocks[i];
        let code = s.bytes.get(b.bytes as usize..)?.get(..b.src_len as usize)?;
        code.get(pc.wrapping_sub(b.pc) as usize..)
    }

    /// Translates block `i` of a chunk again, with a map.
    fn map(&mut self, chunk: usize, i: usize) -> Option<()> {
        self.mapped = None;
        let s = &self.chunks[chunk];
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
        let present = (self.translator.ordered, self.translator.fuse);
        (self.translator.ordered, self.translator.fuse) = (b.ordered, b.fuse);
        self.translator.policy.mode = mode(b.plain);
        self.translator.want_map = true;
        let made = self.translator.translate(&input, &mut |_| &[]);
        self.translator.want_map = false;
        (self.translator.ordered, self.translator.fuse) = present;
        made.ok()?;
        if self.translator.block.hot.len() != b.hot_len as usize {
            return None;
        }
        self.mapped = Some((chunk, i));
        Some(())
    }
}
