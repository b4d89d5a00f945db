//! Integer arithmetic, logic and comparisons, element by element.

use super::element::{Element, make};
use super::form::{element_operations, lane_operations, lanes, lanewise_shifted};
use crate::Memory;
use crate::op::{Op, Run};
use iced_x86::{Instruction, Mnemonic};

/// All ones if a condition holds.
macro_rules! ones {
    ($t:ty, $condition:expr) => {
        if $condition { <$t>::MAX } else { 0 }
    };
}

element_operations! {
    AddB: u8 => u8, |x, y| x.wrapping_add(y);
    AddW: u16 => u16, |x, y| x.wrapping_add(y);
    AddD: u32 => u32, |x, y| x.wrapping_add(y);
    AddQ: u64 => u64, |x, y| x.wrapping_add(y);
    SubB: u8 => u8, |x, y| x.wrapping_sub(y);
    SubW: u16 => u16, |x, y| x.wrapping_sub(y);
    SubD: u32 => u32, |x, y| x.wrapping_sub(y);
    SubQ: u64 => u64, |x, y| x.wrapping_sub(y);
    AddSatB: i8 => i8, |x, y| x.saturating_add(y);
    AddSatW: i16 => i16, |x, y| x.saturating_add(y);
    AddSatUB: u8 => u8, |x, y| x.saturating_add(y);
    AddSatUW: u16 => u16, |x, y| x.saturating_add(y);
    SubSatB: i8 => i8, |x, y| x.saturating_sub(y);
    SubSatW: i16 => i16, |x, y| x.saturating_sub(y);
    SubSatUB: u8 => u8, |x, y| x.saturating_sub(y);
    SubSatUW: u16 => u16, |x, y| x.saturating_sub(y);
    MulLowW: u16 => u16, |x, y| x.wrapping_mul(y);
    MulLowD: u32 => u32, |x, y| x.wrapping_mul(y);
    MulLowQ: u64 => u64, |x, y| x.wrapping_mul(y);
    MulHighW: i16 => i16, |x, y| ((x as i32 * y as i32) >> 16) as i16;
    MulHighUW: u16 => u16, |x, y| ((x as u32 * y as u32) >> 16) as u16;
    MulRoundW: i16 => i16, |x, y| ((((x as i32 * y as i32) >> 14) + 1) >> 1) as i16;
    MulUDQ: u64 => u64, |x, y| (x as u32 as u64) * (y as u32 as u64);
    MulDQ: u64 => u64, |x, y| ((x as i32 as i64) * (y as i32 as i64)) as u64;
    AvgB: u8 => u8, |x, y| ((x as u16 + y as u16 + 1) >> 1) as u8;
    AvgW: u16 => u16, |x, y| ((x as u32 + y as u32 + 1) >> 1) as u16;
    MinB: i8 => i8, |x, y| x.min(y);
    MinW: i16 => i16, |x, y| x.min(y);
    MinD: i32 => i32, |x, y| x.min(y);
    MinQ: i64 => i64, |x, y| x.min(y);
    MinUB: u8 => u8, |x, y| x.min(y);
    MinUW: u16 => u16, |x, y| x.min(y);
    MinUD: u32 => u32, |x, y| x.min(y);
    MinUQ: u64 => u64, |x, y| x.min(y);
    MaxB: i8 => i8, |x, y| x.max(y);
    MaxW: i16 => i16, |x, y| x.max(y);
    MaxD: i32 => i32, |x, y| x.max(y);
    MaxQ: i64 => i64, |x, y| x.max(y);
    MaxUB: u8 => u8, |x, y| x.max(y);
    MaxUW: u16 => u16, |x, y| x.max(y);
    MaxUD: u32 => u32, |x, y| x.max(y);
    MaxUQ: u64 => u64, |x, y| x.max(y);
    EqualB: u8 => u8, |x, y| ones!(u8, x == y);
    EqualW: u16 => u16, |x, y| ones!(u16, x == y);
    EqualD: u32 => u32, |x, y| ones!(u32, x == y);
    EqualQ: u64 => u64, |x, y| ones!(u64, x == y);
    GreaterB: i8 => u8, |x, y| ones!(u8, x > y);
    GreaterW: i16 => u16, |x, y| ones!(u16, x > y);
    GreaterD: i32 => u32, |x, y| ones!(u32, x > y);
    GreaterQ: i64 => u64, |x, y| ones!(u64, x > y);
    BitAnd: u64 => u64, |x, y| x & y;
    AndNot: u64 => u64, |x, y| !x & y;
    BitOr: u64 => u64, |x, y| x | y;
    BitXor: u64 => u64, |x, y| x ^ y;
    AbsB: i8 => u8, |x, y| y.unsigned_abs();
    AbsW: i16 => u16, |x, y| y.unsigned_abs();
    AbsD: i32 => u32, |x, y| y.unsigned_abs();
    AbsQ: i64 => u64, |x, y| y.unsigned_abs();
    SignB: i8 => i8, |x, y| sign(x as i64, y as i64) as i8;
    SignW: i16 => i16, |x, y| sign(x as i64, y as i64) as i16;
    SignD: i32 => i32, |x, y| sign(x as i64, y as i64) as i32;
    PopcntB: u8 => u8, |x, y| y.count_ones() as u8;
    PopcntW: u16 => u16, |x, y| y.count_ones() as u16;
    PopcntD: u32 => u32, |x, y| y.count_ones();
    PopcntQ: u64 => u64, |x, y| y.count_ones() as u64;
    LzcntD: u32 => u32, |x, y| y.leading_zeros();
    LzcntQ: u64 => u64, |x, y| y.leading_zeros() as u64;
}

