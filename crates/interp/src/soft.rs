//! Floating-point arithmetic by integers: exact, with every rounding mode and all exception flags, on any host.
//!
//! Why not a library: of those for Rust none has precision control of the x87, tininess as x86 processors detect it, and
//! the flag of denormal operands.

mod whole;

pub use whole::{compare, from_integer, integral, to_exponent, to_integer};

/// The exception flags, with the bits of MXCSR and of the x87's status word.
pub mod flag {
    /// Invalid operation.
    pub const IE: u32 = 1;
    /// Denormal operand.
    pub const DE: u32 = 2;
    /// Division by zero.
    pub const ZE: u32 = 4;
    /// Overflow.
    pub const OE: u32 = 8;
    /// Underflow.
    pub const UE: u32 = 0x10;
    /// Inexact result.
    pub const PE: u32 = 0x20;
}
use flag::*;

/// How results are rounded, with the numbers of MXCSR and of the x87's control word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    Nearest,
    Down,
    Up,
    Zero,
}

impl Round {
    pub fn of(bits: u32) -> Round {
        [Round::Nearest, Round::Down, Round::Up, Round::Zero][bits as usize & 3]
    }
}

/// A format: bits of the significand with the leading one, and the exponents of normal numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    pub precision: u32,
    pub least: i32,
    pub most: i32,
}

pub const F16: Format = format(11, 15);
pub const F32: Format = format(24, 127);
pub const F64: Format = format(53, 1023);
pub const F80: Format = format(64, 16383);

const fn format(precision: u32, most: i32) -> Format {
    Format {
        precision,
        least: 1 - most,
        most,
    }
}

/// A number of any format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    Zero {
        negative: bool,
    },
    /// `significand * 2^exponent`, with any nonzero significand.
    Finite {
        negative: bool,
        exponent: i32,
        significand: u128,
    },
    Infinite {
        negative: bool,
    },
    /// With the significand below the leading one, at the top of 63 bits: the highest one says that it is quiet.
    Nan {
        negative: bool,
        payload: u64,
    },
}
use Number::*;

/// The bit of a payload that makes a NaN quiet.
pub const QUIET: u64 = 1 << 62;
/// What invalid operations give.
pub const INDEFINITE: Number = Nan {
    negative: true,
    payload: QUIET,
};

impl Number {
    pub fn negative(self) -> bool {
        match self {
            Zero { negative }
            | Finite { negative, .. }
            | Infinite { negative }
            | Nan { negative, .. } => negative,
        }
    }

    pub fn is_nan(self) -> bool {
        matches!(self, Nan { .. })
    }

    /// Whether it lies below the normal numbers of this format.
    pub fn is_denormal(self, f: Format) -> bool {
        match self {
            Finite {
                exponent,
                significand,
                ..
            } => exponent + 127 - (significand.leading_zeros() as i32) < f.least,
            _ => false,
        }
    }

    pub fn is_signaling(self) -> bool {
        matches!(self, Nan { payload, .. } if payload & QUIET == 0)
    }

    pub fn quiet(self) -> Number {
        match self {
            Nan { negative, payload } => Nan {
                negative,
                payload: payload | QUIET,
            },
            n => n,
        }
    }

    pub fn with_sign(self, sign: bool) -> Number {
        match self {
            Zero { .. } => Zero { negative: sign },
            Finite {
                exponent,
                significand,
                ..
            } => Finite {
                negative: sign,
                exponent,
                significand,
            },
            Infinite { .. } => Infinite { negative: sign },
            Nan { payload, .. } => Nan {
                negative: sign,
                payload,
            },
        }
    }

    /// Times two to the power of `by`.
    pub fn scaled(self, by: i32) -> Number {
        match self {
            Finite {
                negative,
                exponent,
                significand,
            } => Finite {
                negative,
                exponent: exponent + by,
                significand,
            },
            n => n,
        }
    }

