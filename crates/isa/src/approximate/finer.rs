//! The finer approximations of AVX-512: `vrcp14ps`, `vrsqrt14ps` and their kin.
//!
//! Processors interpolate between few points, on straight lines. So the lines say all that a processor gives, for numbers of both
//! lengths.

use super::Reciprocal;
use core::fmt::{self, Write};
use iced_x86::Mnemonic;

/// Lines of a table. The leading bits of a significand choose one.
const LINES: usize = 1 << LINE_BITS;
const LINE_BITS: u32 = 6;
/// Bits of a significand's fraction that a table may look at, and bits of a result behind the one that is one half.
const MOST_BITS: u32 = 16;
/// The same, of the longest line.
#[cfg(target_arch = "x86_64")]
const MOST_ENTRIES: usize = 1 << (MOST_BITS - LINE_BITS);
/// Bits of a line's numbers behind the binary point.
const POINT: u32 = 12;
/// One, as tables have results: in front of it they are one half and more.
const ONE: u32 = 1 << MOST_BITS;
/// The steepest line falls by so much for each entry.
const STEEPEST: u32 = 4 << POINT;

/// Results for numbers between two powers of two, from one half to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Table {
    /// So many leading bits of a fraction decide.
    bits: u32,
    /// The result for a fraction of zero. It may lie above the line.
    power: u32,
    lines: [Line; LINES],
}

/// A falling line. The result is the whole part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    first: u32,
    fall: u32,
}

impl Line {
    const FLAT: Line = Line { first: 0, fall: 0 };

    fn at(&self, entry: u32) -> u32 {
        (self.first - self.fall * entry) >> POINT
    }

    /// Whether all of its results are less than one, and none is less than one half.
    fn is_possible(&self, entries: u32) -> bool {
        let lowest = self.fall.checked_mul(entries - 1);
        self.fall <= STEEPEST
            && self.first >> POINT < ONE
            && lowest.is_some_and(|l| l <= self.first)
    }

    /// The line on which these results lie. `None`: there is none.
    #[cfg(target_arch = "x86_64")]
    fn through(results: &[u32]) -> Option<Line> {
        // The slope is near that of the ends: a result is less than one unit from its line. Whatever does not fit tells on which
        // side the right slope is.
        let (begin, end) = (*results.first()?, *results.last()?);
        let steps = (results.len() as i64 - 1).max(1);
        let near = ((begin as i64 - end as i64) << POINT) / steps;
        let wide = (2 << POINT) / steps + 1;
        let (mut least, mut most) = ((near - wide).max(0), (near + wide).min(STEEPEST as i64));
        while least <= most {
            let fall = (least + most) / 2;
            let at = |j: usize| ((results[j] as i64) << POINT) + fall * j as i64;
            let highest = (0..results.len()).max_by_key(|j| at(*j))?;
            let lowest = (0..results.len()).min_by_key(|j| at(*j))?;
            if at(highest) < at(lowest) + (1 << POINT) {
                let first = u32::try_from(at(highest)).ok()?;
                let fall = fall as u32;
                return Some(Line { first, fall });
            }
            match lowest > highest {
                true => least = fall + 1,
                false => most = fall - 1,
            }
        }
        None
    }
}

impl Table {
    const EMPTY: Table = Table {
        bits: MOST_BITS,
        power: 0,
        lines: [Line::FLAT; LINES],
    };

    fn entries(&self) -> u32 {
        1 << (self.bits - LINE_BITS)
    }

    /// The result for a fraction, whose bits are the leading ones of 64.
    fn result(&self, fraction: u64) -> u32 {
        if fraction == 0 {
            return self.power;
        }
        let entry = (fraction >> (64 - self.bits)) as u32;
        self.lines[(entry / self.entries()) as usize].at(entry % self.entries())
    }

    fn is_possible(&self) -> bool {
        (MOST_BITS - 1..=MOST_BITS).contains(&self.bits)
            && self.power <= ONE
            && self.lines.iter().all(|l| l.is_possible(self.entries()))
    }
}

/// What a processor gives: of reciprocals, of reciprocals of square roots of numbers from one to two, and from two to four.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finer([Table; 3]);

/// The bits of MXCSR that matter.
const FLUSH: u32 = 1 << 15;
const DENORMALS_ARE_ZERO: u32 = 1 << 6;

