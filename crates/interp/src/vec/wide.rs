//! Moves across lanes: broadcasts, inserts and extracts of lanes, permutations, extensions, PTEST.

use super::element::{Element, count, element, whole};
use super::form::{last, store, store_selected};
use crate::Memory;
use crate::core::Core;
use crate::flags::{CF, Flags, ZF};
use crate::op::{Flow, Int, Op, Run, bit};
use iced_x86::{Instruction, Mnemonic, OpKind};

fn broadcast<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = T::get(&low(c, m, o), 0);
    store(c, o, &whole(o.lanes, |_| v));
    Flow::Next
}

/// The low lane of the last operand, of which memory has [`Op::size`] bytes.
fn low<M: Memory>(c: &Core, m: &mut M, o: &Op<M>) -> [u8; 16] {
    last(c, m, o)[0]
}

fn broadcast_general<M: Memory, T: Element + Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let v = T::of(c.gpr[(o.c & 31) as usize]);
    store(c, o, &whole(o.lanes, |_| v));
    Flow::Next
}

/// `N` lanes again and again.
fn broadcast_lanes<M: Memory, const N: usize>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = last(c, m, o);
    store(c, o, &std::array::from_fn(|l| v[l % N]));
    Flow::Next
}

/// Two elements of 32 bits again and again.
fn broadcast_pair<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v: u64 = element(&last(c, m, o), 0);
    store(c, o, &whole(o.lanes, |_| v));
    Flow::Next
}

/// `N` lanes of the last operand replace those that the constant names.
fn insert<M: Memory, const N: usize>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let mut r = c.zmm[(o.b & 31) as usize];
    let v = last(c, m, o);
    let parts = (o.lanes as usize / N).max(1);
    let at = o.imm as usize % parts * N;
    r[at..at + N].copy_from_slice(&v[..N]);
    store(c, o, &r);
    Flow::Next
}

/// `N` lanes of register `c` go to a register or memory.
fn extract<M: Memory, const N: usize>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = c.zmm[(o.c & 31) as usize];
    let at = o.imm as usize % (o.d as usize / N).max(1) * N;
    let mut r = [[0; 16]; 4];
    r[..N].copy_from_slice(&v[at..at + N]);
    match o.has(bit::MEMORY) {
        true => store_selected(c, m, o, &r, 16 * N),
        false => store(c, o, &r),
    }
    Flow::Next
}

/// VPERM2F128 and VPERM2I128.
fn two_lanes<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut r = [[0; 16]; 4];
    for (l, r) in r.iter_mut().enumerate().take(2) {
        let k = o.imm as usize >> (4 * l);
        if k & 8 == 0 {
            *r = if k & 2 == 0 { a[k & 1] } else { b[k & 1] };
        }
    }
    store(c, o, &r);
    Flow::Next
}

/// VSHUFF32X4 and its relatives: lanes of the first operand, then lanes of the second.
fn four_lanes<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let n = (o.lanes as usize).clamp(2, 4);
    let bits = if n == 4 { 2 } else { 1 };
    let r = std::array::from_fn(|l| {
        let k = o.imm as usize >> (bits * l) & (n - 1);
        if l < n / 2 { a[k] } else { b[k] }
    });
    store(c, o, &r);
    Flow::Next
}

/// VPERMQ and VPERMPD with a constant: within four elements.
fn permute_four<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = last(c, m, o);
    let r = whole::<u64>(o.lanes, |i| {
        element(&v, i & !3 | o.imm as usize >> (2 * (i & 3)) & 3)
    });
    store(c, o, &r);
    Flow::Next
}

/// Elements of the last operand by the numbers in the second.
fn permute<M: Memory, T: Element + Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (index, v) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let n = (o.lanes as usize).min(4) * count::<T>();
    let r = whole::<T>(o.lanes, |i| {
        let k = element::<T>(&index, i).wide() as usize;
        element(&v, k & (n - 1))
    });
    store(c, o, &r);
    Flow::Next
}

/// Elements of two tables. `FIRST`: the destination has the numbers (VPERMI2); otherwise the second operand.
fn permute_two<M: Memory, T: Element + Int, const FIRST: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let (old, mid, v) = (
        c.zmm[(o.a & 31) as usize],
        c.zmm[(o.b & 31) as usize],
        last(c, m, o),
    );
    let (index, table) = if FIRST { (old, mid) } else { (mid, old) };
    let n = (o.lanes as usize).min(4) * count::<T>();
    let r = whole::<T>(o.lanes, |i| {
        let k = element::<T>(&index, i).wide() as usize;
        element(if k & n == 0 { &table } else { &v }, k & (n - 1))
    });
    store(c, o, &r);
    Flow::Next
}

