//! Mask registers, and operations that need them.

use super::element::{Element, count};
use super::form::{last, selected, store};
use crate::Memory;
use crate::core::Core;
use crate::flags::{CF, Flags, ZF};
use crate::op::{Flow, Int, Op, Run, bit};
use crate::operand::gpr;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// An operation on two masks.
trait Masks {
    fn apply(a: u64, b: u64) -> u64;
}

macro_rules! masks {
    ($($name:ident: |$a:ident, $b:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl Masks for $name {
                fn apply($a: u64, $b: u64) -> u64 {
                    let _ = $a;
                    $r
                }
            }
        )*
    };
}

masks! {
    Both: |a, b| a & b;
    OnlyLast: |a, b| !a & b;
    Either: |a, b| a | b;
    Differ: |a, b| a ^ b;
    Same: |a, b| !(a ^ b);
    Sum: |a, b| a.wrapping_add(b);
    Inverse: |a, b| !b;
}

fn two<M: Memory, F: Masks, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let k = |n: u8| c.k[(n & 7) as usize];
    let r = F::apply(k(o.b), k(o.c));
    c.k[(o.a & 7) as usize] = T::of(r).wide();
    Flow::Next
}

/// KUNPCK: the low halves, that of the last operand below.
fn unpack<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let k = |n: u8| c.k[(n & 7) as usize];
    let half = T::BITS / 2;
    let low = k(o.c) & ((1 << half) - 1);
    c.k[(o.a & 7) as usize] = T::of(k(o.b) << half | low).wide();
    Flow::Next
}

/// KSHIFTL (`LEFT`) and KSHIFTR.
fn shift<M: Memory, T: Int, const LEFT: bool>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let v = T::of(c.k[(o.c & 7) as usize]).wide();
    let n = o.imm as u32;
    let r = match LEFT {
        true => v.checked_shl(n),
        false => v.checked_shr(n),
    };
    c.k[(o.a & 7) as usize] = T::of(r.unwrap_or(0)).wide();
    Flow::Next
}

/// KORTEST: ZF if all are zero, CF if all are one. KTEST if `TEST`.
fn flags<M: Memory, T: Int, const TEST: bool>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let k = |n: u8| T::of(c.k[(n & 7) as usize]);
    let (a, b) = (k(o.a), k(o.c));
    let (zero, carry) = match TEST {
        true => ((a & b).wide() == 0, (!a & b).wide() == 0),
        false => ((a | b).wide() == 0, !(a | b) == T::of(0)),
    };
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    c.flags = Flags::from_bits(bit(zero, ZF) | bit(carry, CF));
    Flow::Next
}

/// KMOV from a mask, memory or a general purpose register (`d` is 0, 1, 2).
fn to_mask<M: Memory, T: Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = match o.d {
        0 => T::of(c.k[(o.c & 7) as usize]),
        1 => T::load(m, o.address(c)),
        _ => T::of(c.gpr[(o.c & 31) as usize]),
    };
    c.k[(o.a & 7) as usize] = v.wide();
    Flow::Next
}

/// KMOV to memory or a general purpose register (`d` is 1, 2).
fn from_mask<M: Memory, T: Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = T::of(c.k[(o.c & 7) as usize]);
    match o.d {
        1 => v.store(m, o.address(c)),
        _ => v.wide().set(c, o.a),
    }
    Flow::Next
}

/// VPMOVM2B and its relatives: elements of all ones.
fn spread<M: Memory, T: Element + Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let k = c.k[(o.c & 7) as usize];
    let mut r = [[0; 16]; 4];
    for i in 0..(o.lanes as usize).min(4) * count::<T>() {
        if k >> i & 1 != 0 {
            T::of(u64::MAX).put(&mut r[i / count::<T>()], i % count::<T>());
        }
    }
    store(c, o, &r);
    Flow::Next
}

/// VPMOVB2M and its relatives: the signs of elements. The register has `d` lanes.
fn signs<M: Memory, T: Element + Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let v = c.zmm[(o.c & 31) as usize];
    let mut bits = 0;
    for i in 0..(o.d as usize).min(4) * count::<T>() {
        let e = T::get(&v[i / count::<T>()], i % count::<T>());
        bits |= (e.top() as u64) << i;
    }
    c.k[(o.a & 7) as usize] = bits;
    Flow::Next
}

/// VPTERNLOG: the constant is a table of three bits, those of the destination, the second and the last operand.
fn ternary<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (x, y, z) = (
        c.zmm[(o.a & 31) as usize],
        c.zmm[(o.b & 31) as usize],
        last(c, m, o),
    );
    let mut r = [[0u8; 16]; 4];
    for l in 0..4 {
        for i in 0..16 {
            let (a, b, d) = (x[l][i], y[l][i], z[l][i]);
            for n in (0..8u8).filter(|n| o.imm >> n & 1 != 0) {
                let of = |v: u8, bit: u8| if n & bit != 0 { v } else { !v };
                r[l][i] |= of(a, 4) & of(b, 2) & of(d, 1);
            }
        }
    }
    store(c, o, &r);
    Flow::Next
}

