//! The forms of vector instructions: where their operands are, and how results are stored.

use super::element::Element;
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Op, Run, bit};
use crate::word::Lane;
use iced_x86::{
    EncodingKind, Instruction, MemorySize, Mnemonic, OpKind, Register, RoundingControl,
};

/// A whole register.
pub type Lanes = [Lane; 4];

/// An operation on lanes: `a` is the first source, `b` the last operand. For two operands, `a` is the destination.
pub trait Lanewise {
    fn lane(c: &mut Core, a: Lane, b: Lane, imm: u8) -> Lane;
}

/// Fills in what all instructions have in common. `None`: a form that none here has.
pub fn operands<M>(i: &Instruction, o: &mut Op<M>) -> Option<()> {
    let immediates = (0..i.op_count())
        .filter(|n| matches!(i.op_kind(*n), OpKind::Immediate8 | OpKind::Immediate8_2nd))
        .count() as u32;
    let n = i.op_count() - immediates;
    let number = |n: u32| match i.op_kind(n) {
        OpKind::Register => i.op_register(n).number() as u8,
        _ => 0,
    };
    if n == 0 {
        return Some(());
    }
    o.a = number(0);
    o.c = number(n - 1);
    o.b = if n >= 3 { number(1) } else { o.a };
    // Four registers: the second and the third are sources, the fourth selects.
    if n == 4 {
        (o.c, o.d) = (number(2), number(3));
    }
    o.imm = match immediates {
        0 => 0,
        _ => i.try_immediate(n).ok()? & 0xff,
    };
    if (0..n).any(|n| i.op_kind(n) == OpKind::Memory) {
        o.bits |= bit::MEMORY;
        o.size = i.memory_size().size() as u8;
    }
    let short = |n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_mm();
    // These may have their integers in memory.
    let integers = matches!(i.mnemonic(), Mnemonic::Cvtpi2ps | Mnemonic::Cvtpi2pd);
    if integers || (0..n).any(short) {
        o.bits |= bit::MMX;
    }
    let encoding = i.code().encoding();
    if encoding != EncodingKind::Legacy {
        o.bits |= bit::CLEARS;
    }
    let widest = (0..n).filter(|n| i.op_kind(*n) == OpKind::Register);
    let bytes = widest
        .map(|n| vector_size(i.op_register(n)))
        .max()
        .unwrap_or(0);
    let bytes = match i.op_kind(0) {
        OpKind::Register if vector_size(i.op_register(0)) != 0 => vector_size(i.op_register(0)),
        _ => bytes,
    };
    o.lanes = (bytes / 16).max(1) as u8;
    if i.is_broadcast() {
        o.bits |= bit::BROADCAST;
        // The size is that of the whole operand.
        o.size = element_size(i.memory_size()) as u8;
    }
    o.mask = match i.op_mask() {
        Register::None => 0,
        k => k.number() as u8,
    };
    if i.zeroing_masking() {
        o.bits |= bit::ZEROING;
    }
    o.element = element_size(i.memory_size()) as u8;
    o.rounding = match i.rounding_control() {
        RoundingControl::None => 0,
        RoundingControl::RoundToNearest => 1,
        RoundingControl::RoundDown => 2,
        RoundingControl::RoundUp => 3,
        RoundingControl::RoundTowardZero => 4,
    };
    if i.suppress_all_exceptions() || o.rounding != 0 {
        o.bits |= bit::SILENT;
    }
    Some(())
}

fn element_size(m: MemorySize) -> usize {
    m.element_size()
}

fn vector_size(r: Register) -> usize {
    match r.is_vector_register() {
        true => r.size(),
        false => 0,
    }
}

/// The last operand: a register, or memory of [`Op::size`] bytes, the rest zero.
#[cfg_attr(not(target_family = "wasm"), inline(always))]
#[cfg_attr(target_family = "wasm", inline(never))]
pub fn last<M: Memory>(c: &Core, m: &mut M, o: &Op<M>) -> Lanes {
    match o.has(bit::MEMORY) {
        false => c.zmm[(o.c & 31) as usize],
        true => load(c, m, o),
    }
}

/// The operand in memory.
#[inline(always)]
pub fn load<M: Memory>(c: &Core, m: &mut M, o: &Op<M>) -> Lanes {
    let at = o.address(c);
    let mut out = [[0; 16]; 4];
    if o.has(bit::BROADCAST) {
        let lane: Lane = match o.size {
            2 => repeat(m.load::<2>(at)),
            4 => repeat(m.load::<4>(at)),
            _ => repeat(m.load::<8>(at)),
        };
        return [lane; 4];
    }
    match o.size {
        16 => out[0] = m.load(at),
        4 => out[0][..4].copy_from_slice(&m.load::<4>(at)),
        8 => out[0][..8].copy_from_slice(&m.load::<8>(at)),
        32 => {
            let b: [u8; 32] = m.load(at);
            out.as_flattened_mut()[..32].copy_from_slice(&b);
        }
        64 => {
            let b: [u8; 64] = m.load(at);
            out.as_flattened_mut().copy_from_slice(&b);
        }
        n => m.read(at, &mut out.as_flattened_mut()[..(n as usize).min(64)]),
    }
    out
}

