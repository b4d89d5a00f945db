//! Numbers taken apart and put together: exponents, significands, scaling, rounding to fractions, ranges, classes.

use super::convert::source_lanes;
use super::element::{count, element, set_element};
use super::float::{arithmetic, of};
use super::form::{last, selected, store, store_low};
use super::numbers::{Env, Float};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use crate::soft::flag::{IE, PE, ZE};
use crate::soft::{self, INDEFINITE, Number, Round, Rounded, from_integer, integral};
use iced_x86::{Instruction, Mnemonic};
use std::cmp::Ordering;

arithmetic! {
    Exponent: |e, a, b, imm| exponent(e, b);
    Significand: |e, a, b, imm| significand(e, b, imm);
    Scale: |e, a, b, imm| scale(e, a, b);
    Fraction: |e, a, b, imm| fraction(e, b, imm);
    Reduce: |e, a, b, imm| reduce(e, b, imm);
    Range: |e, a, b, imm| range(e, a, b, imm);
}

fn exact(number: Number) -> Rounded {
    Rounded {
        number,
        flags: 0,
        up: false,
    }
}

fn signed(v: i64) -> Number {
    from_integer(v < 0, v.unsigned_abs() as u128)
}

/// The exponent of the leading one.
fn lead(exponent: i32, significand: u128) -> i32 {
    exponent + 127 - significand.leading_zeros() as i32
}

/// VGETEXP.
fn exponent<T: Float>(e: &mut Env, v: T) -> T {
    let (n, tiny) = e.unpack(v);
    if let Some(nan) = e.nan(&[n]) {
        return nan;
    }
    e.denormal(tiny);
    let r = match n {
        Number::Finite {
            exponent,
            significand,
            ..
        } => signed(lead(exponent, significand) as i64),
        Number::Zero { .. } => Number::Infinite { negative: true },
        _ => Number::Infinite { negative: false },
    };
    T::of(r.pack(T::FORMAT))
}

/// VGETMANT. The constant's low two bits say where the result lies, the next two what its sign is.
fn significand<T: Float>(e: &mut Env, v: T, imm: u8) -> T {
    let (n, tiny) = e.unpack(v);
    if let Some(nan) = e.nan(&[n]) {
        return nan;
    }
    let negative = n.negative() && imm & 4 == 0;
    let (exponent, s) = match n {
        Number::Zero { .. } => (0, 1),
        _ if n.negative() && imm & 8 != 0 => {
            e.flags |= IE;
            return T::of(INDEFINITE.pack(T::FORMAT));
        }
        Number::Finite {
            exponent,
            significand,
            ..
        } => (exponent, significand),
        _ => (0, 1),
    };
    e.denormal(tiny);
    let whole = lead(exponent, s);
    let to = match (imm & 3, n) {
        (_, Number::Zero { .. } | Number::Infinite { .. }) | (0, _) => 0,
        (1, _) => -(whole & 1),
        (2, _) => -1,
        // From three quarters on: halves and more go below one.
        _ => -((s << s.leading_zeros() >> 126 & 1) as i32),
    };
    let r = Number::Finite {
        negative,
        exponent: exponent - whole + to,
        significand: s,
    };
    T::of(r.pack(T::FORMAT))
}

/// No exponents differ by more.
const FAR: i32 = 1 << 14;

/// VSCALEF: the first number times two to the power of the other one, which is rounded down.
fn scale<T: Float>(e: &mut Env, a: T, b: T) -> T {
    let ((a, tiny), (b, _)) = (e.unpack(a), e.unpack(b));
    let quiet = a.is_nan() && !a.is_signaling();
    match b {
        // As if the NaN were a number that nothing changes.
        Number::Infinite { negative } if quiet => {
            let r = match negative {
                true => Number::Zero { negative: false },
                false => b,
            };
            return T::of(r.pack(T::FORMAT));
        }
        _ => {}
    }
    if let Some(nan) = e.nan(&[a, b]) {
        return nan;
    }
    let negative = a.negative();
    let r = match (a, b) {
        (Number::Zero { .. }, Number::Infinite { negative: false })
        | (Number::Infinite { .. }, Number::Infinite { negative: true }) => {
            e.flags |= IE;
            return T::of(INDEFINITE.pack(T::FORMAT));
        }
        (_, Number::Infinite { negative: false }) => Number::Infinite { negative },
        (_, Number::Infinite { negative: true }) => Number::Zero { negative },
        _ => a.scaled(soft::to_exponent(b, Round::Down, FAR)),
    };
    e.denormal(tiny);
    e.pack(exact(r))
}

/// Where a constant says how to round: the mode, the fraction's bits, and whether inexact results are not noted.
fn rounding(e: &Env, imm: u8) -> (Round, i32, bool) {
    let mode = match imm & 4 {
        0 => Round::of(imm as u32),
        _ => e.mode,
    };
    (mode, (imm >> 4) as i32, imm & 8 != 0)
}

