//! Whole numbers, and comparisons.

use super::flag::PE;
use super::{Number, Round, Rounded, add, exactly, round_off};
use Number::*;

/// Rounds to an integer, which keeps its sign if it is zero.
pub fn integral(n: Number, mode: Round) -> Rounded {
    let Finite {
        negative,
        exponent,
        significand,
    } = n
    else {
        return exactly(n, 0);
    };
    if exponent >= 0 {
        return exactly(n, 0);
    }
    let (s, inexact, up) = round_off(significand, -exponent, negative, mode);
    let number = match s {
        0 => Zero { negative },
        s => Finite {
            negative,
            exponent: 0,
            significand: s,
        },
    };
    Rounded {
        number,
        flags: if inexact { PE } else { 0 },
        up,
    }
}

/// As a signed integer of so many bits, or an unsigned one. `None` if it does not fit.
pub fn to_integer(n: Number, mode: Round, bits: u32, signed: bool) -> Option<(u64, u32, bool)> {
    let r = integral(n, mode);
    let (negative, v) = match r.number {
        Zero { .. } => (false, 0),
        Finite {
            negative,
            exponent,
            significand,
        } => {
            if exponent > 64 || exponent + 128 - significand.leading_zeros() as i32 > 65 {
                return None;
            }
            (negative, significand << exponent)
        }
        _ => return None,
    };
    let limit = 1u128 << (bits - signed as u32);
    let fits = match (signed, negative) {
        (true, true) => v <= limit,
        (_, false) => v < limit,
        (false, true) => v == 0,
    };
    let v = v as u64;
    fits.then_some((if negative { v.wrapping_neg() } else { v }, r.flags, r.up))
}

/// The whole part of a number as a change of an exponent: at most `most`, whatever its sign.
pub fn to_exponent(n: Number, mode: Round, most: i32) -> i32 {
    match to_integer(n, mode, 32, true) {
        Some((v, ..)) => (v as u32 as i32).clamp(-most, most),
        None if n.negative() => -most,
        None => most,
    }
}

/// From an integer.
pub fn from_integer(negative: bool, magnitude: u128) -> Number {
    match magnitude {
        0 => Zero { negative: false },
        significand => Finite {
            negative,
            exponent: 0,
            significand,
        },
    }
}

/// How two numbers compare. `None`: one is a NaN.
pub fn compare(a: Number, b: Number) -> Option<std::cmp::Ordering> {
    use std::cmp::Ordering::*;
    if a.is_nan() || b.is_nan() {
        return None;
    }
    let d = match (a, b) {
        (Infinite { negative: x }, Infinite { negative: y }) if x == y => return Some(Equal),
        _ => add(a, b.with_sign(!b.negative()), Round::Nearest).number,
    };
    Some(match d {
        Zero { .. } => Equal,
        d if d.negative() => Less,
        _ => Greater,
    })
}