/// A lane that consists of these bytes again and again.
pub fn repeat<const N: usize>(bytes: [u8; N]) -> Lane {
    std::array::from_fn(|i| bytes[i % N])
}

/// Whether the mask selects element `i`.
#[inline(always)]
pub fn selected<M>(c: &Core, o: &Op<M>, i: usize) -> bool {
    o.mask == 0 || c.k[(o.mask & 7) as usize] >> (i & 63) & 1 != 0
}

/// Stores a result in the register of the first operand, as mask and encoding say.
#[cfg_attr(not(target_family = "wasm"), inline(always))]
#[cfg_attr(target_family = "wasm", inline(never))]
pub fn store<M>(c: &mut Core, o: &Op<M>, r: &Lanes) {
    let n = (o.lanes as usize).min(4);
    let to = (o.a & 31) as usize;
    if o.mask == 0 {
        c.zmm[to][..n].copy_from_slice(&r[..n]);
    } else {
        let mut old = c.zmm[to];
        merge(c, o, old.as_flattened_mut(), r.as_flattened(), 16 * n);
        c.zmm[to] = old;
    }
    if o.has(bit::CLEARS) {
        c.zmm[to][n..].fill([0; 16]);
    }
}

/// Replaces the selected elements of `len` bytes.
pub fn merge<M>(c: &Core, o: &Op<M>, old: &mut [u8], new: &[u8], len: usize) {
    let size = (o.element as usize).max(1);
    for i in 0..len / size {
        let at = i * size..(i + 1) * size;
        if selected(c, o, i) {
            old[at.clone()].copy_from_slice(&new[at]);
        } else if o.has(bit::ZEROING) {
            old[at].fill(0);
        }
    }
}

/// Stores the first `len` bytes in memory, or in the register of the first operand, which has zeros behind them.
pub fn store_first<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>, r: &Lanes, len: usize) {
    match o.has(bit::MEMORY) {
        true => store_selected(c, m, o, r, len),
        false => store_register(c, o, r, len),
    }
}

/// Stores the first `len` bytes in the register of the first operand, which has zeros behind them.
pub fn store_register<M>(c: &mut Core, o: &Op<M>, r: &Lanes, len: usize) {
    let mut new = [[0; 16]; 4];
    new.as_flattened_mut()[..len].copy_from_slice(&r.as_flattened()[..len]);
    if o.mask != 0 {
        let mut old = c.zmm[(o.a & 31) as usize];
        merge(c, o, old.as_flattened_mut(), new.as_flattened(), len);
        old.as_flattened_mut()[len..].fill(0);
        new = old;
    }
    c.zmm[(o.a & 31) as usize] = new;
}

/// Stores the selected elements of the first `len` bytes in memory.
pub fn store_selected<M: Memory>(c: &Core, m: &mut M, o: &Op<M>, r: &Lanes, len: usize) {
    let (at, r) = (o.address(c), r.as_flattened());
    if o.mask == 0 {
        return m.write(at, &r[..len]);
    }
    let size = (o.element as usize).max(1);
    for i in (0..len / size).filter(|i| selected(c, o, *i)) {
        let part = i * size..(i + 1) * size;
        m.write(at.wrapping_add(part.start as u64), &r[part]);
    }
}

/// Executes a [`Lanewise`] operation.
pub fn lanewise<M: Memory, F: Lanewise>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let b = last(c, m, o);
    let a = c.zmm[(o.b & 31) as usize];
    let mut r = [[0; 16]; 4];
    for i in 0..(o.lanes as usize).min(4) {
        r[i] = F::lane(c, a[i], b[i], o.imm as u8);
    }
    store(c, o, &r);
    Flow::Next
}

/// The function of a [`Lanewise`] operation.
pub fn lanes<M: Memory, F: Lanewise>(o: &Op<M>) -> Option<Run<M>> {
    match o.has(bit::MMX) {
        true => Some(lanewise_mmx::<M, F>),
        false => Some(lanewise::<M, F>),
    }
}