/// VRNDSCALE: rounded to so many bits of the fraction.
fn fraction<T: Float>(e: &mut Env, v: T, imm: u8) -> T {
    let (n, _) = e.unpack(v);
    if let Some(nan) = e.nan(&[n]) {
        return nan;
    }
    let (mode, bits, silent) = rounding(e, imm);
    let r = integral(n.scaled(bits), mode);
    if !silent {
        e.flags |= r.flags;
    }
    T::of(r.number.scaled(-bits).pack(T::FORMAT))
}

/// VREDUCE: what that leaves.
fn reduce<T: Float>(e: &mut Env, v: T, imm: u8) -> T {
    let (n, _) = e.unpack(v);
    if let Some(nan) = e.nan(&[n]) {
        return nan;
    }
    if let Number::Infinite { .. } = n {
        return T::default();
    }
    let (mode, bits, silent) = rounding(e, imm);
    let whole = integral(n.scaled(bits), mode).number.scaled(-bits);
    let rest = soft::add(n, whole.with_sign(!whole.negative()), mode);
    let r = soft::round(rest.number, T::FORMAT, mode, false);
    if !silent {
        e.flags |= r.flags & PE;
    }
    T::of(r.number.pack(T::FORMAT))
}

/// VRANGE: the lesser or the greater, of the numbers or of their magnitudes, and with a sign that the constant says.
fn range<T: Float>(e: &mut Env, a: T, b: T, imm: u8) -> T {
    let ((x, xt), (y, yt)) = (e.unpack(a), e.unpack(b));
    if let Some(nan) = [x, y].iter().find(|n| n.is_signaling()) {
        e.flags |= IE;
        return T::of(nan.quiet().pack(T::FORMAT));
    }
    let r = match (x.is_nan(), y.is_nan()) {
        (true, false) => y,
        (_, true) => x,
        _ => {
            e.denormal(xt || yt);
            picked(x, y, imm)
        }
    };
    let r = match imm >> 2 & 3 {
        0 => r.with_sign(x.negative()),
        2 => r.with_sign(false),
        3 => r.with_sign(true),
        _ => r,
    };
    T::of(r.pack(T::FORMAT))
}

fn picked(x: Number, y: Number, imm: u8) -> Number {
    let by_sign = || y.negative().cmp(&x.negative());
    let plain = || {
        let found = soft::compare(x, y).unwrap_or(Ordering::Equal);
        found.then_with(by_sign)
    };
    let (a, b) = (x.with_sign(false), y.with_sign(false));
    let order = match imm & 2 {
        0 => plain(),
        _ => soft::compare(a, b)
            .unwrap_or(Ordering::Equal)
            .then_with(plain),
    };
    match (imm & 1, order) {
        (0, Ordering::Greater) | (1, Ordering::Less) => y,
        _ => x,
    }
}

/// VFIXUPIMM: what a table of four bits for each kind of number says.
fn fix<T: Float>(e: &mut Env, old: T, v: T, table: T, imm: u8) -> T {
    let (n, _) = e.unpack(v);
    let one = signed(1);
    let kind = match n {
        _ if n.is_signaling() => 1,
        Number::Nan { .. } => 0,
        Number::Zero { .. } => 2,
        Number::Infinite { negative: true } => 4,
        Number::Infinite { negative: false } => 5,
        _ if soft::compare(n, one) == Some(Ordering::Equal) => 3,
        _ if n.negative() => 6,
        _ => 7,
    };
    // Kinds with bits of the constant: which exceptions they raise.
    let raised: [(u8, u32); 8] = [
        (0, 0),
        (0x10, IE),
        (2, IE),
        (8, IE),
        (0x20, IE),
        (0x80, IE),
        (0x40, IE),
        (0, 0),
    ];
    let (bit, flag) = raised[kind as usize & 7];
    if imm & bit != 0 {
        e.flags |= flag;
    }
    if kind == 2 && imm & 1 != 0 || kind == 3 && imm & 4 != 0 {
        e.flags |= ZE;
    }
    let infinite = |negative| Number::Infinite { negative };
    let largest = |negative| Number::Finite {
        negative,
        exponent: T::FORMAT.most + 1 - T::FORMAT.precision as i32,
        significand: (1 << T::FORMAT.precision) - 1,
    };
    let r = match table.wide() >> (4 * kind) & 15 {
        0 => return old,
        1 => n,
        2 => return quiet(n, v),
        3 => INDEFINITE,
        4 => infinite(true),
        5 => infinite(false),
        6 => infinite(n.negative()),
        7 => Number::Zero { negative: true },
        8 => Number::Zero { negative: false },
        9 => signed(-1),
        10 => one,
        11 => one.scaled(-1),
        12 => signed(90),
        13 => {
            return T::of(if T::BITS == 32 {
                HALF_PI_32
            } else {
                HALF_PI_64
            });
        }
        14 => largest(false),
        _ => largest(true),
    };
    T::of(r.pack(T::FORMAT))
}

