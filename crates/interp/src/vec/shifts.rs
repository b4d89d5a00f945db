//! Shifts of elements and of whole lanes.

use super::element::{Element, make};
use super::form::{lane_operations, lanes, last, last_mmx, store, store_mmx};
use crate::Memory;
use crate::core::Core;
use crate::op::{Flow, Op, Run, bit};
use crate::word::Lane;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// A shift of an element by any count.
trait Shift {
    type Of: Element;
    fn shift(x: Self::Of, n: u64) -> Self::Of;
}

macro_rules! shifts {
    ($($name:ident: $t:ty, |$x:ident, $n:ident| $e:expr;)*) => {
        $(
            struct $name;
            impl Shift for $name {
                type Of = $t;
                #[inline(always)]
                fn shift($x: $t, $n: u64) -> $t {
                    $e
                }
            }
        )*
    };
}

shifts! {
    LeftW: u16, |x, n| x.checked_shl(n.min(64) as u32).unwrap_or(0);
    LeftD: u32, |x, n| x.checked_shl(n.min(64) as u32).unwrap_or(0);
    LeftQ: u64, |x, n| x.checked_shl(n.min(64) as u32).unwrap_or(0);
    RightW: u16, |x, n| x.checked_shr(n.min(64) as u32).unwrap_or(0);
    RightD: u32, |x, n| x.checked_shr(n.min(64) as u32).unwrap_or(0);
    RightQ: u64, |x, n| x.checked_shr(n.min(64) as u32).unwrap_or(0);
    ArithmeticW: i16, |x, n| x >> n.min(15);
    ArithmeticD: i32, |x, n| x >> n.min(31);
    ArithmeticQ: i64, |x, n| x >> n.min(63);
    RotateLeftD: u32, |x, n| x.rotate_left((n % 32) as u32);
    RotateLeftQ: u64, |x, n| x.rotate_left((n % 64) as u32);
    RotateRightD: u32, |x, n| x.rotate_right((n % 32) as u32);
    RotateRightQ: u64, |x, n| x.rotate_right((n % 64) as u32);
}

fn each<S: Shift>(a: &Lane, n: u64) -> Lane {
    make::<S::Of>(|i| S::shift(S::Of::get(a, i), n))
}

/// All elements by the constant. The operand is the last one.
fn by_constant<M: Memory, S: Shift>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v = last(c, m, o);
    let r = v.map(|l| each::<S>(&l, o.imm));
    store(c, o, &r);
    Flow::Next
}

/// All elements by the low 64 bits of the last operand.
fn by_scalar<M: Memory, S: Shift>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let n = match o.has(bit::MEMORY) {
        true => m.load(o.address(c)),
        false => c.zmm[(o.c & 31) as usize][0],
    };
    let n = u64::get(&n, 0);
    let r = c.zmm[(o.b & 31) as usize].map(|l| each::<S>(&l, n));
    store(c, o, &r);
    Flow::Next
}

/// Each element by that of the last operand.
fn by_each<M: Memory, S: Shift<Of = T>, T: Element>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, n) = (c.zmm[(o.b & 31) as usize], last(c, m, o));
    let mut r = [[0; 16]; 4];
    for (l, r) in r.iter_mut().enumerate() {
        *r = make::<T>(|i| {
            let by = match T::BYTES {
                2 => u16::get(&n[l], i) as u64,
                4 => u32::get(&n[l], i) as u64,
                _ => u64::get(&n[l], i),
            };
            S::shift(T::get(&a[l], i), by)
        });
    }
    store(c, o, &r);
    Flow::Next
}

lane_operations! {
    // The constant shifts whole bytes of the last operand.
    LeftBytes: |c, a, b, imm| make::<u8>(|i| match i.checked_sub(imm as usize) {
        Some(i) => b[i],
        None => 0,
    });
    RightBytes: |c, a, b, imm| make::<u8>(|i| match i + imm as usize {
        i @ 0..16 => b[i],
        _ => 0,
    });
}

/// All elements of an MMX register by the constant, or by the last operand.
fn in_mmx<M: Memory, S: Shift, const CONSTANT: bool>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let n = match CONSTANT {
        true => o.imm,
        false => last_mmx(c, m, o),
    };
    let r = each::<S>(&(c.x87.mmx(o.b) as u128).to_le_bytes(), n);
    store_mmx(c, o, u64::get(&r, 0));
    Flow::Next
}

fn shift<M: Memory, S: Shift>(i: &Instruction, o: &Op<M>) -> Option<Run<M>> {
    let constant = i.op_kind(i.op_count() - 1) == OpKind::Immediate8;
    Some(match (o.has(bit::MMX), constant) {
        (true, true) => in_mmx::<M, S, true>,
        (true, false) => in_mmx::<M, S, false>,
        (false, true) => by_constant::<M, S>,
        (false, false) => by_scalar::<M, S>,
    })
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let run = match i.mnemonic() {
        Psllw | Vpsllw => shift::<M, LeftW>(i, o),
        Pslld | Vpslld => shift::<M, LeftD>(i, o),
        Psllq | Vpsllq => shift::<M, LeftQ>(i, o),
        Psrlw | Vpsrlw => shift::<M, RightW>(i, o),
        Psrld | Vpsrld => shift::<M, RightD>(i, o),
        Psrlq | Vpsrlq => shift::<M, RightQ>(i, o),
        Psraw | Vpsraw => shift::<M, ArithmeticW>(i, o),
        Psrad | Vpsrad => shift::<M, ArithmeticD>(i, o),
        Vpsraq => shift::<M, ArithmeticQ>(i, o),
        Vprold => shift::<M, RotateLeftD>(i, o),
        Vprolq => shift::<M, RotateLeftQ>(i, o),
        Vprord => shift::<M, RotateRightD>(i, o),
        Vprorq => shift::<M, RotateRightQ>(i, o),
        Vpsllvw => Some(by_each::<M, LeftW, u16> as Run<M>),
        Vpsllvd => Some(by_each::<M, LeftD, u32> as Run<M>),
        Vpsllvq => Some(by_each::<M, LeftQ, u64> as Run<M>),
        Vpsrlvw => Some(by_each::<M, RightW, u16> as Run<M>),
        Vpsrlvd => Some(by_each::<M, RightD, u32> as Run<M>),
        Vpsrlvq => Some(by_each::<M, RightQ, u64> as Run<M>),
        Vpsravw => Some(by_each::<M, ArithmeticW, i16> as Run<M>),
        Vpsravd => Some(by_each::<M, ArithmeticD, i32> as Run<M>),
        Vpsravq => Some(by_each::<M, ArithmeticQ, i64> as Run<M>),
        Vprolvd => Some(by_each::<M, RotateLeftD, u32> as Run<M>),
        Vprolvq => Some(by_each::<M, RotateLeftQ, u64> as Run<M>),
        Vprorvd => Some(by_each::<M, RotateRightD, u32> as Run<M>),
        Vprorvq => Some(by_each::<M, RotateRightQ, u64> as Run<M>),
        Pslldq | Vpslldq => lanes::<M, LeftBytes>(o),
        Psrldq | Vpsrldq => lanes::<M, RightBytes>(o),
        _ => return Option::None,
    };
    // A count in a register is in the low half of it: the element is that of the result.
    o.element = match i.mnemonic() {
        Vpsllw | Vpsrlw | Vpsraw | Vpsllvw | Vpsrlvw | Vpsravw => 2,
        Vpslld | Vpsrld | Vpsrad => 4,
        Vpsllq | Vpsrlq | Vpsraq => 8,
        _ => o.element,
    };
    run
}
