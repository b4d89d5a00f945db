//! Floating-point numbers of vectors: operations on one element, with rounding and exceptions as MXCSR says.
//!
//! The host's arithmetic is used where it must give the same: to nearest, on normal numbers, with a normal result, and
//! if the result is exact or the flag of inexact results is set already. Everything else is computed by `soft`.
//!
//! The error of a sum is found by Knuth's algorithm (TAOCP 2, 4.2.2, theorem B), that of a product by a fused multiplication.

use super::element::Element;
use crate::core::Core;
use crate::fault::Fault;
use crate::op::{Flow, Int, Op, bit};
use crate::soft::flag::{DE, IE, PE, UE, ZE};
use crate::soft::{self, F16, F32, F64, Format, Number, Round, Rounded};
use std::cmp::Ordering;

/// SIMD floating-point exception.
const EXCEPTION: u8 = 19;
/// Denormal operands are zeros.
const DAZ: u32 = 1 << 6;
/// Tiny results are zeros.
const FTZ: u32 = 1 << 15;

/// An element that is a number, as its bits.
pub trait Encoded: Element + Int + Default {
    const FORMAT: Format;
}

impl Encoded for u16 {
    const FORMAT: Format = F16;
}

/// A number that instructions compute with.
pub trait Float: Encoded {
    fn host_add(self, b: Self) -> Self;
    fn host_sub(self, b: Self) -> Self;
    fn host_mul(self, b: Self) -> Self;
    fn host_div(self, b: Self) -> Self;
    fn host_sqrt(self) -> Self;
    fn host_fma(self, b: Self, c: Self) -> Self;
    /// Whether `sum`, the host's, is exactly `self` and `b` together. All are normal or zero.
    fn sum_is_exact(self, b: Self, sum: Self) -> bool;
    /// Whether `product` is exactly `self` times `b`. All are normal or zero. False also if that is not certain.
    fn product_is_exact(self, b: Self, product: Self) -> bool;
    /// The exponent's field.
    fn field(self) -> u32;
    const TOP: u32;
}

macro_rules! float {
    ($t:ty, $f:ty, $format:expr, $shift:literal, $top:literal, $exact:expr) => {
        impl Encoded for $t {
            const FORMAT: Format = $format;
        }

        impl Float for $t {
            const TOP: u32 = $top;
            #[inline(always)]
            fn host_add(self, b: $t) -> $t {
                (<$f>::from_bits(self) + <$f>::from_bits(b)).to_bits()
            }
            #[inline(always)]
            fn host_sub(self, b: $t) -> $t {
                (<$f>::from_bits(self) - <$f>::from_bits(b)).to_bits()
            }
            #[inline(always)]
            fn host_mul(self, b: $t) -> $t {
                (<$f>::from_bits(self) * <$f>::from_bits(b)).to_bits()
            }
            #[inline(always)]
            fn host_div(self, b: $t) -> $t {
                (<$f>::from_bits(self) / <$f>::from_bits(b)).to_bits()
            }
            #[inline(always)]
            fn host_sqrt(self) -> $t {
                <$f>::from_bits(self).sqrt().to_bits()
            }
            fn host_fma(self, b: $t, c: $t) -> $t {
                <$f>::from_bits(self)
                    .mul_add(<$f>::from_bits(b), <$f>::from_bits(c))
                    .to_bits()
            }
            #[inline(always)]
            fn sum_is_exact(self, b: $t, sum: $t) -> bool {
                let [a, b, sum] = [self, b, sum].map(<$f>::from_bits);
                let other = sum - a;
                (a - (sum - other)) + (b - other) == 0.0
            }
            #[inline(always)]
            fn product_is_exact(self, b: $t, product: $t) -> bool {
                let exact: fn($f, $f, $f) -> bool = $exact;
                let [a, b, product] = [self, b, product].map(<$f>::from_bits);
                exact(a, b, product)
            }
            #[inline(always)]
            fn field(self) -> u32 {
                (self >> $shift) as u32 & $top
            }
        }
    };
}

// All products of two numbers of 24 bits have 48 bits or fewer.
float!(u32, f32, F32, 23, 0xff, |a, b, product| {
    a as f64 * b as f64 == product as f64
});
// Two numbers whose significands end in 53 zeros together have a product of 53 bits or fewer. Otherwise the error decides. Below
// this size it might be too small for a number.
float!(u64, f64, F64, 52, 0x7ff, |a, b, product| {
    let zeros = |v: f64| (v.to_bits() | 1 << 52).trailing_zeros();
    match zeros(a) + zeros(b) >= 53 {
        true => a * b == product,
        false => product.abs() >= 1e-200 && a.mul_add(b, -product) == 0.0,
    }
});

