//! Multiplications and divisions.

use super::form::{At, Binary, Ternary, at, size, sized, three, two};
use crate::Memory;
use crate::core::Core;
use crate::fault::Fault;
use crate::flags::{AF, CF, Flags, OF};
use crate::op::{A, B, Flow, Int, Mem, Op, Place, Run};
use crate::operand::gpr;
use hindsight_isa::regs::{RAX, RDX};
use iced_x86::{Instruction, Mnemonic};

/// A division that the processor refuses.
const DIVIDE_ERROR: u8 = 0;

/// The product of signed operands, and whether it needs more than one of them has room for.
fn signed_product<T: Int>(a: T, b: T) -> (u128, bool) {
    let p = (a.signed() as i64 as i128) * (b.signed() as i64 as i128);
    (p as u128, p != T::of(p as u64).signed() as i64 as i128)
}

/// Sets CF and OF. The other flags are undefined, and stay on AMD's processors.
fn overflows(c: &mut Core, over: bool) {
    c.flags.set_cf_of(over, over);
}

struct Imul;
impl Binary for Imul {
    fn apply<T: Int>(c: &mut Core, a: T, b: T) -> T {
        let (p, over) = signed_product(a, b);
        overflows(c, over);
        T::of(p as u64)
    }
}
impl Ternary for Imul {
    fn apply<T: Int>(c: &mut Core, x: T, y: T) -> T {
        <Imul as Binary>::apply(c, x, y)
    }
}

/// The two halves of a double operand: AX, or rdx and rax.
fn double<T: Int>(c: &Core) -> u128 {
    match T::BITS {
        8 => (c.gpr[RAX] & 0xffff) as u128,
        bits => {
            (T::held(c, RDX as u8).wide() as u128) << bits | T::held(c, RAX as u8).wide() as u128
        }
    }
}

fn set_double<T: Int>(c: &mut Core, low: u128, high: u128) {
    match T::BITS {
        8 => ((low & 0xff | (high & 0xff) << 8) as u16).set(c, RAX as u8),
        _ => {
            T::of(low as u64).set(c, RAX as u8);
            T::of(high as u64).set(c, RDX as u8);
        }
    }
}

fn mul<M: Memory, T: Int, P: Place, const SIGNED: bool>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let (a, b) = (T::held(c, RAX as u8), P::get::<M, T>(c, m, o));
    let (p, over) = match SIGNED {
        true => signed_product(a, b),
        false => {
            let p = a.wide() as u128 * b.wide() as u128;
            (p, p >> T::BITS != 0)
        }
    };
    set_double::<T>(c, p, p >> T::BITS);
    overflows(c, over);
    Flow::Next
}

/// What divisions leave: all flags are undefined. AMD's processors set AF, clear three others, and leave CF and OF.
fn divided(c: &mut Core) {
    c.flags = Flags::from_bits(c.flags.bits() & (CF | OF) | AF);
}

fn div<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b) = (double::<T>(c), P::get::<M, T>(c, m, o).wide() as u128);
    if b == 0 || (a / b) >> T::BITS != 0 {
        return refused(c);
    }
    set_double::<T>(c, a / b, a % b);
    divided(c);
    Flow::Next
}

fn idiv<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let b = P::get::<M, T>(c, m, o).signed() as i64 as i128;
    let unused = 128 - 2 * T::BITS;
    let a = (double::<T>(c) << unused) as i128 >> unused;
    let Some(q) = a.checked_div(b) else {
        return refused(c);
    };
    if q != T::of(q as u64).signed() as i64 as i128 {
        return refused(c);
    }
    set_double::<T>(c, q as u128, (a % b) as u128);
    divided(c);
    Flow::Next
}

fn refused(c: &mut Core) -> Flow {
    c.fault = Some(Fault::Exception(DIVIDE_ERROR));
    Flow::Fault
}

/// MULX: the product of rdx without flags; the low half goes to `b`, the high half to `a`.
fn mulx<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let p = T::held(c, RDX as u8).wide() as u128 * P::get::<M, T>(c, m, o).wide() as u128;
    T::of(p as u64).set(c, o.c);
    T::of((p >> T::BITS) as u64).set(c, o.a);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    let one = i.op_count() == 1;
    if one {
        o.a = gpr(i.op0_register());
    }
    macro_rules! of {
        ($f:ident $(, $sign:literal)?) => {
            match at(i, 0) {
                At::Memory => sized!(size(i, 0), T => $f::<M, T, Mem $(, $sign)?>),
                _ => sized!(size(i, 0), T => $f::<M, T, A $(, $sign)?>),
            }
        };
    }
    match i.mnemonic() {
        Mnemonic::Imul if one => of!(mul, true),
        Mnemonic::Imul if i.op_count() == 2 => two::<M, Imul>(i, o),
        Mnemonic::Imul => three::<M, Imul>(i, o, 2),
        Mnemonic::Mul => of!(mul, false),
        Mnemonic::Div => of!(div),
        Mnemonic::Idiv => of!(idiv),
        Mnemonic::Mulx => {
            o.a = gpr(i.op0_register());
            o.c = gpr(i.op1_register());
            o.b = gpr(i.op2_register());
            match at(i, 2) {
                At::Memory => sized!(size(i, 0), T => mulx::<M, T, Mem>),
                _ => sized!(size(i, 0), T => mulx::<M, T, B>),
            }
        }
        _ => None,
    }
}
