//! Remainders, scaling, exponents, and packed decimals: what is neither arithmetic nor transcendental. All of it is
//! exact, or rounded once.

use super::form::{denormal, end};
use crate::Memory;
use crate::core::Core;
use crate::core::x87::{C0, C1, C2, C3, F80Bits, Stop, X87};
use crate::op::{Flow, Op, Run};
use crate::soft::flag::{IE, ZE};
use crate::soft::{F80, INDEFINITE, Number, Round, Rounded, from_integer, integral, to_exponent};
use iced_x86::{Instruction, Mnemonic};
use std::cmp::Ordering;

/// A significand with its highest bit at bit 63, and its exponent.
fn normalized(significand: u128, exponent: i32) -> (u128, i32) {
    let shift = significand.leading_zeros() as i32 - 64;
    (significand << shift, exponent - shift)
}

/// A remainder: the magnitude's significand and exponent, whether its sign is the other one, and the quotient's low bits.
/// `None` as the quotient: it is a partial one.
struct Remainder {
    significand: u128,
    exponent: i32,
    flips: bool,
    quotient: Option<u64>,
}

/// FPREM, and FPREM1 if `nearest`, of magnitudes.
fn remainder(a: (u128, i32), b: (u128, i32), nearest: bool) -> Remainder {
    let ((am, ae), (bm, be)) = (a, b);
    let difference = ae - be;
    if difference < -1 || difference == -1 && !nearest {
        return Remainder {
            significand: am,
            exponent: ae,
            flips: false,
            quotient: Some(0),
        };
    }
    if difference >= 64 {
        // As many bits of the quotient as makers have agreed on.
        let bits = 32 + difference % 32;
        return Remainder {
            significand: (am << bits) % bm,
            exponent: be + difference - bits,
            flips: false,
            quotient: None,
        };
    }
    // In units of the lesser exponent.
    let (n, d) = match difference {
        -1 => (am, bm << 1),
        _ => (am << difference, bm),
    };
    let (mut q, mut r) = (n / d, n % d);
    let mut flips = false;
    let above = r > d - r || r == d - r && q & 1 != 0;
    if nearest && above {
        (q, r, flips) = (q + 1, d - r, true);
    }
    Remainder {
        significand: r,
        exponent: be.min(ae),
        flips,
        quotient: Some(q as u64),
    }
}

/// FPREM and FPREM1 (`c` is 1).
fn fprem<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let done = partial(x, o.c != 0).map(|r| x.set(0, r));
    end(c, done)
}

fn partial(x: &mut X87, nearest: bool) -> Result<F80Bits, Stop> {
    x.status &= !C2;
    let ((a, at), (b, bt)) = match two(x)? {
        Two::Numbers(a, b) => (a, b),
        Two::Result(r) => return Ok(r),
    };
    let (r, quotient) = match (a, b) {
        (Number::Infinite { .. }, _) | (_, Number::Zero { .. }) => {
            x.set_c1(false);
            x.raise(IE)?;
            return Ok(INDEFINITE.pack80());
        }
        (
            Number::Finite {
                negative,
                exponent,
                significand,
            },
            Number::Finite {
                exponent: be,
                significand: bm,
                ..
            },
        ) => {
            let r = remainder(
                normalized(significand, exponent),
                normalized(bm, be),
                nearest,
            );
            let number = match r.significand {
                0 => Number::Zero { negative },
                significand => Number::Finite {
                    negative: negative != r.flips,
                    exponent: r.exponent,
                    significand,
                },
            };
            (number, r.quotient)
        }
        _ => (a, Some(0)),
    };
    x.raise(denormal(at || bt))?;
    let r = x.settle(r, F80)?;
    let bit = |n: u32, c: u16| match quotient {
        Some(q) if q >> n & 1 != 0 => c,
        _ => 0,
    };
    let partial = if quotient.is_none() { C2 } else { 0 };
    x.set_conditions(bit(0, C1) | bit(1, C3) | bit(2, C0) | partial);
    Ok(r)
}

/// Two operands that are numbers, or what the result is if they are not.
enum Two {
    Numbers((Number, bool), (Number, bool)),
    Result(F80Bits),
}

/// st(0) and st(1).
fn two(x: &mut X87) -> Result<Two, Stop> {
    if !x.is_full(0) || !x.is_full(1) {
        return Ok(Two::Result(x.stack_fault(false)?));
    }
    let (a, b) = (x.number(0), x.number(1));
    match (a, b) {
        (Some(a), Some(b)) if !a.0.is_nan() && !b.0.is_nan() => Ok(Two::Numbers(a, b)),
        _ => Ok(Two::Result(x.nan(a.map(|a| a.0), b.map(|b| b.0))?)),
    }
}

/// No exponents differ by more.
const FAR: i32 = 1 << 16;

/// FSCALE: st(0) times two to the power of st(1), which is truncated.
fn fscale<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let done = scale(x).map(|r| x.set(0, r));
    end(c, done)
}

