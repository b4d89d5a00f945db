//! Comparisons: floating-point numbers, and all whose result is a mask register or flags.

use super::element::{Element, count, element};
use super::form::{last, selected, store, store_low};
use super::numbers::{Env, Float};
use crate::Memory;
use crate::core::Core;
use crate::flags::{CF, Flags, PF, ZF};
use crate::op::{Flow, Int, Op, Run, bit};
use iced_x86::{Instruction, Mnemonic};
use std::cmp::Ordering;

const LESS: u8 = 1;
const EQUAL: u8 = 2;
const GREATER: u8 = 4;
const UNORDERED: u8 = 8;

/// When the first sixteen conditions hold. The others differ only in whether quiet NaNs are invalid.
const CONDITIONS: [u8; 16] = [
    EQUAL,
    LESS,
    LESS | EQUAL,
    UNORDERED,
    LESS | GREATER | UNORDERED,
    EQUAL | GREATER | UNORDERED,
    GREATER | UNORDERED,
    LESS | EQUAL | GREATER,
    EQUAL | UNORDERED,
    LESS | UNORDERED,
    LESS | EQUAL | UNORDERED,
    0,
    LESS | GREATER,
    EQUAL | GREATER,
    GREATER,
    LESS | EQUAL | GREATER | UNORDERED,
];

/// Of the first sixteen conditions, those for which quiet NaNs are invalid.
const SIGNALING: u16 = 0b0110_0110_0110_0110;

fn holds<T: Float>(e: &mut Env, a: T, b: T, imm: u8) -> bool {
    let n = imm & 31;
    let signals = (SIGNALING >> (n & 15) & 1 != 0) != (n >= 16);
    let found = match e.compare(a, b, signals) {
        None => UNORDERED,
        Some(Ordering::Less) => LESS,
        Some(Ordering::Equal) => EQUAL,
        Some(Ordering::Greater) => GREATER,
    };
    CONDITIONS[n as usize & 15] & found != 0
}

/// CMPPS and CMPPD with a vector as the result.
fn packed<M: Memory, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut e = Env::of(c, o);
    let mut r = [[0; 16]; 4];
    for l in 0..(o.lanes as usize).min(4) {
        for i in 0..count::<T>() {
            let (x, y) = (T::get(&a[l], i), T::get(&b[l], i));
            if holds(&mut e, x, y, o.imm as u8) {
                T::of(u64::MAX).put(&mut r[l], i);
            }
        }
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store(c, o, &r);
    Flow::Next
}

fn scalar<M: Memory, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize][0], last(c, m, o)[0]);
    let mut e = Env::of(c, o);
    let (x, y) = (T::get(&a, 0), T::get(&b, 0));
    let r = T::of(if holds(&mut e, x, y, o.imm as u8) {
        u64::MAX
    } else {
        0
    });
    if !e.finish(c) {
        return Flow::Fault;
    }
    store_low(c, o, r, a);
    Flow::Next
}

/// The same with a mask as the result, of `d` lanes, or of one element.
fn to_mask<M: Memory, T: Float, const ONE: bool>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut e = Env::of(c, o);
    let mut bits = 0u64;
    let n = if ONE {
        1
    } else {
        (o.d as usize).min(4) * count::<T>()
    };
    for i in (0..n).filter(|i| selected(c, o, *i)) {
        let (l, k) = (i / count::<T>(), i % count::<T>());
        let (x, y) = (T::get(&a[l], k), T::get(&b[l], k));
        bits |= (holds(&mut e, x, y, o.imm as u8) as u64) << i;
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    c.k[(o.a & 7) as usize] = bits;
    Flow::Next
}

/// COMISS and its relatives.
fn to_flags<M: Memory, T: Float, const SIGNALS: bool>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.a & 31) as usize][0], last(c, m, o)[0]);
    let mut e = Env::of(c, o);
    let (x, y) = (T::get(&a, 0), T::get(&b, 0));
    let found = e.compare(x, y, SIGNALS);
    if !e.finish(c) {
        return Flow::Fault;
    }
    c.flags = Flags::from_bits(match found {
        None => ZF | PF | CF,
        Some(Ordering::Greater) => 0,
        Some(Ordering::Less) => CF,
        Some(Ordering::Equal) => ZF,
    });
    Flow::Next
}

/// Integers with a mask as the result. The condition is `imm`: equal, less, less or equal, never, and their opposites.
fn integers<M: Memory, T: Element + Int, const SIGNED: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let order = |x: T, y: T| match SIGNED {
        true => (x.signed() as i64).cmp(&(y.signed() as i64)),
        false => x.wide().cmp(&y.wide()),
    };
    let imm = o.imm as u8;
    mask_of::<M, T>(c, m, o, |x, y| {
        let found = order(x, y);
        let base = match imm & 3 {
            0 => found == Ordering::Equal,
            1 => found == Ordering::Less,
            2 => found != Ordering::Greater,
            _ => false,
        };
        base != (imm & 4 != 0)
    })
}