    /// Reads the bits of a format with a hidden leading one, and says whether it is denormal.
    pub fn unpack(bits: u64, f: Format) -> (Number, bool) {
        let fraction_bits = f.precision - 1;
        let fraction = bits & ((1 << fraction_bits) - 1);
        let field = (bits >> fraction_bits) as i32 & (2 * f.most + 1);
        let negative = bits >> (fraction_bits + (2 * f.most + 1).count_ones()) & 1 != 0;
        let n = match (field, fraction) {
            (0, 0) => Zero { negative },
            (0, _) => Finite {
                negative,
                exponent: f.least - fraction_bits as i32,
                significand: fraction as u128,
            },
            (e, 0) if e == 2 * f.most + 1 => Infinite { negative },
            (e, _) if e == 2 * f.most + 1 => Nan {
                negative,
                payload: fraction << (63 - fraction_bits),
            },
            (e, _) => Finite {
                negative,
                exponent: e - f.most - fraction_bits as i32,
                significand: (fraction | 1 << fraction_bits) as u128,
            },
        };
        (n, field == 0 && fraction != 0)
    }

    /// The bits of a rounded number in a format with a hidden leading one.
    pub fn pack(self, f: Format) -> u64 {
        let fraction_bits = f.precision - 1;
        let top = (2 * f.most + 1) as u64;
        let (field, fraction) = match self {
            Zero { .. } => (0, 0),
            Infinite { .. } => (top, 0),
            Nan { payload, .. } => (top, payload >> (63 - fraction_bits)),
            Finite {
                exponent,
                significand,
                ..
            } => {
                let (s, field) = placed(exponent, significand, f);
                (field, s & ((1 << fraction_bits) - 1))
            }
        };
        let sign = (self.negative() as u64) << (fraction_bits + (top as u32).count_ones());
        sign | field << fraction_bits | fraction
    }

    /// Reads the 80 bits of the x87's format. Unsupported encodings are `None`. The flag: a denormal.
    pub fn unpack80(significand: u64, head: u16) -> Option<(Number, bool)> {
        let (negative, field) = (head >> 15 != 0, (head & 0x7fff) as i32);
        let leading = significand >> 63 != 0;
        Some(match field {
            0 if significand == 0 => (Zero { negative }, false),
            0x7fff if !leading => return None,
            0x7fff if significand << 1 == 0 => (Infinite { negative }, false),
            0x7fff => {
                let payload = significand & (u64::MAX >> 1);
                (Nan { negative, payload }, false)
            }
            1.. if !leading => return None,
            _ => (
                Finite {
                    negative,
                    exponent: field.max(1) - F80.most - 63,
                    significand: significand as u128,
                },
                field == 0,
            ),
        })
    }

    /// The 80 bits of a rounded number: significand, and sign with exponent.
    pub fn pack80(self) -> (u64, u16) {
        let (s, field) = match self {
            Zero { .. } => (0, 0),
            Infinite { .. } => (1 << 63, 0x7fff),
            Nan { payload, .. } => (1 << 63 | payload, 0x7fff),
            Finite {
                exponent,
                significand,
                ..
            } => {
                let (s, field) = placed(exponent, significand, F80);
                (s, field as u16)
            }
        };
        (s, field | (self.negative() as u16) << 15)
    }
}

/// A rounded number as a format has it: the significand with its leading one, and the exponent's field.
fn placed(exponent: i32, significand: u128, f: Format) -> (u64, u64) {
    let e = exponent + 127 - significand.leading_zeros() as i32;
    let shift = exponent - (e.max(f.least) + 1 - f.precision as i32);
    let s = match shift >= 0 {
        true => significand << shift,
        false => significand >> -shift,
    };
    let field = if e < f.least { 0 } else { e + f.most };
    (s as u64, field as u64)
}

/// A rounded result.
#[derive(Clone, Copy, Debug)]
pub struct Rounded {
    pub number: Number,
    pub flags: u32,
    /// Its magnitude is larger than that of the exact result.
    pub up: bool,
}

fn exactly(number: Number, flags: u32) -> Rounded {
    Rounded {
        number,
        flags,
        up: false,
    }
}