/// How the operands of an instruction on MMX registers are put into lanes, so that the low half of the result is that of
/// the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrangement {
    /// Each in the low half.
    Low,
    /// In the middle: half of each operand is in the lane's upper half.
    Middle,
    /// The last operand above the first one.
    Joined,
    /// The first operand above the last one, as last operand.
    Swapped,
    /// The first operand twice.
    Twice,
}

impl Arrangement {
    /// All, by [`Op::d`].
    const ALL: [Arrangement; 5] = [
        Arrangement::Low,
        Arrangement::Middle,
        Arrangement::Joined,
        Arrangement::Swapped,
        Arrangement::Twice,
    ];

    fn lanes(self, a: u64, b: u64) -> (Lane, Lane) {
        let (a, b) = (a as u128, b as u128);
        let (a, b) = match self {
            Arrangement::Low => (a, b),
            Arrangement::Middle => (a << 32, b << 32),
            Arrangement::Joined => (a | b << 64, 0),
            Arrangement::Swapped => (0, a << 64 | b),
            Arrangement::Twice => (a | a << 64, b),
        };
        (a.to_le_bytes(), b.to_le_bytes())
    }
}

/// Executes a [`Lanewise`] operation on MMX registers. [`Op::d`] is the [`Arrangement`].
fn lanewise_mmx<M: Memory, F: Lanewise>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let b = last_mmx(c, m, o);
    let arrangement = Arrangement::ALL[o.d as usize % Arrangement::ALL.len()];
    let (a, b) = arrangement.lanes(c.x87.mmx(o.b), b);
    let r = F::lane(c, a, b, o.imm as u8);
    store_mmx(c, o, u64::get(&r, 0));
    Flow::Next
}

/// The last operand: an MMX register, or memory of [`Op::size`] bytes, the rest zero.
pub fn last_mmx<M: Memory>(c: &Core, m: &mut M, o: &Op<M>) -> u64 {
    match o.has(bit::MEMORY) {
        false => c.x87.mmx(o.c),
        true => u64::get(&load(c, m, o)[0], 0),
    }
}

/// Stores a result in the MMX register of the first operand.
pub fn store_mmx<M>(c: &mut Core, o: &Op<M>, v: u64) {
    c.x87.enter_mmx();
    c.x87.set_mmx(o.a, v);
}

/// Stores the low element of a result, with the rest of the lane from `above`.
pub fn store_low<M, T: Element>(c: &mut Core, o: &Op<M>, v: T, above: Lane) {
    let mut lane = above;
    if selected(c, o, 0) {
        v.put(&mut lane, 0);
    } else {
        let old = match o.has(bit::ZEROING) {
            true => [0; 16],
            false => c.zmm[(o.a & 31) as usize][0],
        };
        T::get(&old, 0).put(&mut lane, 0);
    }
    let to = &mut c.zmm[(o.a & 31) as usize];
    to[0] = lane;
    if o.has(bit::CLEARS) {
        to[1..].fill([0; 16]);
    }
}

/// Declares operations on lanes: `name: |c, a, b, imm| lane;`.
macro_rules! lane_operations {
    ($($name:ident: |$c:ident, $a:ident, $b:ident, $imm:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl crate::vec::form::Lanewise for $name {
                #[inline(always)]
                fn lane(
                    $c: &mut crate::core::Core,
                    $a: crate::word::Lane,
                    $b: crate::word::Lane,
                    $imm: u8,
                ) -> crate::word::Lane {
                    let _ = (&$c, $a, $imm);
                    $r
                }
            }
        )*
    };
}
pub(super) use lane_operations;

/// Declares operations on pairs of elements: `name: type => type, |x, y| element;`.
macro_rules! element_operations {
    ($($name:ident: $t:ty => $r:ty, |$x:ident, $y:ident| $e:expr;)*) => {
        $(
            struct $name;
            impl crate::vec::form::Lanewise for $name {
                #[inline(always)]
                fn lane(
                    _: &mut crate::core::Core,
                    a: crate::word::Lane,
                    b: crate::word::Lane,
                    _: u8,
                ) -> crate::word::Lane {
                    crate::vec::element::zip::<$t, $r>(a, b, |$x, $y| {
                        let _ = $x;
                        $e
                    })
                }
            }
        )*
    };
}
pub(super) use element_operations;

/// Like [`lanewise`], but each lane takes the next `S` bits of the constant.
pub fn lanewise_shifted<M: Memory, F: Lanewise, const S: u32>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let b = last(c, m, o);
    let a = c.zmm[(o.b & 31) as usize];
    let mut r = [[0; 16]; 4];
    for i in 0..(o.lanes as usize).min(4) {
        r[i] = F::lane(c, a[i], b[i], (o.imm >> (S * i as u32)) as u8);
    }
    store(c, o, &r);
    Flow::Next
}