/// VPTESTM, and VPTESTNM if `NOT`.
fn tests<M: Memory, T: Element + Int, const NOT: bool>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    mask_of::<M, T>(c, m, o, |x, y| ((x & y).wide() == 0) == NOT)
}

fn mask_of<M: Memory, T: Element>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
    f: impl Fn(T, T) -> bool,
) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut bits = 0u64;
    for i in 0..(o.d as usize).min(4) * count::<T>() {
        let (l, k) = (i / count::<T>(), i % count::<T>());
        let is = selected(c, o, i) && f(T::get(&a[l], k), T::get(&b[l], k));
        bits |= (is as u64) << i;
    }
    c.k[(o.a & 7) as usize] = bits;
    Flow::Next
}

/// VPSHUFBITQMB: for each byte of the last operand, the bit that it names of the quadword beside it.
fn bits<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut bits = 0u64;
    for i in (0..(o.d as usize).min(4) * 16).filter(|i| selected(c, o, *i)) {
        let at = element::<u8>(&b, i) & 63;
        bits |= (element::<u64>(&a, i / 8) >> at & 1) << i;
    }
    c.k[(o.a & 7) as usize] = bits;
    Flow::Next
}

/// VP2INTERSECT: which elements of the one operand the other one has, and the reverse in the mask that follows.
fn intersect<M: Memory, T: Element + PartialEq>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let n = (o.d as usize).min(4) * count::<T>();
    let (mut in_b, mut in_a) = (0u64, 0u64);
    for i in 0..n {
        for k in (0..n).filter(|k| element::<T>(&a, i) == element::<T>(&b, *k)) {
            in_b |= 1 << i;
            in_a |= 1 << k;
        }
    }
    let to = (o.a & 6) as usize;
    (c.k[to], c.k[to + 1]) = (in_b, in_a);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let mask = i.op0_register().is_k();
    if mask {
        o.d = (i.op1_register().size() / 16) as u8;
        o.bits &= !bit::CLEARS;
    }
    let named = |o: &mut Op<M>, imm: u64| o.imm = imm;
    macro_rules! integers {
        ($($signed:ident $unsigned:ident $equal:ident $greater:ident $m:ident $nm:ident $t:ty;)*) => {
            match i.mnemonic() {
                $(
                    $signed => return Some(integers::<M, $t, true>),
                    $unsigned => return Some(integers::<M, $t, false>),
                    $equal if mask => {
                        named(o, 0);
                        return Some(integers::<M, $t, true>);
                    }
                    $greater if mask => {
                        named(o, 6);
                        return Some(integers::<M, $t, true>);
                    }
                    $m => return Some(tests::<M, $t, false>),
                    $nm => return Some(tests::<M, $t, true>),
                )*
                _ => {}
            }
        };
    }
    integers! {
        Vpcmpb Vpcmpub Vpcmpeqb Vpcmpgtb Vptestmb Vptestnmb u8;
        Vpcmpw Vpcmpuw Vpcmpeqw Vpcmpgtw Vptestmw Vptestnmw u16;
        Vpcmpd Vpcmpud Vpcmpeqd Vpcmpgtd Vptestmd Vptestnmd u32;
        Vpcmpq Vpcmpuq Vpcmpeqq Vpcmpgtq Vptestmq Vptestnmq u64;
    }
    // The legacy forms know eight conditions.
    if matches!(i.mnemonic(), Cmpps | Cmppd | Cmpss | Cmpsd) {
        o.imm &= 7;
    }
    Some(match i.mnemonic() {
        Vcmpps if mask => to_mask::<M, u32, false>,
        Vcmppd if mask => to_mask::<M, u64, false>,
        Vcmpss if mask => to_mask::<M, u32, true>,
        Vcmpsd if mask => to_mask::<M, u64, true>,
        Cmpps | Vcmpps => packed::<M, u32>,
        Cmppd | Vcmppd => packed::<M, u64>,
        Cmpss | Vcmpss => scalar::<M, u32>,
        Cmpsd | Vcmpsd => scalar::<M, u64>,
        Vpshufbitqmb => bits,
        Vp2intersectd => intersect::<M, u32>,
        Vp2intersectq => intersect::<M, u64>,
        Ucomiss | Vucomiss => to_flags::<M, u32, false>,
        Ucomisd | Vucomisd => to_flags::<M, u64, false>,
        Comiss | Vcomiss => to_flags::<M, u32, true>,
        Comisd | Vcomisd => to_flags::<M, u64, true>,
        _ => return Option::None,
    })
}