/// Rounds away `drop` bits of a significand. Returns it, whether it is inexact, and whether it grew.
fn round_off(s: u128, drop: i32, negative: bool, mode: Round) -> (u128, bool, bool) {
    if drop <= 0 {
        return (s << -drop, false, false);
    }
    let (kept, rest, half) = match drop {
        1..=127 => (s >> drop, s & ((1 << drop) - 1), 1u128 << (drop - 1)),
        // Less than half of the last place.
        _ => (0, 1, 2),
    };
    let up = match mode {
        Round::Nearest => rest > half || rest == half && kept & 1 != 0,
        Round::Down => negative && rest != 0,
        Round::Up => !negative && rest != 0,
        Round::Zero => false,
    };
    (kept + up as u128, rest != 0, up)
}

/// Rounds to a format. `flushes`: a tiny result becomes zero.
pub fn round(n: Number, f: Format, mode: Round, flushes: bool) -> Rounded {
    let Finite {
        negative,
        exponent,
        significand,
    } = n
    else {
        return exactly(n, 0);
    };
    let lead = 127 - significand.leading_zeros() as i32;
    let e = exponent + lead;
    let drop = lead + 1 - f.precision as i32;
    let tiny = e < f.least && {
        // Tiny is what is below the normal numbers when it is rounded as if exponents had no limit.
        let (s, _, _) = round_off(significand, drop.max(0), negative, mode);
        !(e == f.least - 1 && drop > 0 && s >> f.precision != 0)
    };
    if tiny && flushes {
        return exactly(Zero { negative }, UE | PE);
    }
    let drop = drop + (f.least - e).max(0);
    let (s, inexact, up) = match drop > 0 {
        true => round_off(significand, drop, negative, mode),
        false => (significand, false, false),
    };
    let mut flags = if inexact { PE } else { 0 };
    if tiny && inexact {
        flags |= UE;
    }
    if s == 0 {
        let number = Zero { negative };
        return Rounded { number, flags, up };
    }
    let exponent = exponent + drop.max(0);
    if exponent + 127 - s.leading_zeros() as i32 > f.most {
        let away = match mode {
            Round::Nearest => true,
            Round::Down => negative,
            Round::Up => !negative,
            Round::Zero => false,
        };
        let number = match away {
            true => Infinite { negative },
            false => Finite {
                negative,
                exponent: f.most + 1 - f.precision as i32,
                significand: (1 << f.precision) - 1,
            },
        };
        return Rounded {
            number,
            flags: OE | PE,
            up: away,
        };
    }
    Rounded {
        number: Finite {
            negative,
            exponent,
            significand: s,
        },
        flags,
        up,
    }
}

/// The significand with its highest bit at bit 125, and its exponent.
fn high(s: u128, exponent: i32) -> (u128, i32) {
    let shift = s.leading_zeros() as i32 - 2;
    match shift >= 0 {
        true => (s << shift, exponent - shift),
        false => (shift_sticky(s, -shift), exponent - shift),
    }
}

/// Shifts right. The last bit says whether anything was lost.
fn shift_sticky(s: u128, n: i32) -> u128 {
    match n {
        0 => s,
        1..=127 => s >> n | (s << (128 - n) != 0) as u128,
        _ => (s != 0) as u128,
    }
}

/// Exact sum, or one that rounds alike. No operand is a NaN.
pub fn add(a: Number, b: Number, mode: Round) -> Rounded {
    let n = match (a, b) {
        (Infinite { negative }, Infinite { negative: other }) if negative != other => {
            return exactly(INDEFINITE, IE);
        }
        (Infinite { .. }, _) => a,
        (_, Infinite { .. }) => b,
        (Zero { negative }, Zero { negative: other }) => Zero {
            negative: if negative == other {
                negative
            } else {
                mode == Round::Down
            },
        },
        (Zero { .. }, _) => b,
        (_, Zero { .. }) => a,
        (
            Finite {
                negative: an,
                exponent: ae,
                significand: am,
            },
            Finite {
                negative: bn,
                exponent: be,
                significand: bm,
            },
        ) => {
            let ((am, ae), (bm, be)) = (high(am, ae), high(bm, be));
            let (am, bm, exponent) = match ae >= be {
                true => (am, shift_sticky(bm, ae - be), ae),
                false => (shift_sticky(am, be - ae), bm, be),
            };
            let (negative, significand) = match an == bn {
                true => (an, am + bm),
                false if am >= bm => (an, am - bm),
                false => (bn, bm - am),
            };
            match significand {
                0 => Zero {
                    negative: mode == Round::Down,
                },
                _ => Finite {
                    negative,
                    exponent,
                    significand,
                },
            }
        }
        _ => a,
    };
    exactly(n, 0)
}

