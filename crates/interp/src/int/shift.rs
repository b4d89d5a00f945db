//! Shifts and rotations.
//!
//! A count of zero changes no flag. OF is defined for a count of one only. For others it is what the formula of one
//! gives, as most processors do. Behind shifts AF is undefined, and AMD's processors set it.

use super::form::{At, Binary, Ternary, at, size, sized, three, two};
use crate::Memory;
use crate::core::Core;
use crate::fault::Fault;
use crate::flags::Flags;
use crate::op::{A, Flow, Int, Mem, Op, Place, Run};
use crate::operand::gpr;
use hindsight_isa::regs::RCX;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// The bits of a count that an operand of this size uses.
fn count<T: Int>(b: T) -> u32 {
    (b.wide() as u32) & if T::BITS == 64 { 63 } else { 31 }
}

/// `v << n`, also for large `n`.
fn left(v: u64, n: u32) -> u64 {
    v.checked_shl(n).unwrap_or(0)
}

/// `v >> n`, also for large `n`.
fn right(v: u64, n: u32) -> u64 {
    v.checked_shr(n).unwrap_or(0)
}

fn shifted<T: Int>(c: &mut Core, r: T, cf: bool, of: bool) -> T {
    c.flags = Flags::logic(r);
    c.flags.set_cf_of(cf, of);
    c.flags.set_af();
    r
}

/// Declares instructions that a count of zero makes do nothing: `name: |core, a, n| result;`.
macro_rules! counted {
    ($($name:ident: |$c:ident, $a:ident, $n:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl Binary for $name {
                #[inline(always)]
                fn apply<T: Int>($c: &mut Core, $a: T, b: T) -> T {
                    match count(b) {
                        0 => $a,
                        $n => $r,
                    }
                }
            }
        )*
    };
}

counted! {
    Shl: |c, a, n| {
        let r = T::of(left(a.wide(), n));
        let cf = n <= T::BITS && right(a.wide(), T::BITS - n) & 1 != 0;
        shifted(c, r, cf, r.top() != cf)
    };
    Shr: |c, a, n| {
        let r = T::of(right(a.wide(), n));
        shifted(c, r, right(a.wide(), n - 1) & 1 != 0, tops_differ(r))
    };
    Sar: |c, a, n| {
        let v = a.signed() as i64;
        shifted(c, T::of((v >> n) as u64), v >> (n - 1) & 1 != 0, false)
    };
    // Rotations change only CF and OF.
    Rol: |c, a, n| {
        let r = rotated(a, n % T::BITS);
        let cf = r.wide() & 1 != 0;
        turned(c, r, cf, r.top() != cf)
    };
    Ror: |c, a, n| {
        let r = rotated(a, T::BITS - n % T::BITS);
        turned(c, r, r.top(), tops_differ(r))
    };
    Rcl: |c, a, n| {
        let (r, cf) = through_carry(c, a, n % (T::BITS + 1));
        turned(c, r, cf, r.top() != cf)
    };
    Rcr: |c, a, n| {
        let (r, cf) = through_carry(c, a, T::BITS + 1 - n % (T::BITS + 1));
        turned(c, r, cf, tops_differ(r))
    };
}

/// Whether the two highest bits differ.
fn tops_differ<T: Int>(r: T) -> bool {
    (r.wide() << 1 ^ r.wide()) >> (T::BITS - 1) & 1 != 0
}

fn turned<T: Int>(c: &mut Core, r: T, cf: bool, of: bool) -> T {
    c.flags.set_cf_of(cf, of);
    r
}

/// Rotated left, by at most all its bits.
fn rotated<T: Int>(a: T, n: u32) -> T {
    T::of(left(a.wide(), n) | right(a.wide(), T::BITS - n))
}

/// Rotated left through CF, which is one bit more. Returns the new CF, too.
fn through_carry<T: Int>(c: &Core, a: T, n: u32) -> (T, bool) {
    let all = (c.flags.cf() as u128) << T::BITS | a.wide() as u128;
    let all = all << n | all >> (T::BITS + 1 - n);
    (T::of(all as u64), all >> T::BITS & 1 != 0)
}

