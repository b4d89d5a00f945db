//! Instructions that save and restore the state of the processor.
//!
//! The ones that save compute nothing: the recording has what they wrote when the program reads it.

use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use crate::word::Lane;
use hindsight_isa::regs::{RAX, RDX};
use hindsight_isa::xsave::{HEADED, compact_offset};
use iced_x86::{Instruction, Mnemonic};

fn fxsave<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    m.saved(o.address(c), 512);
    Flow::Next
}

/// The components that the registers ask for.
fn asked(c: &Core) -> u64 {
    c.gpr[RDX] << 32 | c.gpr[RAX] & 0xffff_ffff
}

fn xsave<M: Memory, const COMPACT: bool>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let len = c.saves.len(asked(c), COMPACT);
    m.saved(o.address(c), len as u64);
    Flow::Next
}

fn word<M: Memory>(m: &mut M, addr: u64) -> u16 {
    u16::from_le_bytes(m.load(addr))
}

/// x87 state in FXSAVE's format.
fn restore_x87<M: Memory>(c: &mut Core, m: &mut M, at: u64) {
    let st: [Lane; 8] = std::array::from_fn(|i| m.load(at.wrapping_add(32 + 16 * i as u64)));
    let tags = m.load::<1>(at.wrapping_add(4))[0];
    c.x87
        .restore(word(m, at), word(m, at.wrapping_add(2)), tags, &st);
}

fn restore_xmm<M: Memory>(c: &mut Core, m: &mut M, at: u64) {
    for i in 0..16 {
        c.zmm[i][0] = m.load(at.wrapping_add(160 + 16 * i as u64));
    }
}

fn restore_mxcsr<M: Memory>(c: &mut Core, m: &mut M, at: u64) {
    c.mxcsr = u32::from_le_bytes(m.load(at.wrapping_add(24))) & 0xffff;
}

fn fxrstor<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    restore_x87(c, m, at);
    restore_mxcsr(c, m, at);
    restore_xmm(c, m, at);
    Flow::Next
}

/// Where a component lies in an area, by its number. `compact`: the components that the area has room for, if it is
/// compacted.
fn offset(c: &Core, number: u32, compact: Option<u64>) -> u64 {
    match compact {
        Some(has) => compact_offset(has, number) as u64,
        // The components that are asked for are among those that the processor has.
        None => c.saves.offset(number).unwrap_or(HEADED) as u64,
    }
}

fn xrstor<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let wanted = asked(c) & c.saves.mask;
    let present = u64::from_le_bytes(m.load(at.wrapping_add(512)));
    let layout = u64::from_le_bytes(m.load(at.wrapping_add(520)));
    let compact = (layout >> 63 != 0).then_some(layout);
    let is = |n: u32| wanted >> n & 1 != 0;
    let has = |n: u32| present >> n & 1 != 0;
    if is(0) {
        match has(0) {
            true => restore_x87(c, m, at),
            false => c.x87.reset(),
        }
    }
    match compact {
        None if is(1) || is(2) => restore_mxcsr(c, m, at),
        Some(_) if is(1) && has(1) => restore_mxcsr(c, m, at),
        Some(_) if is(1) => c.mxcsr = 0x1f80,
        _ => {}
    }
    if is(1) {
        match has(1) {
            true => restore_xmm(c, m, at),
            false => (0..16).for_each(|i| c.zmm[i][0] = [0; 16]),
        }
    }
    for n in [2, 5, 6, 7].into_iter().filter(|n| is(*n)) {
        let from = at.wrapping_add(offset(c, n, compact));
        let mut lane = |i: usize| match has(n) {
            true => m.load(from.wrapping_add(16 * i as u64)),
            false => [0; 16],
        };
        match n {
            2 => (0..16).for_each(|i| c.zmm[i][1] = lane(i)),
            5 => {
                for i in 0..4 {
                    let [low, high] = *lane(i).as_chunks::<8>().0 else {
                        continue;
                    };
                    c.k[2 * i] = u64::from_le_bytes(low);
                    c.k[2 * i + 1] = u64::from_le_bytes(high);
                }
            }
            6 => (0..32).for_each(|i| c.zmm[i / 2][2 + i % 2] = lane(i)),
            _ => (0..64).for_each(|i| c.zmm[16 + i / 4][i % 4] = lane(i)),
        }
    }
    Flow::Next
}

fn ldmxcsr<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    c.mxcsr = u32::from_le_bytes(m.load(o.address(c)));
    Flow::Next
}

fn stmxcsr<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    m.store(o.address(c), c.mxcsr.to_le_bytes());
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, _: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    match i.mnemonic() {
        Xsave | Xsave64 | Xsaveopt | Xsaveopt64 => Some(xsave::<M, false>),
        Xsavec | Xsavec64 => Some(xsave::<M, true>),
        Fxsave | Fxsave64 => Some(fxsave),
        Fxrstor | Fxrstor64 => Some(fxrstor),
        Xrstor | Xrstor64 => Some(xrstor),
        Ldmxcsr | Vldmxcsr => Some(ldmxcsr),
        Stmxcsr | Vstmxcsr => Some(stmxcsr),
        _ => Option::None,
    }
}
