//! The status flags, kept as the result that they follow from. They are computed when somebody asks.
//!
//! | flag | follows from |
//! |---|---|
//! | ZF | the result is zero |
//! | SF | its highest bit, changed by bit 0 of `more` |
//! | PF | its lowest byte, changed by bits 8 to 15 of `more` |
//! | CF | bit 63 of `more` |
//! | OF | bits 63 and 62 of `more` differ |
//! | AF | bit 3 of `more` |
//!
//! So an addition stores its result and its carries, shifted to the top, and nothing else.

use crate::word::Word;

pub const CF: u64 = 1;
pub const PF: u64 = 4;
pub const AF: u64 = 0x10;
pub const ZF: u64 = 0x40;
pub const SF: u64 = 0x80;
pub const DF: u64 = 0x400;
pub const OF: u64 = 0x800;
/// All status flags.
pub const STATUS: u64 = CF | PF | AF | ZF | SF | OF;

#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// The result, with its sign extended.
    pub result: u64,
    pub more: u64,
}

impl Flags {
    /// Those behind an operation without carries.
    #[inline(always)]
    pub fn logic<T: Word>(r: T) -> Flags {
        Flags {
            result: r.signed(),
            more: 0,
        }
    }

    /// Those of a result with these carries out of each bit.
    #[inline(always)]
    pub fn arithmetic<T: Word>(r: T, carries: T) -> Flags {
        let c = carries.wide();
        Flags {
            result: r.signed(),
            more: (c << (64 - T::BITS)) & (3 << 62) | c & 8,
        }
    }

    /// Those of `a + b` or `a + b + carry`, which is `r`.
    #[inline(always)]
    pub fn sum<T: Word>(a: T, b: T, r: T) -> Flags {
        Flags::arithmetic(r, (a & b) | ((a | b) & !r))
    }

    /// Those of `a - b` or `a - b - carry`, which is `r`.
    #[inline(always)]
    pub fn difference<T: Word>(a: T, b: T, r: T) -> Flags {
        Flags::arithmetic(r, (!a & b) | ((!a | b) & r))
    }

    #[inline(always)]
    pub fn cf(self) -> bool {
        self.more >> 63 != 0
    }

    #[inline(always)]
    pub fn zf(self) -> bool {
        self.result == 0
    }

    #[inline(always)]
    pub fn sf(self) -> bool {
        ((self.result >> 63) ^ self.more) & 1 != 0
    }

    #[inline(always)]
    pub fn of(self) -> bool {
        (self.more ^ (self.more << 1)) >> 63 != 0
    }

    #[inline(always)]
    pub fn pf(self) -> bool {
        ((self.result ^ (self.more >> 8)) as u8).count_ones() & 1 == 0
    }

    #[inline(always)]
    pub fn af(self) -> bool {
        self.more & 8 != 0
    }

    /// Replaces CF and OF.
    #[inline(always)]
    pub fn set_cf_of(&mut self, cf: bool, of: bool) {
        self.more = self.more & !(3 << 62) | (cf as u64) << 63 | ((cf ^ of) as u64) << 62;
    }

    /// Replaces CF.
    #[inline(always)]
    pub fn set_cf(&mut self, cf: bool) {
        let of = self.of();
        self.set_cf_of(cf, of);
    }

    /// Sets AF.
    #[inline(always)]
    pub fn set_af(&mut self) {
        self.more |= 8;
    }

    /// As the hardware has them.
    pub fn bits(self) -> u64 {
        let bit = |on: bool, bit: u64| if on { bit } else { 0 };
        bit(self.cf(), CF)
            | bit(self.pf(), PF)
            | bit(self.af(), AF)
            | bit(self.zf(), ZF)
            | bit(self.sf(), SF)
            | bit(self.of(), OF)
    }

    /// From what the hardware has.
    pub fn from_bits(f: u64) -> Flags {
        let bit = |b: u64| (f & b != 0) as u64;
        let result = 1 ^ bit(ZF);
        Flags {
            result,
            more: bit(CF) << 63
                | (bit(CF) ^ bit(OF)) << 62
                | bit(AF) << 3
                | (result ^ 1 ^ bit(PF)) << 8
                | bit(SF),
        }
    }

    /// The condition with this number, as the last four bits of opcodes have it.
    #[inline(always)]
    pub fn condition(self, n: u8) -> bool {
        let holds = match n >> 1 {
            0 => self.of(),
            1 => self.cf(),
            2 => self.zf(),
            3 => self.cf() || self.zf(),
            4 => self.sf(),
            5 => self.pf(),
            6 => self.sf() != self.of(),
            _ => self.zf() || self.sf() != self.of(),
        };
        holds ^ (n & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_are_kept() {
        for n in 0..64u64 {
            let f = [CF, PF, AF, ZF, SF, OF]
                .iter()
                .enumerate()
                .map(|(i, f)| if n >> i & 1 != 0 { *f } else { 0 })
                .sum();
            assert_eq!(Flags::from_bits(f).bits(), f, "{f:x}");
            for cf in [false, true] {
                let mut g = Flags::from_bits(f);
                g.set_cf(cf);
                assert_eq!(g.bits(), f & !CF | cf as u64);
                g.set_af();
                assert_eq!(g.bits(), f & !CF | cf as u64 | AF);
            }
        }
    }

    #[test]
    fn sums_and_differences_of_bytes() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let (r, c) = a.overflowing_add(b);
                let f = Flags::sum(a, b, r);
                assert_eq!((f.cf(), f.of()), (c, (a as i8).overflowing_add(b as i8).1));
                assert_eq!((f.zf(), f.sf()), (r == 0, r > 127));
                assert_eq!(f.af(), (a & 15) + (b & 15) > 15);
                let (r, c) = a.overflowing_sub(b);
                let f = Flags::difference(a, b, r);
                assert_eq!((f.cf(), f.of()), (c, (a as i8).overflowing_sub(b as i8).1));
                assert_eq!(f.af(), a & 15 < b & 15);
                assert_eq!(f.condition(12), (a as i8) < b as i8);
                assert_eq!(f.condition(6), a <= b);
            }
        }
    }
}