/// Exact product. No operand is a NaN, significands have at most 64 bits.
pub fn mul(a: Number, b: Number) -> Rounded {
    let negative = a.negative() != b.negative();
    exactly(
        match (a, b) {
            (Infinite { .. }, Zero { .. }) | (Zero { .. }, Infinite { .. }) => {
                return exactly(INDEFINITE, IE);
            }
            (Infinite { .. }, _) | (_, Infinite { .. }) => Infinite { negative },
            (
                Finite {
                    exponent: ae,
                    significand: am,
                    ..
                },
                Finite {
                    exponent: be,
                    significand: bm,
                    ..
                },
            ) => Finite {
                negative,
                exponent: ae + be,
                significand: am * bm,
            },
            _ => Zero { negative },
        },
        0,
    )
}

/// A quotient that rounds as the exact one. No operand is a NaN, significands have at most 64 bits.
pub fn div(a: Number, b: Number) -> Rounded {
    let negative = a.negative() != b.negative();
    match (a, b) {
        (Infinite { .. }, Infinite { .. }) | (Zero { .. }, Zero { .. }) => exactly(INDEFINITE, IE),
        (Infinite { .. }, _) => exactly(Infinite { negative }, 0),
        (_, Zero { .. }) => exactly(Infinite { negative }, ZE),
        (
            Finite {
                exponent: ae,
                significand: am,
                ..
            },
            Finite {
                exponent: be,
                significand: bm,
                ..
            },
        ) => {
            // Both with their highest bit at bit 63.
            let (ashift, bshift) = (am.leading_zeros() - 64, bm.leading_zeros() - 64);
            let (am, bm) = (am << ashift, bm << bshift);
            let (q, r) = ((am << 64) / bm, (am << 64) % bm);
            let (low, r) = ((r << 32) / bm, (r << 32) % bm);
            let significand = q << 32 | low;
            let exponent = ae - ashift as i32 - (be - bshift as i32) - 96;
            exactly(
                Finite {
                    negative,
                    exponent,
                    significand: significand << 1 | (r != 0) as u128,
                },
                0,
            )
            .lower()
        }
        _ => exactly(Zero { negative }, 0),
    }
}

impl Rounded {
    /// The exponent of a significand that got one bit more.
    fn lower(mut self) -> Rounded {
        if let Finite { exponent, .. } = &mut self.number {
            *exponent -= 1;
        }
        self
    }
}

/// A square root that rounds as the exact one. The operand is no NaN, its significand has at most 64 bits.
pub fn sqrt(a: Number) -> Rounded {
    match a {
        Finite { negative: true, .. } | Infinite { negative: true } => exactly(INDEFINITE, IE),
        Finite {
            exponent,
            significand,
            ..
        } => {
            // An even exponent, and the highest bit at bit 63 or 64.
            let shift = significand.leading_zeros() as i32 - 64;
            let (mut s, mut e) = (significand << shift, exponent - shift);
            if e & 1 != 0 {
                (s, e) = (s << 1, e - 1);
            }
            // Bit by bit, from 66 bits of the operand, and then zeros.
            let (mut root, mut rest) = (0u128, 0u128);
            for i in 0..33 + 36 {
                let two = match i {
                    0..33 => s >> (64 - 2 * i) & 3,
                    _ => 0,
                };
                rest = rest << 2 | two;
                let trial = root << 2 | 1;
                root <<= 1;
                if rest >= trial {
                    rest -= trial;
                    root |= 1;
                }
            }
            exactly(
                Finite {
                    negative: false,
                    exponent: e / 2 - 36 - 1,
                    significand: root << 1 | (rest != 0) as u128,
                },
                0,
            )
        }
        n => exactly(n, 0),
    }
}