/// The sign's bit.
#[inline(always)]
fn sign<T: Float>() -> T {
    T::of(1 << (T::BITS - 1))
}

/// Whether it is zero.
#[inline(always)]
fn is_zero<T: Float>(v: T) -> bool {
    v.plus(v) == T::of(0)
}

/// Whether it is a normal number or zero.
#[inline(always)]
fn plain<T: Float>(v: T) -> bool {
    v.field().wrapping_sub(1) < T::TOP - 1 || is_zero(v)
}

/// Whether it is a normal number, but not the least: that could be a tiny result that was rounded.
#[inline(always)]
fn normal<T: Float>(v: T) -> bool {
    v.field().wrapping_sub(2) < T::TOP - 2
}

/// How one instruction computes, and the exceptions that it has met.
pub struct Env {
    pub mode: Round,
    daz: bool,
    ftz: bool,
    /// To nearest, as the host's arithmetic does.
    nearest: bool,
    /// Nobody need be told of inexact results.
    inexact: bool,
    silent: bool,
    pub flags: u32,
}

impl Env {
    #[cfg_attr(not(target_family = "wasm"), inline(always))]
    #[cfg_attr(target_family = "wasm", inline(never))]
    pub fn of<M>(c: &Core, o: &Op<M>) -> Env {
        let mode = match o.rounding {
            0 => Round::of(c.mxcsr >> 13),
            n => Round::of(n as u32 - 1),
        };
        let silent = o.has(bit::SILENT);
        Env {
            mode,
            daz: c.mxcsr & DAZ != 0,
            // Only where underflow is masked, as an instruction does that is silent.
            ftz: c.mxcsr & FTZ != 0 && (silent || c.mxcsr & UE << 7 != 0),
            nearest: mode == Round::Nearest,
            // Where the exception is not masked, each inexact result ends the instruction.
            inexact: silent || c.mxcsr & (PE | PE << 7) == PE | PE << 7,
            silent,
            flags: 0,
        }
    }

    /// As instructions on bfloats compute, which neither ask MXCSR nor tell it anything.
    pub fn of_bfloats() -> Env {
        Env {
            mode: Round::Nearest,
            daz: true,
            ftz: true,
            nearest: true,
            inexact: true,
            silent: true,
            flags: 0,
        }
    }

    /// For half precision, whose denormals are ordinary numbers: MXCSR does not make zeros of them.
    pub fn keep_tiny_halves(&mut self) {
        self.ftz = false;
    }

    /// Notes the exceptions. False if one is not masked: nothing must be stored then.
    #[cfg_attr(not(target_family = "wasm"), inline(always))]
    #[cfg_attr(target_family = "wasm", inline(never))]
    pub fn finish(&self, c: &mut Core) -> bool {
        if self.silent || self.flags & !c.mxcsr == 0 {
            return true;
        }
        if self.flags & !(c.mxcsr >> 7) & 0x3f != 0 {
            c.fault = Some(Fault::Exception(EXCEPTION));
            return false;
        }
        c.mxcsr |= self.flags;
        true
    }

    /// Reads a number. The flag: a denormal.
    pub fn unpack<T: Encoded>(&self, v: T) -> (Number, bool) {
        let (n, denormal) = Number::unpack(v.wide(), T::FORMAT);
        match denormal && self.daz {
            true => (
                Number::Zero {
                    negative: n.negative(),
                },
                false,
            ),
            false => (n, denormal),
        }
    }

    pub fn denormal(&mut self, is: bool) {
        if is {
            self.flags |= DE;
        }
    }

    /// Rounds a result.
    pub fn pack<T: Encoded>(&mut self, r: Rounded) -> T {
        let rounded = soft::round(r.number, T::FORMAT, self.mode, self.ftz);
        self.flags |= r.flags | rounded.flags;
        T::of(rounded.number.pack(T::FORMAT))
    }

    /// The result if an operand is a NaN: the first one that is.
    pub fn nan<T: Encoded>(&mut self, operands: &[Number]) -> Option<T> {
        let nan = operands.iter().find(|n| n.is_nan())?;
        if operands.iter().any(|n| n.is_signaling()) {
            self.flags |= IE;
        }
        Some(T::of(nan.quiet().pack(T::FORMAT)))
    }

    fn slow<T: Float>(
        &mut self,
        a: T,
        b: T,
        f: impl FnOnce(Number, Number, Round) -> Rounded,
    ) -> T {
        let ((a, at), (b, bt)) = (self.unpack(a), self.unpack(b));
        if let Some(nan) = self.nan(&[a, b]) {
            return nan;
        }
        let r = f(a, b, self.mode);
        self.denormal((at || bt) && r.flags & (IE | ZE) == 0);
        self.pack(r)
    }

