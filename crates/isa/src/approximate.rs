//! Approximations of reciprocals, in which makers of processors differ: `rcpps`, `rsqrtps` and their kin.
//!
//! A result follows from sign, exponent and the leading bits of the significand. So a table says all that a processor gives.

mod finer;

use crate::Transcendental;
pub use finer::{Finer, finer};
use iced_x86::Mnemonic;

/// Bits of a significand that decide the result.
const BITS: u32 = 12;
const ENTRIES: usize = 1 << BITS;
/// Bits of a number below these.
const BELOW: u32 = 23 - BITS;
/// The exponent of one half, in front of the leading bits of a significand. Results from one half to one are stored less this.
const HALF: u32 = 126 << BITS;
/// The largest entry: less than two.
const MOST: u32 = (2 << BITS) - 1;

const SIGN: u32 = 1 << 31;
const INFINITE: u32 = 0xff << 23;
const QUIET: u32 = 1 << 22;
const INDEFINITE: u32 = SIGN | INFINITE | QUIET;

/// What a processor gives for numbers from one to two, and for square roots also from two to four.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Approximations {
    /// Of reciprocals; of reciprocals of square roots from one to two; and from two to four.
    tables: [[u16; ENTRIES]; 3],
}

/// Which one of two operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reciprocal {
    /// `rcpps`.
    Number,
    /// `rsqrtps`.
    Root,
}

/// The number of [`Approximations::differences`].
pub const DIFFERENCES: usize = 3 * ENTRIES;

/// The middle of an entry's interval would give this.
fn ideal(table: usize, entry: usize) -> i32 {
    let middle = (2 * ENTRIES + 2 * entry + 1) as u64;
    let scale = 2 * ENTRIES as u64;
    let value = match table {
        0 => (scale * scale + middle / 2) / middle,
        n => (scale.pow(3) / (middle << (n - 1))).isqrt(),
    };
    value as i32 - ENTRIES as i32
}

impl Approximations {
    /// The tables from how far each entry is from what is exact. `None`: no processor is so far away.
    pub fn of(differences: &[i8; DIFFERENCES]) -> Option<Approximations> {
        let mut tables = [[0; ENTRIES]; 3];
        for (n, difference) in differences.iter().enumerate() {
            let (table, entry) = (n / ENTRIES, n % ENTRIES);
            let value = u32::try_from(ideal(table, entry) + *difference as i32).ok()?;
            tables[table][entry] = u16::try_from(value).ok().filter(|_| value <= MOST)?;
        }
        Some(Approximations { tables })
    }

    /// How far each entry is from what is exact. `None`: too far.
    pub fn differences(&self) -> Option<[i8; DIFFERENCES]> {
        let mut out = [0; DIFFERENCES];
        for (n, to) in out.iter_mut().enumerate() {
            let (table, entry) = (n / ENTRIES, n % ENTRIES);
            *to = i8::try_from(self.tables[table][entry] as i32 - ideal(table, entry)).ok()?;
        }
        Some(out)
    }

    /// What the processor gives for a number, both as bits.
    pub fn of_number(&self, what: Reciprocal, x: u32) -> u32 {
        let (sign, exponent, significand) = (x & SIGN, x >> 23 & 0xff, x & 0x7f_ffff);
        let entry = (significand >> BELOW) as usize;
        if exponent == 0xff && significand != 0 {
            return x | QUIET;
        }
        if exponent == 0 {
            // Numbers that are not normal are zero.
            return sign | INFINITE;
        }
        let power = exponent as i32 - 127;
        let (value, power) = match what {
            Reciprocal::Root if sign != 0 => return INDEFINITE,
            _ if exponent == 0xff => return sign,
            Reciprocal::Number => (self.tables[0][entry], power),
            Reciprocal::Root => {
                let odd = (power & 1) as usize;
                (self.tables[1 + odd][entry], power >> 1)
            }
        };
        let near = (value as u32 + HALF) << BELOW;
        match (near >> 23) as i32 - power {
            // Results that are not normal are zero.
            ..=0 => sign,
            exponent => sign | (exponent as u32) << 23 | near & 0x7f_ffff,
        }
    }

