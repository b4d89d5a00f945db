//! Instructions on MMX registers, which are the significands of the x87's registers. Arithmetic, shifts and orders of
//! elements have their tables in the files for vectors: here is how operands lie in a lane, moves, and conversions.

use super::element::Element;
use super::form::{Arrangement, last, last_mmx, store_mmx};
use super::numbers::{Env, Float};
use super::{integer, shifts, shuffle};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Int, Op, Run, bit};
use crate::operand::{gpr, segment};
use crate::soft::Round;
use hindsight_isa::regs::RDI;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// From an MMX register or memory.
fn to_mmx<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = last_mmx(c, m, o);
    store_mmx(c, o, v);
    Flow::Next
}

fn to_memory<M: Memory, T: Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    T::of(c.x87.mmx(o.c)).store(m, o.address(c));
    c.x87.enter_mmx();
    Flow::Next
}

/// From a general purpose register.
fn from_general<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let v = T::held(c, o.c).wide();
    store_mmx(c, o, v);
    Flow::Next
}

fn to_general<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    T::of(c.x87.mmx(o.c)).set(c, o.a);
    c.x87.enter_mmx();
    Flow::Next
}

/// MOVDQ2Q.
fn from_vector<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let v = u64::get(&c.zmm[(o.c & 31) as usize][0], 0);
    store_mmx(c, o, v);
    Flow::Next
}

/// MOVQ2DQ.
fn to_vector<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    c.zmm[(o.a & 31) as usize][0] = (c.x87.mmx(o.c) as u128).to_le_bytes();
    c.x87.enter_mmx();
    Flow::Next
}

/// PMOVMSKB.
fn signs<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let bytes = c.x87.mmx(o.c).to_le_bytes();
    let bits = (0..8).map(|i| (bytes[i] as u64 >> 7) << i).sum::<u64>();
    bits.set(c, o.a);
    c.x87.enter_mmx();
    Flow::Next
}

/// PINSRW: a word from a general purpose register or memory.
fn insert<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v: u16 = match o.has(bit::MEMORY) {
        true => Int::load(m, o.address(c)),
        false => c.gpr[(o.c & 31) as usize] as u16,
    };
    let at = 16 * (o.imm & 3);
    let rest = c.x87.mmx(o.a) & !(0xffff << at);
    store_mmx(c, o, rest | (v as u64) << at);
    Flow::Next
}

/// PEXTRW.
fn extract<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let v = c.x87.mmx(o.c) >> (16 * (o.imm & 3)) & 0xffff;
    v.set(c, o.a);
    c.x87.enter_mmx();
    Flow::Next
}

/// MASKMOVQ: bytes of register `b` where those of `c` have their highest bit set.
fn masked_bytes<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let base = match o.has(bit::SHORT) {
        true => c.gpr[RDI] as u32 as u64,
        false => c.gpr[RDI],
    };
    let at = base.wrapping_add(c.gpr[(o.segment & 31) as usize]);
    let (v, mask) = (c.x87.mmx(o.b).to_le_bytes(), c.x87.mmx(o.c).to_le_bytes());
    for i in (0..8).filter(|i| mask[*i] >> 7 != 0) {
        m.store(at.wrapping_add(i as u64), [v[i]]);
    }
    c.x87.enter_mmx();
    Flow::Next
}

/// CVTPI2PS and CVTPI2PD: two integers of an MMX register or memory. The rest of the lane stays. With memory the x87 is not
/// touched.
fn from_integers<M: Memory, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = (last_mmx(c, m, o) as u128).to_le_bytes();
    let mut lane = c.zmm[(o.a & 31) as usize][0];
    let mut e = Env::of(c, o);
    for i in 0..2 {
        e.number::<T>(i32::get(&v, i) as u64, true)
            .put(&mut lane, i);
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    c.zmm[(o.a & 31) as usize][0] = lane;
    if !o.has(bit::MEMORY) {
        c.x87.enter_mmx();
    }
    Flow::Next
}

/// CVTPS2PI and CVTPD2PI, and those that truncate.
fn to_integers<M: Memory, T: Float, const TRUNCATES: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let v = last(c, m, o)[0];
    let mut e = Env::of(c, o);
    let mode = if TRUNCATES { Round::Zero } else { e.mode };
    let [low, high] = [0, 1].map(|i| e.integer(T::get(&v, i), mode, 32, true) as u32 as u64);
    if !e.finish(c) {
        return Flow::Fault;
    }
    store_mmx(c, o, high << 32 | low);
    Flow::Next
}

/// How the operands of an instruction of the tables lie in lanes.
fn arrangement(m: Mnemonic) -> Arrangement {
    use Mnemonic::*;
    match m {
        Packsswb | Packssdw | Packuswb => Arrangement::Joined,
        Phaddw | Phaddd | Phaddsw | Phsubw | Phsubd | Phsubsw => Arrangement::Joined,
        Punpckhbw | Punpckhwd | Punpckhdq => Arrangement::Middle,
        Palignr => Arrangement::Swapped,
        Pshufb => Arrangement::Twice,
        _ => Arrangement::Low,
    }
}

/// The function of a move. `None`: it is none.
fn moves<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let general = |n: u32| i.op_kind(n) == OpKind::Register && i.op_register(n).is_gpr();
    Some(match i.mnemonic() {
        Movd | Movq | Movntq if i.op0_kind() == OpKind::Memory => match o.size {
            4 => to_memory::<M, u32>,
            _ => to_memory::<M, u64>,
        },
        Movd | Movq if general(0) => {
            o.a = gpr(i.op0_register());
            match i.op0_register().size() {
                4 => to_general::<M, u32>,
                _ => to_general::<M, u64>,
            }
        }
        Movd | Movq if general(1) => {
            o.c = gpr(i.op1_register());
            match i.op1_register().size() {
                4 => from_general::<M, u32>,
                _ => from_general::<M, u64>,
            }
        }
        Movd | Movq => to_mmx,
        Movdq2q => from_vector,
        Movq2dq => to_vector,
        Pmovmskb => signs,
        Pinsrw => insert,
        Pextrw => extract,
        Maskmovq => {
            // Address, data, mask.
            o.segment = segment(i);
            if i.op0_kind() == OpKind::MemorySegEDI {
                o.bits |= bit::SHORT;
            }
            masked_bytes
        }
        _ => return Option::None,
    })
}

/// The function that executes an instruction on MMX registers, with its operands in `o`.
pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let conversion: Option<Run<M>> = match i.mnemonic() {
        Cvtpi2ps => Some(from_integers::<M, u32>),
        Cvtpi2pd => Some(from_integers::<M, u64>),
        Cvtps2pi => Some(to_integers::<M, u32, false>),
        Cvttps2pi => Some(to_integers::<M, u32, true>),
        Cvtpd2pi => Some(to_integers::<M, u64, false>),
        Cvttpd2pi => Some(to_integers::<M, u64, true>),
        _ => Option::None,
    };
    o.d = arrangement(i.mnemonic()) as u8;
    conversion
        .or_else(|| moves(i, o))
        .or_else(|| integer::find(i, o))
        .or_else(|| shifts::find(i, o))
        .or_else(|| shuffle::find(i, o))
}
