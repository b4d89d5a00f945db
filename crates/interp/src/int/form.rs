//! The forms that instructions on integers have, and the functions for each of them.

use crate::Memory;
use crate::core::Core;
use crate::op::{A, B, Flow, Imm, Int, Mem, Op, Place, Run};
use crate::operand::gpr;
use iced_x86::{Instruction, OpKind};

/// `a = f(a, b)`.
pub trait Binary {
    /// Whether the result is stored.
    const WRITES: bool = true;
    /// Whether the first operand is read.
    const READS: bool = true;
    fn apply<T: Int>(c: &mut Core, a: T, b: T) -> T;
}

/// `a = f(a)`.
pub trait Unary {
    fn apply<T: Int>(c: &mut Core, a: T) -> T;
}

/// `a = f(x, y)`: of three operands, `y` may be in memory.
pub trait Ternary {
    fn apply<T: Int>(c: &mut Core, x: T, y: T) -> T;
}

fn binary<M: Memory, F: Binary, T: Int, D: Place, S: Place>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let b: T = S::get(c, m, o);
    let a = if F::READS { D::get(c, m, o) } else { T::of(0) };
    let r = F::apply(c, a, b);
    if F::WRITES {
        D::set(c, m, o, r);
    }
    Flow::Next
}

fn unary<M: Memory, F: Unary, T: Int, D: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let a: T = D::get(c, m, o);
    let r = F::apply(c, a);
    D::set(c, m, o, r);
    Flow::Next
}

fn ternary<M: Memory, F: Ternary, T: Int, X: Place, Y: Place>(
    c: &mut Core,
    m: &mut M,
    o: &Op<M>,
) -> Flow {
    let (x, y) = (X::get(c, m, o), Y::get(c, m, o));
    let r: T = F::apply(c, x, y);
    r.set(c, o.a);
    Flow::Next
}

/// Where an operand is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    Register,
    Memory,
    Constant,
    Missing,
}

/// Where operand `n` is.
pub fn at(i: &Instruction, n: u32) -> At {
    if n >= i.op_count() {
        return At::Missing;
    }
    match i.op_kind(n) {
        OpKind::Register => At::Register,
        OpKind::Memory => At::Memory,
        _ => At::Constant,
    }
}

/// Bytes of operand `n`.
pub fn size(i: &Instruction, n: u32) -> usize {
    match at(i, n) {
        At::Register => i.op_register(n).size(),
        At::Memory => i.memory_size().size(),
        _ => 0,
    }
}

/// Chooses by the size of an operand: the function for it, with the type as `$T`.
macro_rules! sized {
    ($size:expr, $T:ident => $f:expr) => {
        match $size {
            1 => {
                type $T = u8;
                Some($f)
            }
            2 => {
                type $T = u16;
                Some($f)
            }
            4 => {
                type $T = u32;
                Some($f)
            }
            8 => {
                type $T = u64;
                Some($f)
            }
            _ => None,
        }
    };
}
pub(super) use sized;

/// The function of an instruction with two operands.
pub fn two<M: Memory, F: Binary>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    o.a = gpr(i.op0_register());
    o.b = gpr(i.op1_register());
    let size = size(i, 0);
    if at(i, 1) == At::Constant {
        o.imm = i.try_immediate(1).ok()?;
    }
    match (at(i, 0), at(i, 1)) {
        (At::Register, At::Register) => sized!(size, T => binary::<M, F, T, A, B>),
        (At::Register, At::Memory) => sized!(size, T => binary::<M, F, T, A, Mem>),
        (At::Register, At::Constant) => sized!(size, T => binary::<M, F, T, A, Imm>),
        (At::Memory, At::Register) => sized!(size, T => binary::<M, F, T, Mem, B>),
        (At::Memory, At::Constant) => sized!(size, T => binary::<M, F, T, Mem, Imm>),
        _ => None,
    }
}

/// The function of an instruction with one operand.
pub fn one<M: Memory, F: Unary>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    o.a = gpr(i.op0_register());
    let size = size(i, 0);
    match at(i, 0) {
        At::Register => sized!(size, T => unary::<M, F, T, A>),
        At::Memory => sized!(size, T => unary::<M, F, T, Mem>),
        _ => None,
    }
}

/// The function of an instruction with three operands: `x` is operand number `x`, and `y` the other one.
pub fn three<M: Memory, F: Ternary>(i: &Instruction, o: &mut Op<M>, x: u32) -> Option<Run<M>> {
    let y = 3 - x;
    o.a = gpr(i.op0_register());
    let size = size(i, 0);
    if at(i, x) == At::Constant {
        o.imm = i.try_immediate(x).ok()?;
    }
    match (at(i, x), at(i, y)) {
        (At::Constant, At::Register) => {
            o.b = gpr(i.op_register(y));
            sized!(size, T => ternary::<M, F, T, Imm, B>)
        }
        (At::Constant, At::Memory) => sized!(size, T => ternary::<M, F, T, Imm, Mem>),
        (At::Register, At::Memory) => {
            o.b = gpr(i.op_register(x));
            sized!(size, T => ternary::<M, F, T, B, Mem>)
        }
        (At::Register, At::Register) => {
            o.b = gpr(i.op_register(x));
            o.c = gpr(i.op_register(y));
            sized!(size, T => ternary::<M, F, T, B, C>)
        }
        _ => None,
    }
}

/// The third operand is a register.
struct C;

impl Place for C {
    fn get<M: Memory, T: Int>(c: &Core, _: &mut M, o: &Op<M>) -> T {
        T::held(c, o.c)
    }
    fn set<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>, v: T) {
        v.set(c, o.c)
    }
}
