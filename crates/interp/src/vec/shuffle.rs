//! Elements put in another order within a lane.

use super::element::{Element, make};
use super::form::{lane_operations, lanes, lanewise_shifted, last, store};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use crate::word::Lane;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// The elements of the low or the high halves, one of each in turn.
fn unpack<T: Element>(a: Lane, b: Lane, high: bool) -> Lane {
    let from = if high { 8 / T::BYTES } else { 0 };
    make::<T>(|i| T::get(if i & 1 == 0 { &a } else { &b }, from + i / 2))
}

/// Two bits of a constant.
fn two(imm: u8, i: usize) -> usize {
    imm as usize >> (2 * i) & 3
}

fn one(imm: u8, i: usize) -> usize {
    imm as usize >> i & 1
}

/// Elements of `b` where the constant has a one.
fn blend<T: Element>(a: Lane, b: Lane, imm: u8) -> Lane {
    make::<T>(|i| T::get(if one(imm, i) != 0 { &b } else { &a }, i))
}

lane_operations! {
    ShufB: |c, a, b, imm| make::<u8>(|i| if b[i] & 0x80 != 0 { 0 } else { a[b[i] as usize & 15] });
    ShufD: |c, a, b, imm| make::<u32>(|i| u32::get(&b, two(imm, i)));
    ShufHW: |c, a, b, imm| make::<u16>(|i| {
        u16::get(&b, if i < 4 { i } else { 4 + two(imm, i - 4) })
    });
    ShufLW: |c, a, b, imm| make::<u16>(|i| u16::get(&b, if i < 4 { two(imm, i) } else { i }));
    ShufPS: |c, a, b, imm| make::<u32>(|i| u32::get(if i < 2 { &a } else { &b }, two(imm, i)));
    ShufPD: |c, a, b, imm| make::<u64>(|i| u64::get(if i < 1 { &a } else { &b }, one(imm, i)));
    PermPD: |c, a, b, imm| make::<u64>(|i| u64::get(&b, one(imm, i)));
    VarPermPS: |c, a, b, imm| make::<u32>(|i| u32::get(&a, u32::get(&b, i) as usize & 3));
    VarPermPD: |c, a, b, imm| make::<u64>(|i| u64::get(&a, u64::get(&b, i) as usize >> 1 & 1));
    LowBW: |c, a, b, imm| unpack::<u8>(a, b, false);
    LowWD: |c, a, b, imm| unpack::<u16>(a, b, false);
    LowDQ: |c, a, b, imm| unpack::<u32>(a, b, false);
    LowQDQ: |c, a, b, imm| unpack::<u64>(a, b, false);
    HighBW: |c, a, b, imm| unpack::<u8>(a, b, true);
    HighWD: |c, a, b, imm| unpack::<u16>(a, b, true);
    HighDQ: |c, a, b, imm| unpack::<u32>(a, b, true);
    HighQDQ: |c, a, b, imm| unpack::<u64>(a, b, true);
    Align: |c, a, b, imm| make::<u8>(|i| match i + imm as usize {
        i @ 0..16 => b[i],
        i @ 16..32 => a[i - 16],
        _ => 0,
    });
    BlendW: |c, a, b, imm| blend::<u16>(a, b, imm);
    BlendD: |c, a, b, imm| blend::<u32>(a, b, imm);
    BlendQ: |c, a, b, imm| blend::<u64>(a, b, imm);
    // Eight bits from any place of each quadword, for each byte.
    MultiShift: |c, a, b, imm| make::<u8>(|i| {
        u64::get(&b, i / 8).rotate_right(a[i] as u32 & 63) as u8
    });
    DupD: |c, a, b, imm| make::<u64>(|_| u64::get(&b, 0));
    DupHighS: |c, a, b, imm| make::<u32>(|i| u32::get(&b, i | 1));
    DupLowS: |c, a, b, imm| make::<u32>(|i| u32::get(&b, i & !1));
}

/// Elements of the last operand where the selector's highest bit is set. The selector is register `d`.
fn blend_by<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let select = c.zmm[(o.d & 31) as usize];
    let mut r = [[0; 16]; 4];
    for l in 0..4 {
        r[l] = make::<T>(|i| {
            let highest = select[l][(i + 1) * T::BYTES - 1] >> 7;
            T::get(if highest != 0 { &b[l] } else { &a[l] }, i)
        });
    }
    store(c, o, &r);
    Flow::Next
}

/// Whether the last operand is a constant.
fn constant(i: &Instruction) -> bool {
    i.op_kind(i.op_count() - 1) == OpKind::Immediate8
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    match i.mnemonic() {
        Pshufb | Vpshufb => lanes::<M, ShufB>(o),
        Pshufd | Vpshufd => lanes::<M, ShufD>(o),
        Pshufhw | Vpshufhw => lanes::<M, ShufHW>(o),
        Pshuflw | Vpshuflw | Pshufw => lanes::<M, ShufLW>(o),
        Shufps | Vshufps => lanes::<M, ShufPS>(o),
        Shufpd | Vshufpd => Some(lanewise_shifted::<M, ShufPD, 2>),
        Vpermilps if constant(i) => lanes::<M, ShufD>(o),
        Vpermilpd if constant(i) => Some(lanewise_shifted::<M, PermPD, 2>),
        Vpermilps => lanes::<M, VarPermPS>(o),
        Vpermilpd => lanes::<M, VarPermPD>(o),
        Punpcklbw | Vpunpcklbw => lanes::<M, LowBW>(o),
        Punpcklwd | Vpunpcklwd => lanes::<M, LowWD>(o),
        Punpckldq | Vpunpckldq | Unpcklps | Vunpcklps => lanes::<M, LowDQ>(o),
        Punpcklqdq | Vpunpcklqdq | Unpcklpd | Vunpcklpd => lanes::<M, LowQDQ>(o),
        Punpckhbw | Vpunpckhbw => lanes::<M, HighBW>(o),
        Punpckhwd | Vpunpckhwd => lanes::<M, HighWD>(o),
        Punpckhdq | Vpunpckhdq | Unpckhps | Vunpckhps => lanes::<M, HighDQ>(o),
        Punpckhqdq | Vpunpckhqdq | Unpckhpd | Vunpckhpd => lanes::<M, HighQDQ>(o),
        Vpmultishiftqb => {
            o.element = 1;
            lanes::<M, MultiShift>(o)
        }
        Palignr | Vpalignr => lanes::<M, Align>(o),
        Pblendw | Vpblendw => lanes::<M, BlendW>(o),
        Blendps | Vblendps | Vpblendd => Some(lanewise_shifted::<M, BlendD, 4>),
        Blendpd | Vblendpd => Some(lanewise_shifted::<M, BlendQ, 2>),
        Movddup | Vmovddup => lanes::<M, DupD>(o),
        Movshdup | Vmovshdup => lanes::<M, DupHighS>(o),
        Movsldup | Vmovsldup => lanes::<M, DupLowS>(o),
        Pblendvb | Vpblendvb | Blendvps | Vblendvps | Blendvpd | Vblendvpd => {
            // Without a fourth operand, xmm0 selects.
            if i.op_count() < 4 {
                (o.b, o.c, o.d) = (o.a, i.op_register(1).number() as u8, 0);
            }
            Some(match i.mnemonic() {
                Pblendvb | Vpblendvb => blend_by::<M, u8>,
                Blendvps | Vblendvps => blend_by::<M, u32>,
                _ => blend_by::<M, u64>,
            })
        }
        _ => Option::None,
    }
}