/// `x` with the sign of `y`, zero if `y` is.
fn sign(x: i64, y: i64) -> i64 {
    x.wrapping_mul(y.signum())
}

fn word(l: &[u8; 16], i: usize) -> i32 {
    i16::get(l, i) as i32
}

fn saturate(v: i32) -> i16 {
    v.clamp(i16::MIN as i32, i16::MAX as i32) as i16
}

/// Pairs of neighbours: those of the first operand, then those of the second.
fn horizontal<T: Element>(a: [u8; 16], b: [u8; 16], f: impl Fn(T, T) -> T) -> [u8; 16] {
    let half = 8 / T::BYTES;
    make::<T>(|i| {
        let (l, i) = if i < half { (&a, i) } else { (&b, i - half) };
        f(T::get(l, 2 * i), T::get(l, 2 * i + 1))
    })
}

lane_operations! {
    // Products of neighbouring words, added.
    MaddWD: |c, a, b, imm| make::<u32>(|i| {
        let p = |k| (word(&a, k) * word(&b, k)) as u32;
        p(2 * i).wrapping_add(p(2 * i + 1))
    });
    // Bytes without a sign times bytes with one.
    MaddUBSW: |c, a, b, imm| make::<i16>(|i| {
        let p = |k| a[k] as i32 * b[k] as i8 as i32;
        saturate(p(2 * i) + p(2 * i + 1))
    });
    SadBW: |c, a, b, imm| make::<u64>(|i| {
        (8 * i..8 * i + 8).map(|k| a[k].abs_diff(b[k]) as u64).sum()
    });
    HaddW: |c, a, b, imm| horizontal::<i16>(a, b, i16::wrapping_add);
    HaddD: |c, a, b, imm| horizontal::<i32>(a, b, i32::wrapping_add);
    HaddSatW: |c, a, b, imm| horizontal::<i16>(a, b, i16::saturating_add);
    HsubW: |c, a, b, imm| horizontal::<i16>(a, b, i16::wrapping_sub);
    HsubD: |c, a, b, imm| horizontal::<i32>(a, b, i32::wrapping_sub);
    HsubSatW: |c, a, b, imm| horizontal::<i16>(a, b, i16::saturating_sub);
    // The least word and its number.
    MinPos: |c, a, b, imm| {
        let at = (0..8).min_by_key(|i| u16::get(&b, *i)).unwrap_or(0);
        let mut r = [0; 16];
        u16::get(&b, at).put(&mut r, 0);
        (at as u16).put(&mut r, 1);
        r
    };
    MpsadBW: |c, a, b, imm| {
        let (from, with) = ((imm as usize >> 2 & 1) * 4, (imm as usize & 3) * 4);
        make::<u16>(|i| (0..4).map(|k| a[from + i + k].abs_diff(b[with + k]) as u16).sum())
    };
    // Words of sums at four places of each half, beside dwords of the last operand in another order.
    SumDistances: |c, a, b, imm| {
        let b = make::<u32>(|i| u32::get(&b, imm as usize >> (2 * i) & 3));
        make::<u16>(|i| {
            let (x, y) = (8 * (i / 4) + 4 * (i / 2 % 2), 8 * (i / 4) + i % 4);
            (0..4).map(|k| a[x + k].abs_diff(b[y + k]) as u16).sum()
        })
    };
    PackSSWB: |c, a, b, imm| make::<i8>(|i| {
        let v = if i < 8 { word(&a, i) } else { word(&b, i - 8) };
        v.clamp(i8::MIN as i32, i8::MAX as i32) as i8
    });
    PackUSWB: |c, a, b, imm| make::<u8>(|i| {
        let v = if i < 8 { word(&a, i) } else { word(&b, i - 8) };
        v.clamp(0, 255) as u8
    });
    PackSSDW: |c, a, b, imm| make::<i16>(|i| {
        saturate(if i < 4 { i32::get(&a, i) } else { i32::get(&b, i - 4) })
    });
    PackUSDW: |c, a, b, imm| make::<u16>(|i| {
        let v = if i < 4 { i32::get(&a, i) } else { i32::get(&b, i - 4) };
        v.clamp(0, 65535) as u16
    });
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    // Comparisons with a mask as the result are in another file.
    if i.op0_register().is_k() {
        return Option::None;
    }
    // Where the elements of the result have another size than those of the operands.
    o.element = match i.mnemonic() {
        Vpacksswb | Vpackuswb => 1,
        Vpackssdw | Vpackusdw | Vpmaddubsw | Vdbpsadbw => 2,
        Vpmaddwd => 4,
        Vpmuludq | Vpmuldq => 8,
        _ => o.element,
    };
    match i.mnemonic() {
        Paddb | Vpaddb => lanes::<M, AddB>(o),
        Paddw | Vpaddw => lanes::<M, AddW>(o),
        Paddd | Vpaddd => lanes::<M, AddD>(o),
        Paddq | Vpaddq => lanes::<M, AddQ>(o),
        Psubb | Vpsubb => lanes::<M, SubB>(o),
        Psubw | Vpsubw => lanes::<M, SubW>(o),
        Psubd | Vpsubd => lanes::<M, SubD>(o),
        Psubq | Vpsubq => lanes::<M, SubQ>(o),
        Paddsb | Vpaddsb => lanes::<M, AddSatB>(o),
        Paddsw | Vpaddsw => lanes::<M, AddSatW>(o),
        Paddusb | Vpaddusb => lanes::<M, AddSatUB>(o),
        Paddusw | Vpaddusw => lanes::<M, AddSatUW>(o),
        Psubsb | Vpsubsb => lanes::<M, SubSatB>(o),
        Psubsw | Vpsubsw => lanes::<M, SubSatW>(o),
        Psubusb | Vpsubusb => lanes::<M, SubSatUB>(o),
        Psubusw | Vpsubusw => lanes::<M, SubSatUW>(o),
        Pmullw | Vpmullw => lanes::<M, MulLowW>(o),
        Pmulld | Vpmulld => lanes::<M, MulLowD>(o),
        Vpmullq => lanes::<M, MulLowQ>(o),
        Pmulhw | Vpmulhw => lanes::<M, MulHighW>(o),
        Pmulhuw | Vpmulhuw => lanes::<M, MulHighUW>(o),
        Pmulhrsw | Vpmulhrsw => lanes::<M, MulRoundW>(o),
        Pmuludq | Vpmuludq => lanes::<M, MulUDQ>(o),
        Pmuldq | Vpmuldq => lanes::<M, MulDQ>(o),
        Pmaddwd | Vpmaddwd => lanes::<M, MaddWD>(o),
        Pmaddubsw | Vpmaddubsw => lanes::<M, MaddUBSW>(o),
        Psadbw | Vpsadbw => lanes::<M, SadBW>(o),
        Mpsadbw => lanes::<M, MpsadBW>(o),
        Vmpsadbw => Some(lanewise_shifted::<M, MpsadBW, 3>),
        Vdbpsadbw => lanes::<M, SumDistances>(o),
        Phminposuw | Vphminposuw => lanes::<M, MinPos>(o),
        Pavgb | Vpavgb => lanes::<M, AvgB>(o),
        Pavgw | Vpavgw => lanes::<M, AvgW>(o),
        Pcmpeqb | Vpcmpeqb => lanes::<M, EqualB>(o),
        Pcmpeqw | Vpcmpeqw => lanes::<M, EqualW>(o),
        Pcmpeqd | Vpcmpeqd => lanes::<M, EqualD>(o),
        Pcmpeqq | Vpcmpeqq => lanes::<M, EqualQ>(o),
        Pcmpgtb | Vpcmpgtb => lanes::<M, GreaterB>(o),
        Pcmpgtw | Vpcmpgtw => lanes::<M, GreaterW>(o),
        Pcmpgtd | Vpcmpgtd => lanes::<M, GreaterD>(o),
        Pcmpgtq | Vpcmpgtq => lanes::<M, GreaterQ>(o),
        Pand | Vpand | Vpandd | Vpandq | Andps | Andpd | Vandps | Vandpd => lanes::<M, BitAnd>(o),
        Pandn | Vpandn | Vpandnd | Vpandnq | Andnps | Andnpd | Vandnps | Vandnpd => {
            lanes::<M, AndNot>(o)
        }
        Por | Vpor | Vpord | Vporq | Orps | Orpd | Vorps | Vorpd => lanes::<M, BitOr>(o),
        Pxor | Vpxor | Vpxord | Vpxorq | Xorps | Xorpd | Vxorps | Vxorpd => lanes::<M, BitXor>(o),
        Pabsb | Vpabsb => lanes::<M, AbsB>(o),
        Pabsw | Vpabsw => lanes::<M, AbsW>(o),
        Pabsd | Vpabsd => lanes::<M, AbsD>(o),
        Vpabsq => lanes::<M, AbsQ>(o),
        Psignb | Vpsignb => lanes::<M, SignB>(o),
        Psignw | Vpsignw => lanes::<M, SignW>(o),
        Psignd | Vpsignd => lanes::<M, SignD>(o),
        Phaddw | Vphaddw => lanes::<M, HaddW>(o),
        Phaddd | Vphaddd => lanes::<M, HaddD>(o),
        Phaddsw | Vphaddsw => lanes::<M, HaddSatW>(o),
        Phsubw | Vphsubw => lanes::<M, HsubW>(o),
        Phsubd | Vphsubd => lanes::<M, HsubD>(o),
        Phsubsw | Vphsubsw => lanes::<M, HsubSatW>(o),
        Packsswb | Vpacksswb => lanes::<M, PackSSWB>(o),
        Packuswb | Vpackuswb => lanes::<M, PackUSWB>(o),
        Packssdw | Vpackssdw => lanes::<M, PackSSDW>(o),
        Packusdw | Vpackusdw => lanes::<M, PackUSDW>(o),
        Vpopcntb => lanes::<M, PopcntB>(o),
        Vpopcntw => lanes::<M, PopcntW>(o),
        Vpopcntd => lanes::<M, PopcntD>(o),
        Vpopcntq => lanes::<M, PopcntQ>(o),
        Vplzcntd => lanes::<M, LzcntD>(o),
        Vplzcntq => lanes::<M, LzcntQ>(o),
        _ => extremes(i, o),
    }
}