/// VALIGND and VALIGNQ.
fn align<M: Memory, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let n = (o.lanes as usize).min(4) * count::<T>();
    let by = o.imm as usize & (n - 1);
    let r = whole::<T>(o.lanes, |i| match i + by {
        k if k < n => element(&b, k),
        k => element(&a, k - n),
    });
    store(c, o, &r);
    Flow::Next
}

/// VPCONFLICT: for each element a bit for each equal one before it.
fn conflict<M: Memory, T: Element + Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = last(c, m, o);
    let r = whole::<T>(o.lanes, |i| {
        let equal = |k: &usize| element::<T>(&v, *k) == element::<T>(&v, i);
        T::of((0..i).filter(equal).map(|k| 1 << k).sum())
    });
    store(c, o, &r);
    Flow::Next
}

/// VPBROADCASTM: a mask of so many bits in each element.
fn broadcast_mask<M: Memory, T: Element + Int, const BITS: u32>(
    c: &mut Core,
    _: &mut M,
    o: &Op<M>,
) -> Flow {
    let k = c.k[(o.c & 7) as usize] & ((1 << BITS) - 1);
    store(c, o, &whole(o.lanes, |_| T::of(k)));
    Flow::Next
}

/// PMOVSX and PMOVZX: the low elements of the last operand, extended.
fn extend<M: Memory, S: Element + Int, T: Element + Int, const SIGN: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let v = last(c, m, o);
    let r = whole::<T>(o.lanes, |i| {
        let e: S = element(&v, i);
        T::of(if SIGN { e.signed() } else { e.wide() })
    });
    store(c, o, &r);
    Flow::Next
}

/// PTEST (`T` of 1 byte: all bits), VTESTPS and VTESTPD (signs of elements).
fn test<M: Memory, const SIGNS: u64>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (c.zmm[(o.a & 31) as usize], last(c, m, o));
    let (mut and, mut andn) = (0, 0);
    for i in 0..2 * (o.lanes as usize).min(4) {
        let (x, y): (u64, u64) = (element(&a, i), element(&b, i));
        and |= x & y & SIGNS;
        andn |= !x & y & SIGNS;
    }
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    c.flags = Flags::from_bits(bit(and == 0, ZF) | bit(andn == 0, CF));
    Flow::Next
}

