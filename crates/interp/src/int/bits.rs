//! Instructions on bits: tests, scans, counts, BMI1 and BMI2, CRC32.
//!
//! The manual leaves many flags undefined. They are what AMD's processors leave.

use super::form::{At, Binary, Ternary, Unary, at, one, size, sized, three, two};
use crate::Memory;
use crate::core::Core;
use crate::flags::{AF, CF, Flags, OF, PF, ZF};
use crate::op::{B, Flow, Int, Mem, Op, Place, Run};
use crate::operand::gpr;
use iced_x86::{Instruction, Mnemonic};

/// The bit tests set CF to the bit. They leave the other flags.
macro_rules! tests {
    ($($name:ident $(($writes:literal))?: |$a:ident, $bit:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl Binary for $name {
                $(const WRITES: bool = $writes;)?
                #[inline(always)]
                fn apply<T: Int>(c: &mut Core, $a: T, b: T) -> T {
                    let $bit = T::of(1 << (b.wide() as u32 % T::BITS));
                    let cf = ($a & $bit) != T::of(0);
                    c.flags.set_cf(cf);
                    $r
                }
            }
        )*
    };
}

tests! {
    Bt(false): |a, bit| a;
    Bts: |a, bit| a | bit;
    Btr: |a, bit| a & !bit;
    Btc: |a, bit| a ^ bit;
}

/// A bit test of memory with the offset in a register, which reaches beyond the operand.
fn string<M: Memory, F: Binary, T: Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let b = T::held(c, o.b);
    let words = (b.signed() as i64 >> T::BITS.trailing_zeros()) * T::BYTES as i64;
    let segment = c.gpr[(o.segment & 31) as usize];
    let offset = o
        .address(c)
        .wrapping_sub(segment)
        .wrapping_add(words as u64);
    let offset = match o.has(crate::op::bit::SHORT) {
        true => offset as u32 as u64,
        false => offset,
    };
    let addr = offset.wrapping_add(segment);
    let a = T::load(m, addr);
    let r = F::apply(c, a, b);
    if F::WRITES {
        r.store(m, addr);
    }
    Flow::Next
}

fn test<M: Memory, F: Binary>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    if (at(i, 0), at(i, 1)) == (At::Memory, At::Register) {
        o.b = gpr(i.op1_register());
        return sized!(size(i, 0), T => string::<M, F, T>);
    }
    two::<M, F>(i, o)
}

/// Sets all status flags to zero but these.
fn only(c: &mut Core, flags: u64) {
    c.flags = Flags::from_bits(flags);
}

/// What zeros at an end leave: of the undefined flags OF stays, and the others are zero.
fn counted<T: Int>(c: &mut Core, n: u32) {
    let of = c.flags.bits() & OF;
    only(c, of | bit(n == T::BITS, CF) | bit(n == 0, ZF));
}

fn bit(on: bool, bit: u64) -> u64 {
    if on { bit } else { 0 }
}

/// Whether the lowest byte has an even number of bits.
fn is_even(v: u64) -> bool {
    (v as u8).count_ones().is_multiple_of(2)
}

/// Scans and counts: `a` is the old destination.
macro_rules! counts {
    ($($name:ident: |$c:ident, $a:ident, $b:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl Binary for $name {
                fn apply<T: Int>($c: &mut Core, $a: T, $b: T) -> T {
                    let _ = $a;
                    $r
                }
            }
        )*
    };
}

counts! {
    Popcnt: |c, a, b| {
        only(c, bit(b.wide() == 0, ZF));
        T::of(b.wide().count_ones() as u64)
    };
    Tzcnt: |c, a, b| {
        let n = b.wide().trailing_zeros().min(T::BITS);
        counted::<T>(c, n);
        T::of(n as u64)
    };
    Lzcnt: |c, a, b| {
        let n = b.wide().leading_zeros() - (64 - T::BITS);
        counted::<T>(c, n);
        T::of(n as u64)
    };
    Blsi: |c, a, b| {
        let r = T::of(b.wide().wrapping_neg()) & b;
        c.flags = Flags::logic(r);
        c.flags.set_cf_of(b.wide() != 0, false);
        r
    };
    Blsr: |c, a, b| {
        let r = b.minus(T::of(1)) & b;
        c.flags = Flags::logic(r);
        c.flags.set_cf_of(b.wide() == 0, false);
        r
    };
    Blsmsk: |c, a, b| {
        let r = b.minus(T::of(1)) ^ b;
        c.flags = Flags::logic(r);
        c.flags.set_cf_of(b.wide() == 0, false);
        r
    };
}

/// Of three operands: `x` is the control.
macro_rules! three_operands {
    ($($name:ident: |$c:ident, $x:ident, $y:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl Ternary for $name {
                fn apply<T: Int>($c: &mut Core, $x: T, $y: T) -> T {
                    let _ = &$c;
                    $r
                }
            }
        )*
    };
}

