//! From addresses in translated code back to guest instructions.

use super::{Block, BlockId, Cache, SHARED, SIZE, base, cache, mode};
use crate::sys::context::{Context, R11, RIP};
use crate::thread::Thread;
use hindsight_isa::ctx::{CNT_REG, SCR_REG};
use hindsight_isa::regs::RCX;
use hindsight_isa::{CpuState, LazyFlags};
use hindsight_translate::{Input, MapEntry, completed};

/// A boundary between guest instructions, in translated code.
#[derive(Clone, Copy, Debug)]
pub struct Boundary {
    /// Address of the next guest instruction.
    pub guest_pc: u64,
    /// How far the instruction counter is ahead of the position.
    pub ahead: u16,
    /// If the guest's flags are in `Ctx::flags`: in which form.
    lazy_flags: Option<LazyFlags>,
    /// See [`MapEntry::fused`].
    fused: bool,
    /// The guest registers that are in the context block's spill slots (see the translator).
    pub spilled: [u8; 9],
}

impl Boundary {
    /// The guest's flags here. `flags` are the host's, and `lazy_flags` is what `Ctx::flags` holds.
    pub fn flags(&self, flags: u64, lazy_flags: u64) -> u64 {
        self.lazy_flags
            .map_or(flags, |k| k.flags(flags, lazy_flags))
    }
}

/// Another thread holds the cache.
pub struct Busy;

/// The guest instruction boundary that is exactly at host address `pc`, if there is one.
///
/// Several boundaries may be there, if instructions have no host code. Then it is the last one, or
/// the first one behind the instruction at position `beyond`. `count` is the instruction counter.
/// It is never the boundary before that instruction.
///
/// For signal handlers that have interrupted translated code: there the thread holds no lock of the
/// recorder.
pub fn boundary(pc: u64, count: u64, beyond: u64) -> Result<Option<Boundary>, Busy> {
    // Never waits: the owner of the lock may be waiting for this thread to leave old code.
    let mut cache = SHARED.cache.try_lock().ok_or(Busy)?;
    let at = Some((count, beyond));
    Ok(cache.as_mut().and_then(|c| c.entry(pc, at)))
}

/// Start and length of the code from which the block at host address `pc` was made. `None` if there is none, or somebody has
/// the cache.
pub fn source(pc: u64) -> Option<(u64, u32)> {
    let cache = SHARED.cache.try_lock()?;
    let (_, b) = cache.as_ref()?.block_at(pc)?;
    Some((b.pc, b.src_len))
}

/// The guest's state at an instruction that raised a fault in translated code.
pub struct GuestFault {
    /// Number of instructions completed.
    pub pos: u64,
    /// Registers.
    pub cpu: CpuState,
    /// Iterations that the instruction had completed, if it is a repeated string instruction.
    pub iterations: Option<u64>,
    /// The program itself may not have faulted. The instruction has to be done again, in a block
    /// without fused reads.
    pub again: bool,
}

/// The guest's state before the instruction that was being executed at the host state `at`. A
/// signal handler has saved that state. The runtime runs, so the guest's r10 and r11 are in the
/// context block.
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
    let iterations = completed(code, t.ctx, cpu.gpr[RCX]);
    if b.fused && cache.translator.fuse {
        // Hardly a program has many such faults. But one that has them may make them on purpose,
        // and often. So fusing ends.
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
    /// The block whose hot code has the host address `pc`.
    fn block_at(&self, pc: u64) -> Option<(BlockId, &Block)> {
        let offset = pc.wrapping_sub(base());
        let at = (offset / SIZE) as usize;
        let blocks = &self.chunks.get(at)?.blocks;
        let i = blocks
            .partition_point(|b| b.hot as u64 <= offset)
            .checked_sub(1)?;
        let b = &blocks[i];
        (offset - (b.hot as u64) < b.hot_len as u64).then_some((BlockId::new(at, i), b))
    }

    /// Finds the guest instruction at host address `pc`, by translating its block again with a map.
    /// With `exact`, the counter and position of [`boundary`], finds only an instruction that
    /// begins there.
    fn entry(&mut self, pc: u64, exact: Option<(u64, u64)>) -> Option<Boundary> {
        let (id, b) = self.block_at(pc)?;
        let within = pc.wrapping_sub(base()) - b.hot as u64;
        if self.mapped != Some(id) {
            self.map(id)?;
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

    /// The guest code at `pc`, in the block that was mapped last.
    fn mapped_code(&self, pc: u64) -> Option<&[u8]> {
        let id = self.mapped?;
        let (s, b) = (self.chunk(id), self.block(id));
        let code = s.bytes.get(b.bytes as usize..)?.get(..b.src_len as usize)?;
        code.get(pc.wrapping_sub(b.pc) as usize..)
    }

    /// Translates a block again, with a map.
    fn map(&mut self, id: BlockId) -> Option<()> {
        self.mapped = None;
        let b = self.block(id).clone();
        let s = &self.chunks[id.chunk()];
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
        self.mapped = Some(id);
        Some(())
    }
}
