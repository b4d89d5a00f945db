//! Results that the manuals leave open, where processors follow one of few rules: double shifts of 16 bits, and sums of several NaNs.

use core::fmt;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// What a processor does there. `None`: none of the rules that are known here, or nobody knows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LeftOpen {
    pub double_shift: Option<DoubleShift>,
    pub dot_product: Option<DotProduct>,
}

/// Which operand follows the two others when `shld` and `shrd` of 16 bits shift by more than 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoubleShift {
    /// The one that is shifted.
    First,
    /// The one whose bits are shifted in, again.
    Second,
}

impl DoubleShift {
    const ALL: [DoubleShift; 2] = [DoubleShift::First, DoubleShift::Second];

    /// `a` shifted left (`shld`) or right by `n` bits, from 17 to 31.
    pub fn shift(self, left: bool, a: u16, b: u16, n: u32) -> u16 {
        let (a, b) = (a as u64, b as u64);
        let more = match self {
            DoubleShift::First => a,
            DoubleShift::Second => b,
        };
        match left {
            true => ((a << 32 | b << 16 | more) << n >> 32) as u16,
            false => ((more << 32 | b << 16 | a) >> n) as u16,
        }
    }

    /// The rule with this name.
    pub fn named(name: &str) -> Option<DoubleShift> {
        DoubleShift::ALL.into_iter().find(|r| r.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            DoubleShift::First => "first",
            DoubleShift::Second => "second",
        }
    }
}

/// Which of several NaNs the sum of `dpps` or `dppd` is. Two sums of neighbours are added. Each addition takes the NaN of its first operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DotProduct {
    /// The order of the neighbours, and of their sums: true where the upper one is the first operand.
    pub upper_first: [bool; 3],
}

impl DotProduct {
    /// All of them.
    fn all() -> impl Iterator<Item = DotProduct> {
        (0..8).map(|n| DotProduct {
            upper_first: [n & 1 != 0, n & 2 != 0, n & 4 != 0],
        })
    }

    /// The products, from the one whose NaN wins over all others.
    fn order(self) -> [u8; 4] {
        let [low, high, sums] = self.upper_first;
        let pair = |at: u8, swapped: bool| if swapped { [at + 1, at] } else { [at, at + 1] };
        let ([a, b], [c, d]) = (pair(0, low), pair(2, high));
        if sums { [c, d, a, b] } else { [a, b, c, d] }
    }

    /// The rule that this order tells.
    pub fn parse(text: &str) -> Option<DotProduct> {
        let same = |r: &DotProduct| r.order().iter().map(|n| b'0' + n).eq(text.bytes());
        DotProduct::all().find(same)
    }
}

impl fmt::Display for DotProduct {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.order().iter().try_for_each(|n| write!(f, "{n}"))
    }
}

/// Which rule an instruction's result may follow from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    DoubleShift,
    DotProduct,
}

/// The rule of an instruction. `None`: manuals say all of its result.
pub fn rule(i: &Instruction) -> Option<Rule> {
    use Mnemonic::*;
    match i.mnemonic() {
        Shld | Shrd if i.op1_register().size() == 2 => match i.op2_kind() {
            OpKind::Immediate8 => (i.immediate8() & 31 > 16).then_some(Rule::DoubleShift),
            _ => Some(Rule::DoubleShift),
        },
        Dpps | Vdpps | Dppd | Vdppd => Some(Rule::DotProduct),
        _ => None,
    }
}

#[cfg(target_arch = "x86_64")]
mod measured {
    use super::*;
    use core::arch::x86_64::*;

    impl LeftOpen {
        /// What this processor does.
        pub fn here() -> LeftOpen {
            const SSE4_1: u32 = 1 << 19;
            let has_dot_products = __cpuid(1).ecx & SSE4_1 != 0;
            LeftOpen {
                double_shift: DoubleShift::ALL.into_iter().find(|r| r.holds_here()),
                dot_product: DotProduct::all()
                    // SAFETY: the processor says that it has these instructions.
                    .find(|r| has_dot_products && unsafe { r.holds_here() }),
            }
        }
    }