three_operands! {
    Bextr: |c, x, y| {
        let (start, len) = (x.wide() as u8 as u32, (x.wide() >> 8) as u8 as u32);
        let v = y.wide().checked_shr(start).unwrap_or(0);
        let r = T::of(if len < 64 { v & ((1 << len) - 1) } else { v });
        // The highest bit does not set SF.
        only(c, AF | bit(r.wide() == 0, ZF) | bit(is_even(r.wide()), PF));
        r
    };
    Bzhi: |c, x, y| {
        let n = x.wide() as u8 as u32;
        let r = if n < T::BITS { T::of(y.wide() & ((1 << n) - 1)) } else { y };
        c.flags = Flags::logic(r);
        c.flags.set_cf_of(n >= T::BITS, false);
        r
    };
    // The mask is `y`, which may be in memory.
    Pdep: |c, x, y| {
        let (mut mask, mut from, mut r) = (y.wide(), x.wide(), 0);
        while mask != 0 {
            let lowest = mask & mask.wrapping_neg();
            if from & 1 != 0 { r |= lowest; }
            from >>= 1;
            mask ^= lowest;
        }
        T::of(r)
    };
    Pext: |c, x, y| {
        let (mut mask, mut to, mut r) = (y.wide(), 1u64, 0);
        while mask != 0 {
            let lowest = mask & mask.wrapping_neg();
            if x.wide() & lowest != 0 { r |= to; }
            to <<= 1;
            mask ^= lowest;
        }
        T::of(r)
    };
}

struct Bswap;
impl Unary for Bswap {
    fn apply<T: Int>(_: &mut Core, a: T) -> T {
        match T::BITS {
            // Undefined. Processors give zero.
            16 => T::of(0),
            bits => T::of(a.wide().swap_bytes() >> (64 - bits)),
        }
    }
}

struct Movbe;
impl Binary for Movbe {
    const READS: bool = false;
    fn apply<T: Int>(_: &mut Core, _: T, b: T) -> T {
        T::of(b.wide().swap_bytes() >> (64 - T::BITS))
    }
}

/// BSF, and BSR if `HIGH`. Without a bit, all of the destination stays.
fn scan<M: Memory, T: Int, P: Place, const HIGH: bool>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = P::get::<M, T>(c, m, o).wide();
    if v == 0 {
        only(c, ZF | PF);
        return Flow::Next;
    }
    let n = match HIGH {
        true => 63 - v.leading_zeros(),
        false => v.trailing_zeros(),
    } as u64;
    only(c, bit(is_even(n), PF));
    T::of(n).set(c, o.a);
    Flow::Next
}

fn find_scan<M: Memory, const HIGH: bool>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    o.a = gpr(i.op0_register());
    o.b = gpr(i.op1_register());
    match at(i, 1) {
        At::Memory => sized!(size(i, 0), T => scan::<M, T, Mem, HIGH>),
        _ => sized!(size(i, 0), T => scan::<M, T, B, HIGH>),
    }
}

/// CRC32 with Castagnoli's polynomial, bits reflected.
fn crc32<M: Memory, T: Int, S: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v: T = S::get(c, m, o);
    let mut crc = u32::held(c, o.a);
    for byte in v.wide().to_le_bytes().iter().take(T::BYTES) {
        crc ^= *byte as u32;
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
        }
    }
    crc.set(c, o.a);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    match i.mnemonic() {
        Mnemonic::Bt => test::<M, Bt>(i, o),
        Mnemonic::Bts => test::<M, Bts>(i, o),
        Mnemonic::Btr => test::<M, Btr>(i, o),
        Mnemonic::Btc => test::<M, Btc>(i, o),
        Mnemonic::Popcnt => two::<M, Popcnt>(i, o),
        Mnemonic::Tzcnt => two::<M, Tzcnt>(i, o),
        Mnemonic::Lzcnt => two::<M, Lzcnt>(i, o),
        Mnemonic::Bsf => find_scan::<M, false>(i, o),
        Mnemonic::Bsr => find_scan::<M, true>(i, o),
        Mnemonic::Blsi => two::<M, Blsi>(i, o),
        Mnemonic::Blsr => two::<M, Blsr>(i, o),
        Mnemonic::Blsmsk => two::<M, Blsmsk>(i, o),
        Mnemonic::Bextr => three::<M, Bextr>(i, o, 2),
        Mnemonic::Bzhi => three::<M, Bzhi>(i, o, 2),
        Mnemonic::Pdep => three::<M, Pdep>(i, o, 1),
        Mnemonic::Pext => three::<M, Pext>(i, o, 1),
        Mnemonic::Bswap => one::<M, Bswap>(i, o),
        Mnemonic::Movbe => two::<M, Movbe>(i, o),
        Mnemonic::Crc32 => {
            o.a = gpr(i.op0_register());
            o.b = gpr(i.op1_register());
            match at(i, 1) {
                At::Memory => sized!(size(i, 1), T => crc32::<M, T, Mem>),
                _ => sized!(size(i, 1), T => crc32::<M, T, B>),
            }
        }
        _ => None,
    }
}