/// Minima and maxima.
fn extremes<M: Memory>(i: &Instruction, o: &Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    match i.mnemonic() {
        Pminsb | Vpminsb => lanes::<M, MinB>(o),
        Pminsw | Vpminsw => lanes::<M, MinW>(o),
        Pminsd | Vpminsd => lanes::<M, MinD>(o),
        Vpminsq => lanes::<M, MinQ>(o),
        Pminub | Vpminub => lanes::<M, MinUB>(o),
        Pminuw | Vpminuw => lanes::<M, MinUW>(o),
        Pminud | Vpminud => lanes::<M, MinUD>(o),
        Vpminuq => lanes::<M, MinUQ>(o),
        Pmaxsb | Vpmaxsb => lanes::<M, MaxB>(o),
        Pmaxsw | Vpmaxsw => lanes::<M, MaxW>(o),
        Pmaxsd | Vpmaxsd => lanes::<M, MaxD>(o),
        Vpmaxsq => lanes::<M, MaxQ>(o),
        Pmaxub | Vpmaxub => lanes::<M, MaxUB>(o),
        Pmaxuw | Vpmaxuw => lanes::<M, MaxUW>(o),
        Pmaxud | Vpmaxud => lanes::<M, MaxUD>(o),
        Vpmaxuq => lanes::<M, MaxUQ>(o),
        _ => Option::None,
    }
}
