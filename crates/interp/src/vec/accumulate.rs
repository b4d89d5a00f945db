//! Products that are added to the destination, by integers; and shifts of two elements together.

use super::element::{Element, make};
use super::form::{last, store};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Int, Op, Run};
use crate::word::Lane;
use iced_x86::{Instruction, Mnemonic};

/// An operation on lanes whose destination is the first source.
trait Threefold {
    fn lane(d: &Lane, a: &Lane, b: &Lane) -> Lane;
}

fn threefold<M: Memory, F: Threefold>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (d, a, b) = (
        c.zmm[(o.a & 31) as usize],
        c.zmm[(o.b & 31) as usize],
        last(c, m, o),
    );
    let mut r = [[0; 16]; 4];
    for l in 0..(o.lanes as usize).min(4) {
        r[l] = F::lane(&d[l], &a[l], &b[l]);
    }
    store(c, o, &r);
    Flow::Next
}

/// Declares operations on three elements: `name: type, |d, a, b| element;`.
macro_rules! threefold_elements {
    ($($name:ident: $t:ty, |$d:ident, $a:ident, $b:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl Threefold for $name {
                fn lane(d: &Lane, a: &Lane, b: &Lane) -> Lane {
                    make::<$t>(|i| {
                        let ($d, $a, $b) = (<$t>::get(d, i), <$t>::get(a, i), <$t>::get(b, i));
                        $r
                    })
                }
            }
        )*
    };
}

threefold_elements! {
    // Bytes without a sign times bytes with one.
    DotBytes: i32, |d, a, b| d.wrapping_add(bytes(a, b));
    DotBytesSaturated: i32, |d, a, b| d.saturating_add(bytes(a, b));
    DotWords: i32, |d, a, b| (d as i64 + words(a, b)) as i32;
    DotWordsSaturated: i32, |d, a, b| {
        (d as i64 + words(a, b)).clamp(i32::MIN as i64, i32::MAX as i64) as i32
    };
    Multiply52Low: u64, |d, a, b| d.wrapping_add(product52(a, b) as u64 & LOW52);
    Multiply52High: u64, |d, a, b| d.wrapping_add((product52(a, b) >> 52) as u64);
    LeftW: u16, |d, a, b| left(d, a, b as u32);
    LeftD: u32, |d, a, b| left(d, a, b);
    LeftQ: u64, |d, a, b| left(d, a, b as u32);
    RightW: u16, |d, a, b| right(a, d, b as u32);
    RightD: u32, |d, a, b| right(a, d, b);
    RightQ: u64, |d, a, b| right(a, d, b as u32);
}

fn bytes(a: i32, b: i32) -> i32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    (0..4).map(|i| a[i] as i32 * b[i] as i8 as i32).sum()
}

fn words(a: i32, b: i32) -> i64 {
    let low = a as i16 as i64 * b as i16 as i64;
    low + (a >> 16) as i64 * (b >> 16) as i64
}

const LOW52: u64 = (1 << 52) - 1;

fn product52(a: u64, b: u64) -> u128 {
    (a & LOW52) as u128 * (b & LOW52) as u128
}

/// The upper element of two that are shifted left.
fn left<T: Int>(high: T, low: T, by: u32) -> T {
    let both = (high.wide() as u128) << T::BITS | low.wide() as u128;
    T::of((both << (by % T::BITS) >> T::BITS) as u64)
}

/// The lower element of two that are shifted right.
fn right<T: Int>(high: T, low: T, by: u32) -> T {
    let both = (high.wide() as u128) << T::BITS | low.wide() as u128;
    T::of((both >> (by % T::BITS)) as u64)
}

/// VPSHLD (`LEFT`) and VPSHRD by the constant.
fn by_constant<M: Memory, T: Element + Int, const LEFT: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let (a, b) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut r = [[0; 16]; 4];
    for l in 0..(o.lanes as usize).min(4) {
        r[l] = make::<T>(|i| {
            let (x, y) = (T::get(&a[l], i), T::get(&b[l], i));
            match LEFT {
                true => left(x, y, o.imm as u32),
                false => right(y, x, o.imm as u32),
            }
        });
    }
    store(c, o, &r);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let (run, element): (Run<M>, u8) = match i.mnemonic() {
        Vpdpbusd => (threefold::<M, DotBytes>, 4),
        Vpdpbusds => (threefold::<M, DotBytesSaturated>, 4),
        Vpdpwssd => (threefold::<M, DotWords>, 4),
        Vpdpwssds => (threefold::<M, DotWordsSaturated>, 4),
        Vpmadd52luq => (threefold::<M, Multiply52Low>, 8),
        Vpmadd52huq => (threefold::<M, Multiply52High>, 8),
        Vpshldvw => (threefold::<M, LeftW>, 2),
        Vpshldvd => (threefold::<M, LeftD>, 4),
        Vpshldvq => (threefold::<M, LeftQ>, 8),
        Vpshrdvw => (threefold::<M, RightW>, 2),
        Vpshrdvd => (threefold::<M, RightD>, 4),
        Vpshrdvq => (threefold::<M, RightQ>, 8),
        Vpshldw => (by_constant::<M, u16, true>, 2),
        Vpshldd => (by_constant::<M, u32, true>, 4),
        Vpshldq => (by_constant::<M, u64, true>, 8),
        Vpshrdw => (by_constant::<M, u16, false>, 2),
        Vpshrdd => (by_constant::<M, u32, false>, 4),
        Vpshrdq => (by_constant::<M, u64, false>, 8),
        _ => return Option::None,
    };
    o.element = element;
    Some(run)
}
