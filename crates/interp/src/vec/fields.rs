//! SSE4a: fields of bits in the low half of a register.

use super::element::Element;
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use iced_x86::{Instruction, Mnemonic, OpKind};

/// A field of so many bits (0 for 64) at the bottom of a quadword.
fn mask(length: u64) -> u64 {
    match length & 63 {
        0 => u64::MAX,
        n => (1 << n) - 1,
    }
}

/// EXTRQ: a field of register `a`. Its length and place are the constants, or bytes of register `c` (`d` is 1).
fn extract<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let at = match o.d {
        0 => o.imm,
        _ => u64::get(&c.zmm[(o.c & 31) as usize][0], 0),
    };
    let v = u64::get(&c.zmm[(o.a & 31) as usize][0], 0);
    low(c, o, v >> (at >> 8 & 63) & mask(at));
    Flow::Next
}

/// INSERTQ: the low bits of register `c` become a field of register `a`. Where it lies, the constants or the upper half
/// of register `c` say.
fn insert<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let from = c.zmm[(o.c & 31) as usize][0];
    let at = match o.d {
        0 => o.imm,
        _ => u64::get(&from, 1),
    };
    let (place, mask) = (at >> 8 & 63, mask(at));
    let v = u64::get(&c.zmm[(o.a & 31) as usize][0], 0);
    let field = (u64::get(&from, 0) & mask) << place;
    low(c, o, v & !(mask << place) | field);
    Flow::Next
}

/// Sets the low half of register `a`. The upper one is undefined; processors have zeros there.
fn low<M>(c: &mut Core, o: &Op<M>, v: u64) {
    c.zmm[(o.a & 31) as usize][0] = (v as u128).to_le_bytes();
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    let run = match i.mnemonic() {
        Mnemonic::Extrq => extract,
        Mnemonic::Insertq => insert,
        _ => return None,
    };
    let last = i.op_count() - 1;
    o.d = (i.op_kind(last) == OpKind::Register) as u8;
    if o.d == 0 {
        o.imm = i.immediate(last - 1) & 0xff | (i.immediate(last) & 0xff) << 8;
    }
    Some(run)
}