/// A format of numbers.
struct Format {
    /// Bits of a fraction, and of an exponent.
    fraction: u32,
    exponent: u32,
}

const SINGLE: Format = Format {
    fraction: 23,
    exponent: 8,
};
const DOUBLE: Format = Format {
    fraction: 52,
    exponent: 11,
};

impl Finer {
    /// What the processor gives for a number of 32 bits.
    pub fn of_single(&self, what: Reciprocal, x: u32, mxcsr: u32) -> u32 {
        self.of(&SINGLE, what, x as u64, mxcsr) as u32
    }

    /// The same for one of 64 bits.
    pub fn of_double(&self, what: Reciprocal, x: u64, mxcsr: u32) -> u64 {
        self.of(&DOUBLE, what, x, mxcsr)
    }

    fn of(&self, f: &Format, what: Reciprocal, x: u64, mxcsr: u32) -> u64 {
        let all = (1 << f.exponent) - 1;
        let bias = all as i32 >> 1;
        let sign = x & 1 << (f.fraction + f.exponent);
        let infinite = all << f.fraction;
        let quiet = 1 << (f.fraction - 1);
        let (mut exponent, mut fraction) =
            ((x >> f.fraction & all) as i32, x & ((1 << f.fraction) - 1));
        if exponent as u64 == all && fraction != 0 {
            return x | quiet;
        }
        if exponent == 0 {
            if fraction == 0 || mxcsr & DENORMALS_ARE_ZERO != 0 {
                return sign | infinite;
            }
            let shift = fraction.leading_zeros() - (63 - f.fraction);
            fraction = (fraction << shift) & ((1 << f.fraction) - 1);
            exponent = 1 - shift as i32;
        }
        if what == Reciprocal::Root && sign != 0 {
            return sign | infinite | quiet;
        }
        if exponent as u64 == all {
            return sign;
        }
        let power = exponent - bias;
        let (table, power) = match what {
            Reciprocal::Number => (&self.0[0], power),
            Reciprocal::Root => (&self.0[1 + (power & 1) as usize], power >> 1),
        };
        // One half is the result's leading one.
        let result = table.result(fraction << (64 - f.fraction));
        let significand = ((ONE + result) as u64) << (f.fraction - MOST_BITS);
        // A result of one carries into the exponent.
        let exponent = bias - 1 - power;
        match exponent {
            1.. => {
                let whole = significand + ((exponent as u64 - 1) << f.fraction);
                sign | whole.min(infinite)
            }
            // No bit is lost: results end before.
            _ => match significand >> (1 - exponent) {
                small if mxcsr & FLUSH != 0 && small >> f.fraction == 0 => sign,
                small => sign | small,
            },
        }
    }

    /// From text that [`fmt::Display`] made. `None`: no processor is like that.
    pub fn parse(text: &str) -> Option<Finer> {
        let mut numbers = text.split(' ').map(|n| n.parse::<u32>().ok());
        let mut next = || numbers.next()?;
        let mut tables = [Table::EMPTY; 3];
        for table in &mut tables {
            (table.bits, table.power) = (next()?, next()?);
            for line in &mut table.lines {
                *line = Line {
                    first: next()?,
                    fall: next()?,
                };
            }
        }
        let fits = numbers.next().is_none() && tables.iter().all(Table::is_possible);
        fits.then_some(Finer(tables))
    }
}

impl fmt::Display for Finer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (n, t) in self.0.iter().enumerate() {
            if n != 0 {
                f.write_char(' ')?;
            }
            write!(f, "{} {}", t.bits, t.power)?;
            for line in &t.lines {
                write!(f, " {} {}", line.first, line.fall)?;
            }
        }
        Ok(())
    }
}

/// The operation of an instruction that [`Finer`] tells.
pub fn finer(m: Mnemonic) -> Option<Reciprocal> {
    use Mnemonic::*;
    match m {
        Vrcp14pd | Vrcp14ps | Vrcp14sd | Vrcp14ss => Some(Reciprocal::Number),
        Vrsqrt14pd | Vrsqrt14ps | Vrsqrt14sd | Vrsqrt14ss => Some(Reciprocal::Root),
        _ => None,
    }
}

