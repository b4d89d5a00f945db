//! Lazy flags: status flags that translated code stores as the values they are computed from.
//!
//! Example: after `cmp rax, 5` the context block can hold rax in place of the flags.
//! [`LazyFlags::flags`] computes them when somebody needs them.

/// What the flags are computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The flags themselves, as `lahf` and `seto al` leave them in ax.
    Ax,
    /// The result of a bitwise operation.
    Logic,
    /// The sum, of an addition of a constant.
    Sum,
    /// The difference, of a subtraction of a constant.
    Difference,
    /// The left operand, of a comparison with a constant.
    Comparison,
}

/// How to compute flags from the value in [`crate::Ctx::flags`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LazyFlags {
    /// What the value is.
    pub from: Origin,
    /// Bytes of the operands: 1, 2, 4 or 8.
    pub size: u8,
    /// The constant, which is sign-extended to the operands' size.
    pub by: i32,
}

const OF: u64 = 1 << 11;
const SF: u64 = 1 << 7;
const ZF: u64 = 1 << 6;
const AF: u64 = 1 << 4;
const PF: u64 = 1 << 2;
const CF: u64 = 1;

/// All status flags.
const STATUS: u64 = OF | SF | ZF | AF | PF | CF;

impl LazyFlags {
    /// The value is the flags themselves.
    pub const AX: LazyFlags = LazyFlags {
        from: Origin::Ax,
        size: 2,
        by: 0,
    };

    /// `rflags` with its status flags replaced by those that `value` stands for.
    pub fn flags(&self, rflags: u64, value: u64) -> u64 {
        rflags & !STATUS | self.status(value)
    }

    fn status(&self, value: u64) -> u64 {
        let mask = u64::MAX >> (64 - 8 * self.size as u32);
        let by = self.by as i64 as u64 & mask;
        let value = value & mask;
        let (a, result, subtraction) = match self.from {
            Origin::Ax => return value >> 8 & (STATUS & !OF) | if value & 1 != 0 { OF } else { 0 },
            Origin::Logic => return self.of_result(value),
            Origin::Sum => (value.wrapping_sub(by) & mask, value, false),
            Origin::Difference => (value.wrapping_add(by) & mask, value, true),
            Origin::Comparison => (value, value.wrapping_sub(by) & mask, true),
        };
        let (carry, second) = match subtraction {
            false => (result < a, by),
            true => (a < by, !by),
        };
        let sign = 1 << (8 * self.size as u32 - 1);
        let overflow = (a ^ result) & (second ^ result) & sign != 0;
        let half = (a ^ by ^ result) & AF;
        self.of_result(result) | half | if carry { CF } else { 0 } | if overflow { OF } else { 0 }
    }

    /// The sign, zero and parity flag of a result.
    fn of_result(&self, result: u64) -> u64 {
        let sign = result >> (8 * self.size as u32 - 1) & 1 != 0;
        let even = (result as u8).count_ones().is_multiple_of(2);
        (if sign { SF } else { 0 })
            | (if result == 0 { ZF } else { 0 })
            | (if even { PF } else { 0 })
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use core::arch::asm;

    /// The processor's flags after `op` on two registers.
    macro_rules! real {
        ($op:expr, $a:expr, $b:expr, $t:ty) => {{
            let mut a: $t = $a as $t;
            let b: $t = $b as $t;
            let f: u64;
            // SAFETY: it changes only registers and the word below the stack pointer.
            unsafe {
                asm!($op, "pushfq", "pop {f}", a = inout(reg) a, b = in(reg) b, f = out(reg) f);
            }
            (a as u64, f & STATUS)
        }};
    }

    macro_rules! compare {
        ($m:literal, $t:ty, $a:expr, $b:expr) => {{
            let size = size_of::<$t>() as u8;
            let (a, by) = ($a, $b as i32);
            let b = by as i64 as u64;
            let made = |from, value| LazyFlags { from, size, by }.flags(0, value);
            let (sum, f) = real!(concat!("add {a", $m, "}, {b", $m, "}"), a, b, $t);
            assert_eq!(made(Origin::Sum, sum), f, "{a:#x} + {b:#x}");
            let (difference, f) = real!(concat!("sub {a", $m, "}, {b", $m, "}"), a, b, $t);
            assert_eq!(made(Origin::Difference, difference), f, "{a:#x} - {b:#x}");
            assert_eq!(made(Origin::Comparison, a), f, "{a:#x} cmp {b:#x}");
            let (result, f) = real!(concat!("xor {a", $m, "}, {b", $m, "}"), a, b, $t);
            assert_eq!(made(Origin::Logic, result), f, "{a:#x} ^ {b:#x}");
        }};
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the processor")]
    fn flags_are_the_processors() {
        let mut x = 1u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(99);
            let a = match x >> 60 {
                0 => 0,
                1 => u64::MAX,
                2 => 0x8000_0000_8000_8000,
                3 => x >> 33 & 0xff,
                _ => x ^ x >> 31,
            };
            let b = match x >> 56 & 15 {
                0 => 0,
                1 => -1,
                2 => i32::MIN as i64,
                3 => a as i64,
                4 => 0x7fff_ffff,
                _ => (x >> 20) as i8 as i64,
            };
            compare!(":r", u64, a, b);
            compare!(":e", u32, a, b);
            compare!(":x", u16, a, b);
        }
    }
}