fn scale(x: &mut X87) -> Result<F80Bits, Stop> {
    let ((a, at), (b, bt)) = match two(x)? {
        Two::Numbers(a, b) => (a, b),
        Two::Result(r) => return Ok(r),
    };
    let negative = a.negative();
    x.set_c1(false);
    let r = match (a, b) {
        (Number::Zero { .. }, Number::Infinite { negative: false })
        | (Number::Infinite { .. }, Number::Infinite { negative: true }) => {
            x.raise(IE)?;
            return Ok(INDEFINITE.pack80());
        }
        (_, Number::Infinite { negative: false }) => Number::Infinite { negative },
        (_, Number::Infinite { negative: true }) => Number::Zero { negative },
        _ => a.scaled(to_exponent(b, Round::Zero, FAR)),
    };
    x.raise(denormal(at || bt))?;
    x.settle(r, F80)
}

/// FXTRACT: st(0) becomes its exponent, and its significand is pushed.
fn fxtract<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let done = parts(x).map(|(exponent, significand)| {
        x.set(0, exponent);
        x.top = x.top.wrapping_sub(1) & 7;
        x.set(0, significand);
    });
    end(c, done)
}

fn parts(x: &mut X87) -> Result<(F80Bits, F80Bits), Stop> {
    let overflow = x.is_full(0) && x.is_full(7);
    if overflow || !x.is_full(0) {
        let r = x.stack_fault(overflow)?;
        return Ok((r, r));
    }
    x.set_c1(false);
    let (a, tiny) = match x.number(0) {
        Some(a) if !a.0.is_nan() => a,
        a => {
            let a = a.map(|a| a.0);
            let r = x.nan(a, a)?;
            return Ok((r, r));
        }
    };
    let (exponent, significand) = match a {
        Number::Finite {
            negative,
            exponent,
            significand,
        } => {
            let (m, e) = normalized(significand, exponent + 63);
            let e = from_integer(e < 0, e.unsigned_abs() as u128);
            let significand = Number::Finite {
                negative,
                exponent: -63,
                significand: m,
            };
            (e, significand)
        }
        Number::Zero { .. } => {
            x.raise(ZE)?;
            (Number::Infinite { negative: true }, a)
        }
        _ => (Number::Infinite { negative: false }, a),
    };
    x.raise(denormal(tiny))?;
    Ok((exponent.pack80(), significand.pack80()))
}

/// FBLD: eighteen decimal digits, two in a byte, and a sign.
fn fbld<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let bytes: [u8; 10] = m.load(o.address(c));
    let magnitude = bytes[..9].iter().rev().fold(0u128, |sum, b| {
        sum * 100 + (b >> 4) as u128 * 10 + (b & 15) as u128
    });
    let n = from_integer(false, magnitude).with_sign(bytes[9] >> 7 != 0);
    let done = c.x87.push(n.pack80());
    end(c, done)
}

/// What FBSTP stores for what has no such form.
const NO_DECIMAL: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff];

fn fbstp<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    match decimal(&mut c.x87) {
        Ok(bytes) => {
            m.store(at, bytes);
            c.x87.pop();
            Flow::Next
        }
        Err(stop) => end(c, Err(stop)),
    }
}

/// st(0) as packed decimals.
fn decimal(x: &mut X87) -> Result<[u8; 10], Stop> {
    if !x.is_full(0) {
        x.stack_fault(false)?;
        return Ok(NO_DECIMAL);
    }
    x.set_c1(false);
    let whole = x.number(0).map(|(n, _)| integral(n, x.mode()));
    let (magnitude, r) = match whole {
        Some(
            r @ Rounded {
                number:
                    Number::Finite {
                        exponent,
                        significand,
                        ..
                    },
                ..
            },
        ) if exponent < 64 => (significand << exponent.max(0), r),
        Some(
            r @ Rounded {
                number: Number::Zero { .. },
                ..
            },
        ) => (0, r),
        _ => {
            x.raise(IE)?;
            return Ok(NO_DECIMAL);
        }
    };
    if magnitude.cmp(&10u128.pow(18)) != Ordering::Less {
        x.raise(IE)?;
        return Ok(NO_DECIMAL);
    }
    x.raise(r.flags)?;
    x.set_c1(r.up);
    let mut rest = magnitude as u64;
    let mut bytes = [0; 10];
    for b in &mut bytes[..9] {
        *b = (rest % 10 + 16 * (rest / 10 % 10)) as u8;
        rest /= 100;
    }
    bytes[9] = (r.number.negative() as u8) << 7;
    Ok(bytes)
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    match i.mnemonic() {
        Fprem | Fprem1 => {
            o.c = (i.mnemonic() == Fprem1) as u8;
            Some(fprem)
        }
        Fscale => Some(fscale),
        Fxtract => Some(fxtract),
        Fbld => Some(fbld),
        Fbstp => Some(fbstp),
        _ => Option::None,
    }
}