const ALL: u64 = u64::MAX;
const SINGLES: u64 = 0x8000_0000_8000_0000;
const DOUBLES: u64 = 1 << 63;

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let general = i.op1_kind() == OpKind::Register && i.op1_register().is_gpr();
    let constant = i.op_kind(i.op_count().saturating_sub(1)) == OpKind::Immediate8;
    // The register that lanes are extracted from.
    if i.op1_kind() == OpKind::Register {
        o.d = (i.op1_register().size() / 16) as u8;
    }
    macro_rules! extensions {
        ($sx:ident $vsx:ident $zx:ident $vzx:ident $s:ty, $t:ty) => {
            match i.mnemonic() {
                $sx | $vsx => return Some(extend::<M, $s, $t, true>),
                $zx | $vzx => return Some(extend::<M, $s, $t, false>),
                _ => {}
            }
        };
    }
    if i.op0_kind() == OpKind::Register {
        let element = o.element;
        o.element = match i.mnemonic() {
            Vpmovsxbw | Vpmovzxbw => 2,
            Vpmovsxbd | Vpmovzxbd | Vpmovsxwd | Vpmovzxwd => 4,
            Vpmovsxbq | Vpmovzxbq | Vpmovsxwq | Vpmovzxwq | Vpmovsxdq | Vpmovzxdq => 8,
            _ => element,
        };
    }
    extensions!(Pmovsxbw Vpmovsxbw Pmovzxbw Vpmovzxbw u8, u16);
    extensions!(Pmovsxbd Vpmovsxbd Pmovzxbd Vpmovzxbd u8, u32);
    extensions!(Pmovsxbq Vpmovsxbq Pmovzxbq Vpmovzxbq u8, u64);
    extensions!(Pmovsxwd Vpmovsxwd Pmovzxwd Vpmovzxwd u16, u32);
    extensions!(Pmovsxwq Vpmovsxwq Pmovzxwq Vpmovzxwq u16, u64);
    extensions!(Pmovsxdq Vpmovsxdq Pmovzxdq Vpmovzxdq u32, u64);
    let (run, element): (Run<M>, u8) = match i.mnemonic() {
        Vpbroadcastb if general => (broadcast_general::<M, u8>, 1),
        Vpbroadcastw if general => (broadcast_general::<M, u16>, 2),
        Vpbroadcastd if general => (broadcast_general::<M, u32>, 4),
        Vpbroadcastq if general => (broadcast_general::<M, u64>, 8),
        Vpbroadcastb => (broadcast::<M, u8>, 1),
        Vpbroadcastw => (broadcast::<M, u16>, 2),
        Vpbroadcastd | Vbroadcastss => (broadcast::<M, u32>, 4),
        Vpbroadcastq | Vbroadcastsd => (broadcast::<M, u64>, 8),
        Vbroadcastf128 | Vbroadcasti128 => (broadcast_lanes::<M, 1>, 8),
        Vbroadcastf32x4 | Vbroadcasti32x4 => (broadcast_lanes::<M, 1>, 4),
        Vbroadcastf64x2 | Vbroadcasti64x2 => (broadcast_lanes::<M, 1>, 8),
        Vbroadcastf32x8 | Vbroadcasti32x8 => (broadcast_lanes::<M, 2>, 4),
        Vbroadcastf64x4 | Vbroadcasti64x4 => (broadcast_lanes::<M, 2>, 8),
        Vbroadcastf32x2 | Vbroadcasti32x2 => (broadcast_pair, 4),
        Vinsertf128 | Vinserti128 => (insert::<M, 1>, 8),
        Vinsertf32x4 | Vinserti32x4 => (insert::<M, 1>, 4),
        Vinsertf64x2 | Vinserti64x2 => (insert::<M, 1>, 8),
        Vinsertf32x8 | Vinserti32x8 => (insert::<M, 2>, 4),
        Vinsertf64x4 | Vinserti64x4 => (insert::<M, 2>, 8),
        Vextractf128 | Vextracti128 => (extract::<M, 1>, 8),
        Vextractf32x4 | Vextracti32x4 => (extract::<M, 1>, 4),
        Vextractf64x2 | Vextracti64x2 => (extract::<M, 1>, 8),
        Vextractf32x8 | Vextracti32x8 => (extract::<M, 2>, 4),
        Vextractf64x4 | Vextracti64x4 => (extract::<M, 2>, 8),
        Vperm2f128 | Vperm2i128 => (two_lanes, 8),
        Vshuff32x4 | Vshufi32x4 => (four_lanes, 4),
        Vshuff64x2 | Vshufi64x2 => (four_lanes, 8),
        Vpermq | Vpermpd if constant => (permute_four, 8),
        Vpermb => (permute::<M, u8>, 1),
        Vpermw => (permute::<M, u16>, 2),
        Vpermd | Vpermps => (permute::<M, u32>, 4),
        Vpermq | Vpermpd => (permute::<M, u64>, 8),
        Vpermi2b => (permute_two::<M, u8, true>, 1),
        Vpermi2w => (permute_two::<M, u16, true>, 2),
        Vpermi2d | Vpermi2ps => (permute_two::<M, u32, true>, 4),
        Vpermi2q | Vpermi2pd => (permute_two::<M, u64, true>, 8),
        Vpermt2b => (permute_two::<M, u8, false>, 1),
        Vpermt2w => (permute_two::<M, u16, false>, 2),
        Vpermt2d | Vpermt2ps => (permute_two::<M, u32, false>, 4),
        Vpermt2q | Vpermt2pd => (permute_two::<M, u64, false>, 8),
        Valignd => (align::<M, u32>, 4),
        Valignq => (align::<M, u64>, 8),
        Vpconflictd => (conflict::<M, u32>, 4),
        Vpconflictq => (conflict::<M, u64>, 8),
        Vpbroadcastmw2d => (broadcast_mask::<M, u32, 16>, 4),
        Vpbroadcastmb2q => (broadcast_mask::<M, u64, 8>, 8),
        Ptest | Vptest => (test::<M, ALL>, 8),
        Vtestps => (test::<M, SINGLES>, 8),
        Vtestpd => (test::<M, DOUBLES>, 8),
        _ => return Option::None,
    };
    o.element = element;
    Some(run)
}