    #[inline(always)]
    pub fn add<T: Float>(&mut self, a: T, b: T) -> T {
        let r = a.host_add(b);
        let same = self.nearest && plain(a) && plain(b) && (normal(r) || is_zero(r));
        if same && (self.inexact || a.sum_is_exact(b, r)) {
            return r;
        }
        self.slow(a, b, soft::add)
    }

    #[inline(always)]
    pub fn sub<T: Float>(&mut self, a: T, b: T) -> T {
        let r = a.host_sub(b);
        let same = self.nearest && plain(a) && plain(b) && (normal(r) || is_zero(r));
        if same && (self.inexact || a.sum_is_exact(b ^ sign(), r)) {
            return r;
        }
        self.slow(a, b, |a, b, mode| {
            soft::add(a, b.with_sign(!b.negative()), mode)
        })
    }

    #[inline(always)]
    pub fn mul<T: Float>(&mut self, a: T, b: T) -> T {
        let r = a.host_mul(b);
        let zero = is_zero(a) || is_zero(b);
        let same = self.nearest && plain(a) && plain(b) && (normal(r) || zero);
        if same && (self.inexact || zero || a.product_is_exact(b, r)) {
            return r;
        }
        self.slow(a, b, |a, b, _| soft::mul(a, b))
    }

    #[inline(always)]
    pub fn div<T: Float>(&mut self, a: T, b: T) -> T {
        let r = a.host_div(b);
        let zero = is_zero(a);
        let same = self.nearest && plain(a) && plain(b) && !is_zero(b) && (normal(r) || zero);
        if same && (self.inexact || zero || r.product_is_exact(b, a)) {
            return r;
        }
        self.slow(a, b, |a, b, _| soft::div(a, b))
    }

    #[inline(always)]
    pub fn sqrt<T: Float>(&mut self, b: T) -> T {
        if self.nearest && normal(b) && !b.top() {
            let r = b.host_sqrt();
            if self.inexact || r.product_is_exact(r, b) {
                return r;
            }
        }
        let (n, denormal) = self.unpack(b);
        if let Some(nan) = self.nan(&[n]) {
            return nan;
        }
        let r = soft::sqrt(n);
        self.denormal(denormal && r.flags & IE == 0);
        self.pack(r)
    }

    /// `a * b + c` with one rounding, the product and `c` with these signs. Of several NaNs the result is the first
    /// of `order`.
    pub fn fma<T: Float>(
        &mut self,
        (a, b, c): (T, T, T),
        negates: (bool, bool),
        order: [usize; 3],
    ) -> T {
        if self.nearest && plain(a) && plain(b) && plain(c) {
            let x = if negates.0 { a ^ sign() } else { a };
            let z = if negates.1 { c ^ sign() } else { c };
            if self.inexact || is_zero(a) || is_zero(b) {
                let r = x.host_fma(b, z);
                if normal(r) || is_zero(a) || is_zero(b) {
                    return r;
                }
            } else {
                let product = x.host_mul(b);
                let r = product.host_add(z);
                let exact = normal(product) && x.product_is_exact(b, product);
                if exact && normal(r) && product.sum_is_exact(z, r) {
                    return r;
                }
            }
        }
        let all = [a, b, c].map(|v| self.unpack(v));
        let n = all.map(|v| v.0);
        if n.iter().any(|n| n.is_nan()) {
            // Infinity times zero is no invalid operation here: the result is a NaN anyway.
            return self.nan(&order.map(|i| n[i])).unwrap_or_default();
        }
        let product = soft::mul(n[0], n[1]);
        let r = match product.flags & IE {
            0 => {
                let p = product.number;
                let p = p.with_sign(p.negative() != negates.0);
                let z = n[2].with_sign(n[2].negative() != negates.1);
                soft::add(p, z, self.mode)
            }
            _ => product,
        };
        self.denormal(all.iter().any(|v| v.1) && r.flags & IE == 0);
        self.pack(r)
    }

    /// MIN and MAX give the second operand if they cannot decide. `wanted` is how the first must compare.
    pub fn pick<T: Float>(&mut self, a: T, b: T, wanted: Ordering) -> T {
        let ((x, xt), (y, yt)) = (self.unpack(a), self.unpack(b));
        let Some(order) = soft::compare(x, y) else {
            self.flags |= IE;
            return T::of(y.pack(T::FORMAT));
        };
        self.denormal(xt || yt);
        let n = if order == wanted { x } else { y };
        T::of(n.pack(T::FORMAT))
    }

    /// Compares. `None`: one is a NaN. `signals`: a quiet one is invalid, too.
    pub fn compare<T: Float>(&mut self, a: T, b: T, signals: bool) -> Option<Ordering> {
        let ((x, xt), (y, yt)) = (self.unpack(a), self.unpack(b));
        let order = soft::compare(x, y);
        if order.is_none() && (signals || x.is_signaling() || y.is_signaling()) {
            self.flags |= IE;
        }
        self.denormal((xt || yt) && order.is_some());
        order
    }