const HALF_PI_32: u64 = 0x3fc9_0fdb;
const HALF_PI_64: u64 = 0x3ff9_21fb_5444_2d18;

/// With all bits of the exponent, and the highest one of the fraction.
fn quiet<T: Float>(n: Number, v: T) -> T {
    let v = match n {
        Number::Zero { negative } => T::of(Number::Zero { negative }.pack(T::FORMAT)),
        _ => v,
    };
    let ones = T::of((T::TOP as u64) << (T::FORMAT.precision - 1));
    v | ones | T::of(1 << (T::FORMAT.precision - 2))
}

fn fix_packed<M: Memory, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (old, v, table) = (
        c.zmm[(o.a & 31) as usize],
        c.zmm[(o.b & 31) as usize],
        last(c, m, o),
    );
    let mut e = Env::of(c, o);
    let mut r = [[0; 16]; 4];
    let n = (o.lanes as usize).min(4) * count::<T>();
    for i in (0..n).filter(|i| selected(c, o, *i)) {
        let fixed = fix::<T>(
            &mut e,
            element(&old, i),
            element(&v, i),
            element(&table, i),
            o.imm as u8,
        );
        set_element(&mut r, i, fixed);
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store(c, o, &r);
    Flow::Next
}

fn fix_scalar<M: Memory, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (old, v, table) = (
        c.zmm[(o.a & 31) as usize][0],
        c.zmm[(o.b & 31) as usize][0],
        last(c, m, o)[0],
    );
    let mut e = Env::of(c, o);
    let mut r = T::default();
    if selected(c, o, 0) {
        let [old, v, table] = [&old, &v, &table].map(|l| T::get(l, 0));
        r = fix(&mut e, old, v, table, o.imm as u8);
    }
    if !e.finish(c) {
        return Flow::Fault;
    }
    store_low(c, o, r, v);
    Flow::Next
}

/// Whether a number is of one of the kinds that a constant's bits name.
fn is_of<T: Float>(e: &Env, v: T, imm: u8) -> bool {
    let (n, tiny) = e.unpack(v);
    let kinds = match n {
        _ if n.is_signaling() => 0x80,
        Number::Nan { .. } => 1,
        Number::Zero { negative: false } => 2,
        Number::Zero { negative: true } => 4,
        Number::Infinite { negative: false } => 8,
        Number::Infinite { negative: true } => 0x10,
        Number::Finite { negative, .. } => (tiny as u8) << 5 | (negative as u8) << 6,
    };
    kinds & imm != 0
}

/// VFPCLASS, of `d` elements.
fn classes<M: Memory, T: Float>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = last(c, m, o);
    let e = Env::of(c, o);
    let chosen = (0..o.d as usize).filter(|i| selected(c, o, *i));
    let bits = chosen
        .map(|i| (is_of::<T>(&e, element(&v, i), o.imm as u8) as u64) << i)
        .sum();
    c.k[(o.a & 7) as usize] = bits;
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let lanes = source_lanes(i, o.lanes);
    Some(match i.mnemonic() {
        Vgetexpps | Vgetexppd | Vgetexpss | Vgetexpsd => of::<M, Exponent>(i),
        Vgetmantps | Vgetmantpd | Vgetmantss | Vgetmantsd => of::<M, Significand>(i),
        Vscalefps | Vscalefpd | Vscalefss | Vscalefsd => of::<M, Scale>(i),
        Vrndscaleps | Vrndscalepd | Vrndscaless | Vrndscalesd => of::<M, Fraction>(i),
        Vreduceps | Vreducepd | Vreducess | Vreducesd => of::<M, Reduce>(i),
        Vrangeps | Vrangepd | Vrangess | Vrangesd => of::<M, Range>(i),
        Vfixupimmps => fix_packed::<M, u32>,
        Vfixupimmpd => fix_packed::<M, u64>,
        Vfixupimmss => fix_scalar::<M, u32>,
        Vfixupimmsd => fix_scalar::<M, u64>,
        Vfpclassps | Vfpclasspd | Vfpclassss | Vfpclasssd => {
            o.d = match i.mnemonic() {
                Vfpclassps => 4 * lanes,
                Vfpclasspd => 2 * lanes,
                _ => 1,
            };
            match i.mnemonic() {
                Vfpclassps | Vfpclassss => classes::<M, u32>,
                _ => classes::<M, u64>,
            }
        }
        _ => return Option::None,
    })
}
