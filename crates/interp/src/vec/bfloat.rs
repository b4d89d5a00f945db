//! Numbers of 16 bits that are the upper halves of single ones. MXCSR has no say: tiny numbers are zeros, results are
//! rounded to nearest, and no exception is noted.

use super::convert::source_lanes;
use super::element::{element, set_element, whole};
use super::form::{last, selected, store, store_register};
use super::numbers::Env;
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use iced_x86::{Instruction, Mnemonic};

/// Rounds the bits of a single number to their upper half.
fn rounded(v: u32) -> u16 {
    let upper = (v >> 16) as u16;
    match v >> 23 & 0xff {
        0 => upper & 0x8000,
        0xff if v << 9 != 0 => upper | 0x40,
        0xff => upper,
        _ => (v.wrapping_add(0x7fff + (v >> 16 & 1)) >> 16) as u16,
    }
}

/// VCVTNEPS2BF16, of `d` lanes.
fn narrow<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = last(c, m, o);
    let mut r = [[0; 16]; 4];
    let n = 4 * (o.d as usize).min(4);
    for i in 0..n {
        set_element(&mut r, i, rounded(element(&v, i)));
    }
    store_register(c, o, &r, 2 * n);
    Flow::Next
}

/// VCVTNE2PS2BF16: those of the last operand, then those of the second one.
fn narrow_two<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let half = 4 * (o.lanes as usize).min(4);
    let r = whole::<u16>(o.lanes, |i| {
        rounded(match i < half {
            true => element(&b, i),
            false => element(&a, i - half),
        })
    });
    store(c, o, &r);
    Flow::Next
}

/// VDPBF16PS: the destination and two products, the upper one first.
fn dot<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (mut r, a, b) = (
        c.zmm[(o.a & 31) as usize],
        c.zmm[(o.b & 31) as usize],
        last(c, m, o),
    );
    let mut e = Env::of_bfloats();
    for i in (0..4 * (o.lanes as usize).min(4)).filter(|i| selected(c, o, *i)) {
        let (x, y): (u32, u32) = (element(&a, i), element(&b, i));
        let upper = (x & 0xffff_0000, y & 0xffff_0000);
        let lower = (x << 16, y << 16);
        let mut sum: u32 = element(&r, i);
        for (x, y) in [upper, lower] {
            sum = e.fma((x, y, sum), (false, false), [0, 1, 2]);
        }
        set_element(&mut r, i, sum);
    }
    store(c, o, &r);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    let (run, element): (Run<M>, u8) = match i.mnemonic() {
        Mnemonic::Vcvtneps2bf16 => {
            o.d = source_lanes(i, o.lanes);
            (narrow, 2)
        }
        Mnemonic::Vcvtne2ps2bf16 => (narrow_two, 2),
        Mnemonic::Vdpbf16ps => (dot, 4),
        _ => return None,
    };
    o.element = element;
    Some(run)
}
