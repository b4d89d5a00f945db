//! Moves between vector registers, memory and general purpose registers.

use super::element::{Element, count};
use super::form::{last, store, store_low, store_selected};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Int, Op, Run, bit};
use crate::operand::gpr;
use hindsight_isa::regs::RDI;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// A register from a register or memory.
fn to_register<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = last(c, m, o);
    store(c, o, &v);
    Flow::Next
}

/// Memory from register `c`.
fn to_memory<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let v = c.zmm[(o.c & 31) as usize];
    let n = (o.size as usize).min(64);
    match (o.mask, n) {
        (0, 16) => m.store(at, v[0]),
        (0, 4) => m.store(at, u32::get(&v[0], 0).to_le_bytes()),
        (0, 8) => m.store(at, u64::get(&v[0], 0).to_le_bytes()),
        _ => store_selected(c, m, o, &v, n),
    }
    Flow::Next
}

/// MOVD and MOVQ from a general purpose register, which zero the rest.
fn from_general<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let mut lane = [0; 16];
    T::held(c, o.c).wide().put(&mut lane, 0);
    zero_but(c, o, lane);
    Flow::Next
}

/// A lane, and zeros up to the end of the vector, or of the whole register.
fn zero_but<M>(c: &mut Core, o: &Op<M>, lane: [u8; 16]) {
    let to = &mut c.zmm[(o.a & 31) as usize];
    to[0] = lane;
    if o.has(bit::CLEARS) {
        to[1..].fill([0; 16]);
    }
}

fn to_general<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let v = u64::get(&c.zmm[(o.c & 31) as usize][0], 0);
    T::of(v).set(c, o.a);
    Flow::Next
}

/// The low `T` of a register or memory, the rest zero.
fn low_alone<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = T::get(&last(c, m, o)[0], 0);
    store_low(c, o, v, [0; 16]);
    Flow::Next
}

/// The low element of the last register, the others of the second operand.
fn low_merged<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = T::get(&last(c, m, o)[0], 0);
    let above = c.zmm[(o.b & 31) as usize][0];
    store_low(c, o, v, above);
    Flow::Next
}

/// A half of a lane: half `d` of the last operand becomes half `mask` of the result.
fn half<M: Memory, const FROM: usize, const TO: usize>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = u64::get(&last(c, m, o)[0], FROM);
    let mut lane = c.zmm[(o.b & 31) as usize][0];
    v.put(&mut lane, TO);
    zero_but(c, o, lane);
    Flow::Next
}

fn high_to_memory<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = u64::get(&c.zmm[(o.c & 31) as usize][0], 1);
    m.store(o.address(c), v.to_le_bytes());
    Flow::Next
}

/// The highest bit of each element.
fn signs<M: Memory, T: Element>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let v = c.zmm[(o.c & 31) as usize];
    let mut bits = 0u64;
    for (l, lane) in v.iter().enumerate().take(o.lanes as usize) {
        for i in 0..count::<T>() {
            let highest = lane[(i + 1) * T::BYTES - 1] as u64 >> 7;
            bits |= highest << (l * count::<T>() + i);
        }
    }
    bits.set(c, o.a);
    Flow::Next
}

/// PINSR: an element from a general purpose register or memory.
fn insert<M: Memory, T: Element + Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v: T = match o.has(bit::MEMORY) {
        true => Int::load(m, o.address(c)),
        false => T::of(c.gpr[(o.c & 31) as usize]),
    };
    let mut lane = c.zmm[(o.b & 31) as usize][0];
    v.put(&mut lane, o.imm as usize % count::<T>());
    zero_but(c, o, lane);
    Flow::Next
}

/// PEXTR: an element to a general purpose register, or to memory. The register is the last operand but the constant.
fn extract<M: Memory, T: Element + Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let lane = c.zmm[(o.c & 31) as usize][0];
    let v = T::get(&lane, o.imm as usize % count::<T>());
    match o.has(bit::MEMORY) {
        true => Int::store(v, m, o.address(c)),
        false => v.wide().set(c, o.a),
    }
    Flow::Next
}

fn insert_single<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let from = match o.has(bit::MEMORY) {
        true => 0,
        false => o.imm as usize >> 6 & 3,
    };
    let v = u32::get(&last(c, m, o)[0], from);
    let mut lane = c.zmm[(o.b & 31) as usize][0];
    v.put(&mut lane, o.imm as usize >> 4 & 3);
    for i in (0..4).filter(|i| o.imm >> i & 1 != 0) {
        0u32.put(&mut lane, i);
    }
    zero_but(c, o, lane);
    Flow::Next
}

/// MASKMOVDQU: bytes of register `a` where those of `c` have their highest bit set.
fn masked_bytes<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let base = c.gpr[RDI];
    let base = if o.has(bit::SHORT) {
        base as u32 as u64
    } else {
        base
    };
    let at = base.wrapping_add(c.gpr[(o.segment & 31) as usize]);
    let (v, mask) = (c.zmm[(o.d & 31) as usize][0], c.zmm[(o.c & 31) as usize][0]);
    for i in (0..16).filter(|i| mask[*i] >> 7 != 0) {
        m.store(at.wrapping_add(i as u64), [v[i]]);
    }
    Flow::Next
}