#[cfg(target_arch = "x86_64")]
mod here {
    use super::*;
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    /// Whether this processor has these instructions, and the system lets programs use them.
    fn has() -> bool {
        const OSXSAVE: u32 = 1 << 27;
        const AVX512F: u32 = 1 << 16;
        const STATE: u64 = 0xe6;
        // SAFETY: `xgetbv` exists where the system has enabled XSAVE, which is asked before.
        __cpuid(0).eax >= 7
            && __cpuid(1).ecx & OSXSAVE != 0
            && unsafe { _xgetbv(0) } & STATE == STATE
            && __cpuid_count(7, 0).ebx & AVX512F != 0
    }

    /// Has this processor compute. It must have the instructions.
    fn execute(what: Reciprocal, x: &mut [u32; 16]) {
        let at = x.as_mut_ptr();
        // SAFETY: the caller has asked for the feature. Reads and writes `x` only.
        unsafe {
            match what {
                Reciprocal::Number => {
                    asm!("vrcp14ps zmm0, [{at}]", "vmovups [{at}], zmm0", out("xmm0") _, at = in(reg) at, options(nostack))
                }
                Reciprocal::Root => {
                    asm!("vrsqrt14ps zmm0, [{at}]", "vmovups [{at}], zmm0", out("xmm0") _, at = in(reg) at, options(nostack))
                }
            }
        }
    }

    fn double(what: Reciprocal, x: u64) -> u64 {
        let mut r = x;
        // SAFETY: as above.
        unsafe {
            match what {
                Reciprocal::Number => {
                    asm!("vmovq {t}, {r}", "vrcp14sd {t}, {t}, {t}", "vmovq {r}, {t}", r = inout(reg) r, t = out(xmm_reg) _, options(nomem, nostack))
                }
                Reciprocal::Root => {
                    asm!("vmovq {t}, {r}", "vrsqrt14sd {t}, {t}, {t}", "vmovq {r}, {t}", r = inout(reg) r, t = out(xmm_reg) _, options(nomem, nostack))
                }
            }
        }
        r
    }

    /// Bits of a number of 32 bits that no table looks at.
    const BELOW: u32 = 23 - MOST_BITS;

    /// What a table has for the result of a number whose result is below one.
    fn entry(result: u32) -> Option<u32> {
        let entry = (result >> BELOW).checked_sub(126 << MOST_BITS)?;
        (result & ((1 << BELOW) - 1) == 0 && entry <= ONE).then_some(entry)
    }

    /// The results of one line, and whether the last bit of its numbers decides anything.
    fn results(what: Reciprocal, first: u32, out: &mut [u32; MOST_ENTRIES]) -> Option<bool> {
        let mut pairs = true;
        for (n, chunk) in out.chunks_exact_mut(8).enumerate() {
            // The ends of the intervals. The first one is no whole number, which may have a result of its own.
            let mut x = core::array::from_fn(|i| {
                let from = first + ((8 * n + i / 2) as u32) * (1 << BELOW);
                from + if i % 2 == 0 { 1 } else { (1 << BELOW) - 1 }
            });
            execute(what, &mut x);
            for (to, both) in chunk.iter_mut().zip(x.as_chunks::<2>().0) {
                *to = entry(both[0])?;
                if both[0] != both[1] {
                    return None;
                }
            }
            pairs &= chunk.as_chunks::<2>().0.iter().all(|p| p[0] == p[1]);
        }
        Some(pairs)
    }

    fn table(what: Reciprocal, exponent: u32) -> Option<Table> {
        let mut table = Table::EMPTY;
        let mut one = [exponent << 23; 16];
        execute(what, &mut one);
        table.power = entry(one[0])?;
        let first = |n: u32| exponent << 23 | n << (23 - LINE_BITS);
        let mut out = [0; MOST_ENTRIES];
        let mut pairs = true;
        for n in 0..LINES as u32 {
            pairs &= results(what, first(n), &mut out)?;
        }
        table.bits -= pairs as u32;
        for (n, line) in (0..).zip(&mut table.lines) {
            results(what, first(n), &mut out)?;
            if pairs {
                for n in 0..MOST_ENTRIES / 2 {
                    out[n] = out[2 * n];
                }
            }
            *line = Line::through(&out[..1 << (table.bits - LINE_BITS)])?;
        }
        Some(table)
    }

