//! Gathers and scatters: the address has a vector of indices, in register `c`.

use super::element::{Element, count};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Int, Op, Run, bit};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// The address of element `i`. `I` is an index.
fn address<M, I: Element + Int>(c: &Core, o: &Op<M>, i: usize) -> u64 {
    let lane = &c.zmm[(o.c & 31) as usize][(i / count::<I>()) & 3];
    let index = I::get(lane, i % count::<I>()).signed();
    let segment = c.gpr[(o.segment & 31) as usize];
    let offset = o
        .address(c)
        .wrapping_sub(segment)
        .wrapping_add(index << (o.scale & 3));
    let offset = match o.has(bit::SHORT) {
        true => offset as u32 as u64,
        false => offset,
    };
    offset.wrapping_add(segment)
}

/// Whether the mask selects element `i`: a mask register, or the signs of vector register `b`.
fn selected<M, T: Element>(c: &Core, o: &Op<M>, i: usize) -> bool {
    match o.mask {
        0 => {
            let lane = &c.zmm[(o.b & 31) as usize][(i / count::<T>()) & 3];
            lane[(i % count::<T>() + 1) * T::BYTES - 1] >> 7 != 0
        }
        k => c.k[(k & 7) as usize] >> i & 1 != 0,
    }
}

/// `d` elements.
fn gather<M: Memory, I: Element + Int, T: Element + Int>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let mut r = c.zmm[(o.a & 31) as usize];
    let n = o.d as usize;
    for i in (0..n).filter(|i| selected::<M, T>(c, o, *i)) {
        let v: T = Int::load(m, address::<M, I>(c, o, i));
        v.put(&mut r[(i / count::<T>()) & 3], i % count::<T>());
    }
    r.as_flattened_mut()[(n * <T as Element>::BYTES).min(64)..].fill(0);
    c.zmm[(o.a & 31) as usize] = r;
    match o.mask {
        0 => c.zmm[(o.b & 31) as usize] = [[0; 16]; 4],
        k => c.k[(k & 7) as usize] = 0,
    }
    Flow::Next
}

fn scatter<M: Memory, I: Element + Int, T: Element + Int>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let v = c.zmm[(o.a & 31) as usize];
    for i in (0..o.d as usize).filter(|i| selected::<M, T>(c, o, *i)) {
        let e = T::get(&v[(i / count::<T>()) & 3], i % count::<T>());
        Int::store(e, m, address::<M, I>(c, o, i));
    }
    c.k[(o.mask & 7) as usize] = 0;
    Flow::Next
}

/// The function of a gather or scatter, with its operands in `o`.
pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let register = match i.op0_kind() {
        OpKind::Register => i.op0_register(),
        _ => i.op1_register(),
    };
    o.a = register.number() as u8;
    o.mask = match i.op_mask() {
        Register::None => 0,
        k => k.number() as u8,
    };
    if o.mask == 0 {
        o.b = i.op2_register().number() as u8;
    }
    // Bytes of an index, and of an element.
    let (index, element, run): (usize, usize, Run<M>) = match i.mnemonic() {
        Vpgatherdd | Vgatherdps => (4, 4, gather::<M, u32, u32>),
        Vpgatherdq | Vgatherdpd => (4, 8, gather::<M, u32, u64>),
        Vpgatherqd | Vgatherqps => (8, 4, gather::<M, u64, u32>),
        Vpgatherqq | Vgatherqpd => (8, 8, gather::<M, u64, u64>),
        Vpscatterdd | Vscatterdps => (4, 4, scatter::<M, u32, u32>),
        Vpscatterdq | Vscatterdpd => (4, 8, scatter::<M, u32, u64>),
        Vpscatterqd | Vscatterqps => (8, 4, scatter::<M, u64, u32>),
        Vpscatterqq | Vscatterqpd => (8, 8, scatter::<M, u64, u64>),
        _ => return Option::None,
    };
    let bytes = register.size().max(i.memory_index().size());
    o.d = (register.size() / element)
        .min(i.memory_index().size() / index)
        .min(bytes / element.max(index)) as u8;
    Some(run)
}