/// The shifts of BMI2 change no flag. The count is `x`, but for RORX, which has a constant.
macro_rules! flagless {
    ($($name:ident: |$x:ident, $y:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl Ternary for $name {
                fn apply<T: Int>(_: &mut Core, $x: T, $y: T) -> T {
                    let $x = count($x);
                    $r
                }
            }
        )*
    };
}

flagless! {
    Shlx: |x, y| T::of(left(y.wide(), x));
    Shrx: |x, y| T::of(right(y.wide(), x));
    Sarx: |x, y| T::of((y.signed() as i64 >> x) as u64);
    Rorx: |x, y| rotated(y, T::BITS - x % T::BITS);
}

/// SHLD (`LEFT`) and SHRD: bits of register `b` are shifted in. The count is `imm`, or CL.
fn double<M: Memory, T: Int, D: Place, const LEFT: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let by = if o.c == 1 { c.gpr[RCX] } else { o.imm };
    let n = by as u32 & if T::BITS == 64 { 63 } else { 31 };
    if n == 0 {
        // A register of 32 bits is written nevertheless.
        let same: T = D::get(c, m, o);
        D::set(c, m, o, same);
        return Flow::Next;
    }
    let a: T = D::get(c, m, o);
    let b = T::held(c, o.b);
    let (x, y) = (a.wide() as u128, b.wide() as u128);
    let bits = T::BITS;
    let (r, cf, of) = match LEFT {
        _ if n > bits => {
            // The manual leaves the result undefined.
            let Some(rule) = c.left_open.double_shift else {
                let name = if LEFT { "Shld" } else { "Shrd" };
                c.fault = Some(Fault::Approximate(format!("{name} of 16 bits by {n} bits")));
                return Flow::Fault;
            };
            let r = T::of(rule.shift(LEFT, x as u16, y as u16, n) as u64);
            (r, false, !LEFT && tops_differ(r))
        }
        true => {
            let all = x << bits | y;
            let r = T::of((all << n >> bits) as u64);
            let cf = all >> (2 * bits - n) & 1 != 0;
            // Of 16 bits by 16 bits, none of the first operand is left.
            (r, cf, T::of(left(a.wide(), n)).top() != cf)
        }
        false => {
            let all = y << bits | x;
            let r = T::of((all >> n) as u64);
            (r, all >> (n - 1) & 1 != 0, tops_differ(r))
        }
    };
    shifted(c, r, cf, of);
    D::set(c, m, o, r);
    Flow::Next
}

fn find_double<M: Memory, const LEFT: bool>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    o.a = gpr(i.op0_register());
    o.b = gpr(i.op1_register());
    match i.op2_kind() {
        OpKind::Register if i.op2_register() == Register::CL => o.c = 1,
        _ => o.imm = i.immediate(2),
    }
    match at(i, 0) {
        At::Memory => sized!(size(i, 0), T => double::<M, T, Mem, LEFT>),
        _ => sized!(size(i, 0), T => double::<M, T, A, LEFT>),
    }
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    match i.mnemonic() {
        Mnemonic::Shl | Mnemonic::Sal => two::<M, Shl>(i, o),
        Mnemonic::Shr => two::<M, Shr>(i, o),
        Mnemonic::Sar => two::<M, Sar>(i, o),
        Mnemonic::Rol => two::<M, Rol>(i, o),
        Mnemonic::Ror => two::<M, Ror>(i, o),
        Mnemonic::Rcl => two::<M, Rcl>(i, o),
        Mnemonic::Rcr => two::<M, Rcr>(i, o),
        Mnemonic::Shlx => three::<M, Shlx>(i, o, 2),
        Mnemonic::Shrx => three::<M, Shrx>(i, o, 2),
        Mnemonic::Sarx => three::<M, Sarx>(i, o, 2),
        Mnemonic::Rorx => three::<M, Rorx>(i, o, 2),
        Mnemonic::Shld => find_double::<M, true>(i, o),
        Mnemonic::Shrd => find_double::<M, false>(i, o),
        _ => None,
    }
}