/// VPBLENDM: the mask chooses between the second and the last operand.
fn blend<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut r = a;
    let size = (o.element as usize).max(1);
    for i in 0..16 * (o.lanes as usize).min(4) / size {
        let part = i * size..(i + 1) * size;
        if selected(c, o, i) {
            r.as_flattened_mut()[part.clone()].copy_from_slice(&b.as_flattened()[part]);
        } else if o.has(bit::ZEROING) {
            r.as_flattened_mut()[part].fill(0);
        }
    }
    let n = (o.lanes as usize).min(4);
    let to = &mut c.zmm[(o.a & 31) as usize];
    to[..n].copy_from_slice(&r[..n]);
    to[n..].fill([0; 16]);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    macro_rules! all {
        ($($b:ident $w:ident $d:ident $q:ident: $f:ident $(<$($p:tt),*>)?;)*) => {
            match i.mnemonic() {
                $(
                    $b => return Some($f::<M $($(, $p)*)?, u8>),
                    $w => return Some($f::<M $($(, $p)*)?, u16>),
                    $d => return Some($f::<M $($(, $p)*)?, u32>),
                    $q => return Some($f::<M $($(, $p)*)?, u64>),
                )*
                _ => {}
            }
        };
    }
    all! {
        Kandb Kandw Kandd Kandq: two<Both>;
        Kandnb Kandnw Kandnd Kandnq: two<OnlyLast>;
        Korb Korw Kord Korq: two<Either>;
        Kxorb Kxorw Kxord Kxorq: two<Differ>;
        Kxnorb Kxnorw Kxnord Kxnorq: two<Same>;
        Kaddb Kaddw Kaddd Kaddq: two<Sum>;
        Knotb Knotw Knotd Knotq: two<Inverse>;
        Vpmovm2b Vpmovm2w Vpmovm2d Vpmovm2q: spread;
    }
    if matches!(i.mnemonic(), Kmovb | Kmovw | Kmovd | Kmovq) {
        let general = |n: u32| i.op_kind(n) == OpKind::Register && i.op_register(n).is_gpr();
        o.d = match (o.has(bit::MEMORY), general(0) || general(1)) {
            (true, _) => 1,
            (_, true) => 2,
            _ => 0,
        };
        let to = i.op0_kind() == OpKind::Register && i.op0_register().is_k();
        if general(0) {
            o.a = gpr(i.op0_register());
        }
        if general(1) {
            o.c = gpr(i.op1_register());
        }
        return Some(match (i.mnemonic(), to) {
            (Kmovb, true) => to_mask::<M, u8>,
            (Kmovw, true) => to_mask::<M, u16>,
            (Kmovd, true) => to_mask::<M, u32>,
            (_, true) => to_mask::<M, u64>,
            (Kmovb, _) => from_mask::<M, u8>,
            (Kmovw, _) => from_mask::<M, u16>,
            (Kmovd, _) => from_mask::<M, u32>,
            _ => from_mask::<M, u64>,
        });
    }
    if i.op1_kind() == OpKind::Register {
        o.d = (i.op1_register().size() / 16) as u8;
    }
    Some(match i.mnemonic() {
        Kunpckbw => unpack::<M, u16>,
        Kunpckwd => unpack::<M, u32>,
        Kunpckdq => unpack::<M, u64>,
        Kshiftlb => shift::<M, u8, true>,
        Kshiftlw => shift::<M, u16, true>,
        Kshiftld => shift::<M, u32, true>,
        Kshiftlq => shift::<M, u64, true>,
        Kshiftrb => shift::<M, u8, false>,
        Kshiftrw => shift::<M, u16, false>,
        Kshiftrd => shift::<M, u32, false>,
        Kshiftrq => shift::<M, u64, false>,
        Kortestb => flags::<M, u8, false>,
        Kortestw => flags::<M, u16, false>,
        Kortestd => flags::<M, u32, false>,
        Kortestq => flags::<M, u64, false>,
        Ktestb => flags::<M, u8, true>,
        Ktestw => flags::<M, u16, true>,
        Ktestd => flags::<M, u32, true>,
        Ktestq => flags::<M, u64, true>,
        Vpmovb2m => signs::<M, u8>,
        Vpmovw2m => signs::<M, u16>,
        Vpmovd2m => signs::<M, u32>,
        Vpmovq2m => signs::<M, u64>,
        Vpternlogd | Vpternlogq => ternary,
        Vpblendmb | Vpblendmw | Vpblendmd | Vpblendmq | Vblendmps | Vblendmpd => blend,
        _ => return Option::None,
    })
}