    impl DoubleShift {
        /// Whether this processor agrees.
        fn holds_here(self) -> bool {
            let operands = [(0x1234, 0xabcd), (0x8001, 0x7ffe), (0, 0xffff), (0xffff, 0)];
            operands.into_iter().all(|(a, b)| {
                (17..32).all(|n| {
                    [true, false]
                        .into_iter()
                        .all(|left| execute(left, a, b, n) == self.shift(left, a, b, n))
                })
            })
        }
    }

    /// Has this processor shift.
    fn execute(left: bool, mut a: u16, b: u16, n: u32) -> u16 {
        use core::arch::asm;
        // SAFETY: the instructions change a register and the flags, which Rust takes for changed.
        unsafe {
            match left {
                true => asm!("shld {0:x}, {1:x}, cl", inout(reg) a, in(reg) b, in("ecx") n,
                    options(pure, nomem, nostack)),
                false => asm!("shrd {0:x}, {1:x}, cl", inout(reg) a, in(reg) b, in("ecx") n,
                    options(pure, nomem, nostack)),
            }
        }
        a
    }

    impl DotProduct {
        /// Whether this processor agrees, whichever products are NaNs.
        #[target_feature(enable = "sse4.1")]
        fn holds_here(self) -> bool {
            let holds = |set: u32, products: usize| {
                let all = self.order();
                let mut order = all.iter().filter(|n| (**n as usize) < products);
                let first = order.find(|n| set >> **n & 1 != 0);
                let payload = |n: u8| 0x10 + n as i64;
                let nan = |n: u8| if set >> n & 1 != 0 { payload(n) } else { 0 };
                let found = match products {
                    2 => {
                        let bits = |n| {
                            if nan(n) != 0 {
                                0x7ff8 << 48 | nan(n)
                            } else {
                                0
                            }
                        };
                        let one = _mm_set1_pd(1.0);
                        let x = _mm_castsi128_pd(_mm_set_epi64x(bits(1), bits(0)));
                        let r = _mm_castpd_si128(_mm_dp_pd::<0x31>(x, one));
                        _mm_cvtsi128_si64(r) & 0xff
                    }
                    _ => {
                        let bits = |n| {
                            if nan(n) != 0 {
                                0x7fc0_0000 | nan(n) as i32
                            } else {
                                0
                            }
                        };
                        let one = _mm_set1_ps(1.0);
                        let x = _mm_castsi128_ps(_mm_set_epi32(bits(3), bits(2), bits(1), bits(0)));
                        let r = _mm_castps_si128(_mm_dp_ps::<0xf1>(x, one));
                        (_mm_cvtsi128_si32(r) & 0xff) as i64
                    }
                };
                found == first.map_or(0, |n| payload(*n))
            };
            (0..4).all(|set| holds(set, 2)) && (0..16).all(|set| holds(set, 4))
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl LeftOpen {
    /// Other processors have no such instructions.
    pub fn here() -> LeftOpen {
        LeftOpen::default()
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn rules_have_names() {
        for rule in DoubleShift::ALL {
            assert_eq!(DoubleShift::named(rule.name()), Some(rule));
        }
        for rule in DotProduct::all() {
            assert_eq!(DotProduct::parse(&rule.to_string()), Some(rule));
        }
        let usual = DotProduct::parse("0123").unwrap();
        assert_eq!(usual.upper_first, [false; 3]);
        let other = DotProduct::parse("3201").unwrap();
        assert_eq!(other.upper_first, [false, true, true]);
        // No additions of neighbours would do that.
        assert_eq!(DotProduct::parse("0213"), None);
        assert_eq!(DotProduct::parse("01"), None);
        assert_eq!(DoubleShift::named(""), None);
    }

    #[test]
    fn the_rules_of_double_shifts_differ() {
        let shift = |rule: DoubleShift, left| rule.shift(left, 0x1234, 0xabcd, 24);
        assert_eq!(shift(DoubleShift::First, true), 0xcd12);
        assert_eq!(shift(DoubleShift::Second, true), 0xcdab);
        assert_eq!(shift(DoubleShift::First, false), 0x34ab);
        assert_eq!(shift(DoubleShift::Second, false), 0xcdab);
    }
}