/// VMASKMOV and VPMASKMOV from memory: the mask is register `b`.
fn masked_load<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (at, mask) = (o.address(c), c.zmm[(o.b & 31) as usize]);
    let mut r = [[0; 16]; 4];
    each_masked::<T>(o.lanes, &mask, |i| {
        let part = i * T::BYTES..(i + 1) * T::BYTES;
        m.read(
            at.wrapping_add(part.start as u64),
            &mut r.as_flattened_mut()[part],
        );
    });
    store(c, o, &r);
    Flow::Next
}

fn masked_store<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (at, mask) = (o.address(c), c.zmm[(o.b & 31) as usize]);
    let v = c.zmm[(o.c & 31) as usize];
    each_masked::<T>(o.lanes, &mask, |i| {
        let part = i * T::BYTES..(i + 1) * T::BYTES;
        m.write(at.wrapping_add(part.start as u64), &v.as_flattened()[part]);
    });
    Flow::Next
}

fn each_masked<T: Element>(lanes: u8, mask: &[[u8; 16]; 4], mut f: impl FnMut(usize)) {
    let mask = mask.as_flattened();
    for i in 0..(lanes as usize).min(4) * count::<T>() {
        if mask[(i + 1) * T::BYTES - 1] >> 7 != 0 {
            f(i);
        }
    }
}

/// VZEROUPPER (`c` is 1) and VZEROALL (0).
fn zero<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    for z in &mut c.zmm[..16] {
        z[(o.c as usize).min(1)..].fill([0; 16]);
    }
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let memory = |n: u32| n < i.op_count() && i.op_kind(n) == OpKind::Memory;
    let general = |n: u32| i.op_kind(n) == OpKind::Register && i.op_register(n).is_gpr();
    let wide = |n: u32| i.op_register(n).is_gpr64();
    let to = memory(0);
    Some(match i.mnemonic() {
        Movaps | Movups | Movapd | Movupd | Movdqa | Movdqu | Lddqu | Movntdqa | Vmovaps
        | Vmovups | Vmovapd | Vmovupd | Vmovdqa | Vmovdqu | Vlddqu | Vmovntdqa | Vmovdqa32
        | Vmovdqa64 | Vmovdqu8 | Vmovdqu16 | Vmovdqu32 | Vmovdqu64 | Movntps | Movntpd
        | Movntdq | Vmovntps | Vmovntpd | Vmovntdq => {
            if to {
                to_memory
            } else {
                to_register
            }
        }
        Movd | Vmovd | Movq | Vmovq if general(0) => {
            o.a = gpr(i.op0_register());
            if wide(0) {
                to_general::<M, u64>
            } else {
                to_general::<M, u32>
            }
        }
        Movd | Vmovd | Movq | Vmovq if !memory(1) && general(1) => {
            o.c = gpr(i.op1_register());
            if wide(1) {
                from_general::<M, u64>
            } else {
                from_general::<M, u32>
            }
        }
        Movd | Vmovd | Movq | Vmovq if to => to_memory,
        Movd | Vmovd => low_alone::<M, u32>,
        Movq | Vmovq => low_alone::<M, u64>,
        Movss | Vmovss | Movsd | Vmovsd | Vmovsh | Movntss | Movntsd if to => to_memory,
        Movss | Vmovss if memory(1) => low_alone::<M, u32>,
        Movsd | Vmovsd if memory(1) => low_alone::<M, u64>,
        Movss | Vmovss => low_merged::<M, u32>,
        Movsd | Vmovsd => low_merged::<M, u64>,
        Movlps | Movlpd | Vmovlps | Vmovlpd if to => to_memory,
        Movhps | Movhpd | Vmovhps | Vmovhpd if to => high_to_memory,
        Movlps | Movlpd | Vmovlps | Vmovlpd => half::<M, 0, 0>,
        Movhps | Movhpd | Vmovhps | Vmovhpd | Movlhps | Vmovlhps => half::<M, 0, 1>,
        Movhlps | Vmovhlps => half::<M, 1, 0>,
        Pmovmskb | Vpmovmskb => signs::<M, u8>,
        Movmskps | Vmovmskps => signs::<M, u32>,
        Movmskpd | Vmovmskpd => signs::<M, u64>,
        Pinsrb | Vpinsrb => insert::<M, u8>,
        Pinsrw | Vpinsrw => insert::<M, u16>,
        Pinsrd | Vpinsrd => insert::<M, u32>,
        Pinsrq | Vpinsrq => insert::<M, u64>,
        Pextrb | Vpextrb => extract::<M, u8>,
        Pextrw | Vpextrw => extract::<M, u16>,
        Pextrd | Vpextrd | Extractps | Vextractps => extract::<M, u32>,
        Pextrq | Vpextrq => extract::<M, u64>,
        Insertps | Vinsertps => insert_single,
        Maskmovdqu | Vmaskmovdqu => {
            // Address, data, mask.
            (o.d, o.c) = (
                i.op1_register().number() as u8,
                i.op2_register().number() as u8,
            );
            o.segment = crate::operand::segment(i);
            if i.op0_kind() == OpKind::MemorySegEDI {
                o.bits |= bit::SHORT;
            }
            masked_bytes
        }
        Vmaskmovps | Vpmaskmovd if to => masked_store::<M, u32>,
        Vmaskmovpd | Vpmaskmovq if to => masked_store::<M, u64>,
        Vmaskmovps | Vpmaskmovd => masked_load::<M, u32>,
        Vmaskmovpd | Vpmaskmovq => masked_load::<M, u64>,
        Vzeroupper => {
            o.c = 1;
            zero
        }
        Vzeroall => {
            o.c = 0;
            zero
        }
        _ => return Option::None,
    })
}