    /// What this processor gives. `None`: it is no such processor, or tables do not say all of it.
    #[cfg(target_arch = "x86_64")]
    pub fn here() -> Option<Approximations> {
        let mut tables = [[0; ENTRIES]; 3];
        for (n, table) in tables.iter_mut().enumerate() {
            let (what, exponent) = match n {
                0 => (Reciprocal::Number, 127),
                _ => (Reciprocal::Root, 126 + n as u32),
            };
            for (entry, to) in table.iter_mut().enumerate() {
                // The ends and the middle of the interval.
                let first = exponent << 23 | (entry as u32) << BELOW;
                let (middle, last) = (first | 1 << (BELOW - 1), first | ((1 << BELOW) - 1));
                let got = execute(what, [first, middle, last, first + 1]);
                let value = (got[0] >> BELOW).checked_sub(HALF).filter(|v| *v <= MOST)?;
                if got != [got[0]; 4] || got[0] & ((1 << BELOW) - 1) != 0 {
                    return None;
                }
                *to = value as u16;
            }
        }
        let it = Approximations { tables };
        it.differences()?;
        it.holds_here().then_some(it)
    }

    /// Other processors have none.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn here() -> Option<Approximations> {
        None
    }

    /// Whether this processor agrees for numbers of all kinds.
    #[cfg(target_arch = "x86_64")]
    fn holds_here(&self) -> bool {
        let significands = [
            0, 1, 0x7ff, 0x800, 0x12_3456, 0x40_0000, 0x40_0001, 0x7f_ffff,
        ];
        (0..512u32).all(|head| {
            significands.iter().all(|s| {
                let x = head << 23 | s;
                [Reciprocal::Number, Reciprocal::Root]
                    .into_iter()
                    .all(|what| execute(what, [x; 4])[0] == self.of_number(what, x))
            })
        })
    }
}

/// Has this processor compute.
#[cfg(target_arch = "x86_64")]
fn execute(what: Reciprocal, x: [u32; 4]) -> [u32; 4] {
    use core::arch::x86_64::{__m128, _mm_rcp_ps, _mm_rsqrt_ps};
    // SAFETY: both types are 16 bytes of plain data.
    let x: __m128 = unsafe { core::mem::transmute(x) };
    // SAFETY: each x86-64 processor has SSE.
    let r = unsafe {
        match what {
            Reciprocal::Number => _mm_rcp_ps(x),
            Reciprocal::Root => _mm_rsqrt_ps(x),
        }
    };
    // SAFETY: as above.
    unsafe { core::mem::transmute(r) }
}

/// The operation of an instruction that [`Approximations`] tell.
pub fn reciprocal(m: Mnemonic) -> Option<Reciprocal> {
    use Mnemonic::*;
    match m {
        Rcpps | Rcpss | Vrcpps | Vrcpss => Some(Reciprocal::Number),
        Rsqrtps | Rsqrtss | Vrsqrtps | Vrsqrtss => Some(Reciprocal::Root),
        _ => None,
    }
}

/// Kinds of instructions whose results are approximations. Each maker chose its own, so what the recorded processor gave is not
/// known on another one, unless the recording says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Approximations`] tell them.
    Coarse,
    /// [`Finer`] tells them.
    Finer,
    /// The recording has each result ([`Transcendental`]).
    Transcendental,
    /// Nothing tells them.
    Other,
}

/// The kind of an approximation. `None`: the instruction is none.
pub fn kind(m: Mnemonic) -> Option<Kind> {
    use Mnemonic::*;
    let other = matches!(
        m,
        Vrcp28pd
            | Vrcp28ps
            | Vrcp28sd
            | Vrcp28ss
            | Vrsqrt28pd
            | Vrsqrt28ps
            | Vrsqrt28sd
            | Vrsqrt28ss
            | Vexp2pd
            | Vexp2ps
            | Vrcpph
            | Vrcpsh
            | Vrsqrtph
            | Vrsqrtsh
    );
    match m {
        m if reciprocal(m).is_some() => Some(Kind::Coarse),
        m if finer(m).is_some() => Some(Kind::Finer),
        m if Transcendental::of(m).is_some() => Some(Kind::Transcendental),
        _ => other.then_some(Kind::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all significands, where results could differ.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn tables_say_what_this_processor_gives() {
        // An emulated processor may compute them exactly.
        let Some(it) = Approximations::here() else {
            return;
        };
        let again = Approximations::of(&it.differences().unwrap());
        assert_eq!(again.as_ref(), Some(&it));
        for exponent in [1, 2, 100, 127, 128, 253, 254u32] {
            for s in (0..1 << 23).step_by(if exponent == 127 { 1 } else { 97 }) {
                let x = exponent << 23 | s;
                for what in [Reciprocal::Number, Reciprocal::Root] {
                    assert_eq!(execute(what, [x; 4])[0], it.of_number(what, x), "{x:x}");
                }
            }
        }
    }

    #[test]
    fn what_no_processor_gives_is_refused() {
        assert!(Approximations::of(&[0; DIFFERENCES]).is_some());
        assert_eq!(Approximations::of(&[-1; DIFFERENCES]), None);
    }
}