    /// The lines of this processor, which must have the instructions.
    fn find() -> Option<Finer> {
        let tables = [
            table(Reciprocal::Number, 127)?,
            table(Reciprocal::Root, 127)?,
            table(Reciprocal::Root, 128)?,
        ];
        let it = Finer(tables);
        (tables.iter().all(Table::is_possible) && it.holds_here()).then_some(it)
    }

    impl Finer {
        /// What this processor gives. `None`: it has no such instructions, or lines do not say all of it.
        pub fn here() -> Option<Finer> {
            let it = has().then(find)?;
            // SAFETY: `has` says that there is AVX. Code without it is slow on some processors while these halves are in use.
            unsafe { core::arch::x86_64::_mm256_zeroupper() };
            it
        }

        /// Whether this processor agrees for numbers of all kinds. MXCSR is as programs have it usually.
        fn holds_here(&self) -> bool {
            let fractions = [0, 1, 0x7f, 0x80, 0x12_3456, 0x40_0000, 0x40_0001, 0x7f_ffff];
            [Reciprocal::Number, Reciprocal::Root]
                .into_iter()
                .all(|what| {
                    let singles = (0..512u32)
                        .all(|head| self.holds_for(what, fractions.map(|s| head << 23 | s)));
                    singles
                        && (0..4096u64).all(|head| {
                            [
                                0,
                                1,
                                0x8_0000_0000_0000,
                                0x1_2345_6789_abcd,
                                0xf_ffff_ffff_ffff,
                            ]
                            .into_iter()
                            .all(|s| {
                                let x = head << 52 | s;
                                double(what, x) == self.of_double(what, x, 0)
                            })
                        })
                })
        }

        /// Whether this processor agrees for these numbers.
        pub(super) fn holds_for(&self, what: Reciprocal, numbers: [u32; 8]) -> bool {
            let mut x = [0; 16];
            x[..8].copy_from_slice(&numbers);
            execute(what, &mut x);
            numbers
                .iter()
                .zip(x)
                .all(|(n, r)| self.of_single(what, *n, 0) == r)
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Finer {
    /// Other processors have none.
    pub fn here() -> Option<Finer> {
        None
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::*;
    use alloc::string::ToString;

    /// All significands of four exponents, and some of all others.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn lines_say_what_this_processor_gives() {
        // A processor may have no such instructions, and an emulated one other results.
        let Some(it) = Finer::here() else {
            return;
        };
        assert_eq!(Finer::parse(&it.to_string()).as_ref(), Some(&it));
        for exponent in [0, 1, 127, 128, 252, 253, 254u32] {
            let step = if matches!(exponent, 0 | 127 | 128 | 253) {
                8
            } else {
                776
            };
            for s in (0..1 << 23).step_by(step) {
                let numbers = core::array::from_fn(|i| exponent << 23 | (s + i as u32));
                for what in [Reciprocal::Number, Reciprocal::Root] {
                    assert!(it.holds_for(what, numbers), "{what:?} {numbers:x?}");
                }
            }
        }
    }

    #[test]
    fn what_no_processor_gives_is_refused() {
        let flat = "16 65536".to_string() + &" 4096 0".repeat(LINES);
        let all = [&flat[..]; 3].join(" ");
        let it = Finer::parse(&all).unwrap();
        assert_eq!(it.to_string(), all);
        // One half and a bit: of 2.5 and of 0.
        assert_eq!(
            it.of_single(Reciprocal::Number, 0x4020_0000, 0),
            0x3e80_0080
        );
        assert_eq!(it.of_single(Reciprocal::Number, 0, 0), INFINITE);
        for wrong in [
            all.replacen("16", "17", 1),
            all.replacen("65536", "65537", 1),
            all.replacen("4096 0", "4096 5", 1),
            all.replacen("4096 0", "268435456 0", 1),
            all.replacen("4096 0", "4096 -1", 1),
            all.clone() + " 1",
            all[1..].to_string(),
            all[..all.len() - 2].to_string(),
        ] {
            assert_eq!(Finer::parse(&wrong), None, "{wrong}");
        }
    }

    const INFINITE: u32 = 0xff << 23;
}