    /// Rounds to a whole number.
    pub fn integral<T: Float>(&mut self, v: T, mode: Round, exact: bool) -> T {
        let (n, _) = self.unpack(v);
        if let Some(nan) = self.nan(&[n]) {
            return nan;
        }
        let r = soft::integral(n, mode);
        if !exact {
            self.flags |= r.flags;
        }
        T::of(r.number.pack(T::FORMAT))
    }

    /// To another format.
    pub fn convert<S: Encoded, T: Encoded>(&mut self, v: S) -> T {
        let (n, denormal) = self.unpack(v);
        if n.is_nan() {
            return self.nan(&[n]).unwrap_or_default();
        }
        self.denormal(denormal);
        self.pack(Rounded {
            number: n,
            flags: 0,
            up: false,
        })
    }

    /// From half precision.
    pub fn widen_half(&mut self, v: u16) -> u32 {
        let (n, _) = Number::unpack(v as u64, F16);
        match self.nan(&[n]) {
            Some(nan) => nan,
            None => n.pack(F32) as u32,
        }
    }

    /// To an integer of so many bits. What does not fit gives the highest bit alone, or all bits without a sign.
    pub fn integer<T: Float>(&mut self, v: T, mode: Round, bits: u32, signed: bool) -> u64 {
        let (n, _) = self.unpack(v);
        match soft::to_integer(n, mode, bits, signed) {
            Some((v, flags, _)) => {
                self.flags |= flags;
                v
            }
            None => {
                self.flags |= IE;
                match signed {
                    true => 1 << (bits - 1),
                    false => u64::MAX,
                }
            }
        }
    }

    /// From an integer.
    pub fn number<T: Float>(&mut self, v: u64, signed: bool) -> T {
        let negative = signed && v >> 63 != 0;
        let magnitude = if negative { v.wrapping_neg() } else { v };
        self.pack(Rounded {
            number: soft::from_integer(negative, magnitude as u128),
            flags: 0,
            up: false,
        })
    }
}

/// Ends an instruction whose exceptions were noted.
pub const fn flow(done: bool) -> Flow {
    if done { Flow::Next } else { Flow::Fault }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of few bits, whose sums and products are often exact, and any others.
    fn operand() -> impl Strategy<Value = u64> {
        let small = (-64i64..64, -40i32..40).prop_map(|(n, k)| (n as f64 * 2f64.powi(k)).to_bits());
        let edge = (any::<i8>(), -1074i32..1000);
        let edge = edge.prop_map(|(n, k)| (n as f64 * 2f64.powi(k)).to_bits());
        prop_oneof![4 => small, 2 => edge, 1 => any::<u64>()]
    }

    fn env(nearest: bool, inexact: bool) -> Env {
        Env {
            mode: Round::Nearest,
            daz: false,
            ftz: false,
            nearest,
            inexact,
            silent: false,
            flags: 0,
        }
    }

    /// All operations on the operands: results and flags.
    fn all<T: Float>(e: impl Fn() -> Env, [a, b, c]: [T; 3]) -> Vec<(T, u32)> {
        let signs = [(false, false), (true, false), (false, true), (true, true)];
        let mut out = Vec::new();
        let mut one = |f: &dyn Fn(&mut Env) -> T| {
            let mut e = e();
            let r = f(&mut e);
            out.push((r, e.flags));
        };
        one(&|e| e.add(a, b));
        one(&|e| e.sub(a, b));
        one(&|e| e.mul(a, b));
        one(&|e| e.div(a, b));
        one(&|e| e.sqrt(a));
        for negates in signs {
            one(&|e| e.fma((a, b, c), negates, [0, 1, 2]));
        }
        out
    }

    fn agrees<T: Float + std::fmt::Debug>(operands: [T; 3]) -> Result<(), TestCaseError> {
        let soft = all(|| env(false, false), operands);
        prop_assert_eq!(&all(|| env(true, false), operands), &soft);
        let told = |list: &[(T, u32)]| -> Vec<(T, u32)> {
            list.iter().map(|(r, flags)| (*r, *flags | PE)).collect()
        };
        let known = all(|| env(true, true), operands);
        prop_assert_eq!(told(&known), told(&soft));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// The host's arithmetic gives what `soft` gives, and the same flags.
        #[test]
        fn the_host_is_as_exact(operands in [operand(), operand(), operand()]) {
            agrees(operands)?;
            agrees(operands.map(|v| (f64::from_bits(v) as f32).to_bits()))?;
        }
    }
}
