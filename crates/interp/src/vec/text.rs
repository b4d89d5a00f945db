//! The string comparisons of SSE4.2: PCMPISTRI, PCMPISTRM, PCMPESTRI, PCMPESTRM.

use super::element::Element;
use super::form::last;
use crate::Memory;
use crate::core::Core;
use crate::flags::{CF, Flags, OF, SF, ZF};
use crate::op::{Flow, Op, Run, bit};
use crate::word::Lane;
use hindsight_isa::regs::{RAX, RCX, RDX};
use iced_x86::{Instruction, Mnemonic};

/// Element `i`, as the constant says what elements are.
fn element(l: &Lane, i: usize, imm: u8) -> i32 {
    match imm & 3 {
        0 => l[i] as i32,
        1 => u16::get(l, i) as i32,
        2 => l[i] as i8 as i32,
        _ => i16::get(l, i) as i32,
    }
}

/// Elements before the first that is zero.
fn implicit(l: &Lane, count: usize, imm: u8) -> usize {
    (0..count)
        .position(|i| element(l, i, imm) == 0)
        .unwrap_or(count)
}

/// The length in a register: its absolute value, at most all elements.
fn explicit(v: u64, wide: bool, count: usize) -> usize {
    let n = if wide { v as i64 } else { v as i32 as i64 };
    n.unsigned_abs().min(count as u64) as usize
}

/// A bit for each element of `b`: how it compares with the elements of `a`.
fn aggregate(a: &Lane, b: &Lane, (la, lb): (usize, usize), count: usize, imm: u8) -> u32 {
    let at = |l: &Lane, i: usize| element(l, i, imm);
    let holds = |j: usize| match imm >> 2 & 3 {
        // Is any of them.
        0 => j < lb && (0..la).any(|i| at(a, i) == at(b, j)),
        // Lies in one of the ranges.
        1 => {
            j < lb
                && (0..la / 2 * 2)
                    .step_by(2)
                    .any(|i| at(a, i) <= at(b, j) && at(b, j) <= at(a, i + 1))
        }
        // Is the same as the one in its place, or both are behind the end.
        2 => match (j < la, j < lb) {
            (true, true) => at(a, j) == at(b, j),
            (false, false) => true,
            _ => false,
        },
        // The first string begins here.
        _ => (0..la.min(count - j)).all(|i| j + i < lb && at(a, i) == at(b, j + i)),
    };
    (0..count).filter(|j| holds(*j)).map(|j| 1 << j).sum()
}

/// `d`: bit 0 says that lengths are in rax and rdx, bit 1 that these have 64 bits, bit 2 that the result is a mask.
fn compare<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.a & 31) as usize][0], last(c, m, o)[0]);
    let imm = o.imm as u8;
    let count = if imm & 1 == 0 { 16 } else { 8 };
    let (la, lb) = match o.d & 1 {
        0 => (implicit(&a, count, imm), implicit(&b, count, imm)),
        _ => {
            let wide = o.d & 2 != 0;
            (
                explicit(c.gpr[RAX], wide, count),
                explicit(c.gpr[RDX], wide, count),
            )
        }
    };
    let found = aggregate(&a, &b, (la, lb), count, imm);
    let all = (1u32 << count) - 1;
    let result = match imm >> 4 & 3 {
        1 => found ^ all,
        3 => found ^ ((1u32 << lb) - 1),
        _ => found,
    };
    if o.d & 4 != 0 {
        let mut mask = [0; 16];
        match imm & 0x40 {
            0 => (result as u16).put(&mut mask, 0),
            _ => {
                for (i, b) in mask.iter_mut().enumerate() {
                    let element = if count == 16 { i } else { i / 2 };
                    *b = if result >> element & 1 != 0 { 0xff } else { 0 };
                }
            }
        }
        c.zmm[0][0] = mask;
        if o.has(bit::CLEARS) {
            c.zmm[0][1..].fill([0; 16]);
        }
    } else {
        let index = match (result, imm & 0x40) {
            (0, _) => count as u32,
            (r, 0) => r.trailing_zeros(),
            (r, _) => 31 - r.leading_zeros(),
        };
        c.gpr[RCX] = index as u64;
    }
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    c.flags = Flags::from_bits(
        bit(result != 0, CF) | bit(lb < count, ZF) | bit(la < count, SF) | bit(result & 1 != 0, OF),
    );
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let explicit = match i.mnemonic() {
        Pcmpistri | Vpcmpistri | Pcmpistrm | Vpcmpistrm => 0,
        Pcmpestri | Vpcmpestri | Pcmpestrm | Vpcmpestrm => 1,
        Pcmpestri64 | Vpcmpestri64 | Pcmpestrm64 | Vpcmpestrm64 => 3,
        _ => return Option::None,
    };
    let mask = matches!(
        i.mnemonic(),
        Pcmpistrm | Vpcmpistrm | Pcmpestrm | Vpcmpestrm | Pcmpestrm64 | Vpcmpestrm64
    );
    o.d = explicit | (mask as u8) << 2;
    Some(compare)
}
