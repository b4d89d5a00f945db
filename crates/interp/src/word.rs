//! Operands as numbers.

use std::ops::{BitAnd, BitOr, BitXor, Not};

/// Sixteen bytes of a vector register.
pub type Lane = [u8; 16];

/// An operand of 8, 16, 32 or 64 bits.
pub trait Word:
    Copy
    + PartialEq
    + PartialOrd
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
{
    const BITS: u32;
    const BYTES: usize = Self::BITS as usize / 8;
    fn of(v: u64) -> Self;
    fn wide(self) -> u64;
    /// With its sign extended.
    fn signed(self) -> u64;
    fn plus(self, b: Self) -> Self;
    fn minus(self, b: Self) -> Self;
    /// Its highest bit.
    fn top(self) -> bool {
        self.signed() >> 63 != 0
    }
}

macro_rules! word {
    ($t:ty, $i:ty) => {
        impl Word for $t {
            const BITS: u32 = <$t>::BITS;
            #[inline(always)]
            fn of(v: u64) -> $t {
                v as $t
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn signed(self) -> u64 {
                self as $i as i64 as u64
            }
            #[inline(always)]
            fn plus(self, b: $t) -> $t {
                self.wrapping_add(b)
            }
            #[inline(always)]
            fn minus(self, b: $t) -> $t {
                self.wrapping_sub(b)
            }
        }
    };
}

word!(u8, i8);
word!(u16, i16);
word!(u32, i32);
word!(u64, i64);
