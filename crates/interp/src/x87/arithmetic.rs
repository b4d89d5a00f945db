//! Arithmetic and comparisons.
//!
//! The transcendental instructions are not here: no two makers' processors agree on all their results.

use super::form::{denormal, end, memory_format, widen};
use crate::Memory;
use crate::core::Core;
use crate::core::x87::{C0, C1, C2, C3, F80Bits, Stop, X87};
use crate::flags::{CF, Flags, PF, ZF};
use crate::op::{Flow, Op, Run};
use crate::soft::flag::{IE, ZE};
use crate::soft::{self, Number, from_integer, integral};
use iced_x86::{Instruction, Mnemonic, OpKind};
use std::cmp::Ordering;

/// The operations, by [`Op::c`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Add,
    Sub,
    SubReversed,
    Mul,
    Div,
    DivReversed,
}
use Operation::*;
const OPERATIONS: [Operation; 6] = [Add, Sub, SubReversed, Mul, Div, DivReversed];

/// An operand, if its encoding is supported, and whether it is denormal.
type Operand = Option<(Number, bool)>;

/// `a op b`.
fn compute(x: &mut X87, op: Operation, a: Operand, b: Operand) -> Result<F80Bits, Stop> {
    let number = |o: Operand| o.map(|o| o.0);
    let (Some((a, at)), Some((b, bt))) = (a, b) else {
        return x.nan(number(a), number(b));
    };
    if a.is_nan() || b.is_nan() {
        return x.nan(Some(a), Some(b));
    }
    let r = match op {
        Add => soft::add(a, b, x.mode()),
        Sub => soft::add(a, b.with_sign(!b.negative()), x.mode()),
        SubReversed => soft::add(b, a.with_sign(!a.negative()), x.mode()),
        Mul => soft::mul(a, b),
        Div => soft::div(a, b),
        DivReversed => soft::div(b, a),
    };
    x.raise(match r.flags & (IE | ZE) {
        0 => denormal(at || bt),
        _ => 0,
    })?;
    x.raise(r.flags)?;
    x.settle(r.number, x.precision())
}

/// The operand in memory of [`Op::size`] bytes, an integer if [`Op::d`] is 1.
fn memory_operand<M: Memory>(c: &Core, m: &mut M, o: &Op<M>) -> Operand {
    let at = o.address(c);
    match (o.d, o.size) {
        (1, 2) => Some((whole(i16::from_le_bytes(m.load(at)) as i64), false)),
        (1, _) => Some((whole(i32::from_le_bytes(m.load(at)) as i64), false)),
        (_, 4) => Some(widen(
            u32::from_le_bytes(m.load(at)) as u64,
            memory_format(4)?,
        )),
        _ => Some(widen(u64::from_le_bytes(m.load(at)), memory_format(8)?)),
    }
}

fn whole(v: i64) -> Number {
    from_integer(v < 0, v.unsigned_abs() as u128)
}

/// st(0) op memory.
fn with_memory<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let b = memory_operand(c, m, o);
    let x = &mut c.x87;
    let done = match x.is_full(0) {
        true => compute(x, OPERATIONS[o.c as usize % 6], x.number(0), b),
        false => x.stack_fault(false),
    };
    let done = done.map(|r| x.set(0, r));
    end(c, done)
}

/// st(a) = st(a) op st(b), and a pop if `d` is 1.
fn with_register<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let done = match x.is_full(o.a) && x.is_full(o.b) {
        true => compute(
            x,
            OPERATIONS[o.c as usize % 6],
            x.number(o.a),
            x.number(o.b),
        ),
        false => x.stack_fault(false),
    };
    let done = done.map(|r| {
        x.set(o.a, r);
        if o.d != 0 {
            x.pop();
        }
    });
    end(c, done)
}

/// Compares st(0), and notes exceptions. `quiet`: quiet NaNs are no invalid operands. `None`: not comparable.
fn order(x: &mut X87, b: Option<Operand>, quiet: bool) -> (Option<Ordering>, Result<(), Stop>) {
    let Some(b) = b.filter(|_| x.is_full(0)) else {
        return (None, x.stack_fault(false).map(|_| ()));
    };
    let (Some((a, at)), Some((b, bt))) = (x.number(0), b) else {
        return (None, x.raise(IE));
    };
    let found = soft::compare(a, b);
    let invalid = found.is_none() && (!quiet || a.is_signaling() || b.is_signaling());
    let done = x.raise(match (found, invalid) {
        (_, true) => IE,
        (None, _) => 0,
        _ => denormal(at || bt),
    });
    (found, done)
}

/// The condition bits for an order.
fn conditions(found: Option<Ordering>) -> u16 {
    match found {
        None => C3 | C2 | C0,
        Some(Ordering::Greater) => 0,
        Some(Ordering::Less) => C0,
        Some(Ordering::Equal) => C3,
    }
}

/// The operand of a comparison with register `a`.
fn register_operand(x: &X87, i: u8) -> Option<Operand> {
    x.is_full(i).then(|| x.number(i))
}

/// Bits of [`Op::c`] of a comparison.
mod how {
    /// Quiet NaNs are allowed.
    pub const QUIET: u8 = 1;
    /// The operand is in memory.
    pub const MEMORY: u8 = 2;
    /// The result goes to RFLAGS.
    pub const FLAGS: u8 = 4;
    /// The operand is zero.
    pub const ZERO: u8 = 8;
}

/// All comparisons. `b` is how often they pop.
fn compare<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let b = match o.c {
        k if k & how::MEMORY != 0 => Some(memory_operand(c, m, o)),
        k if k & how::ZERO != 0 => Some(Some((Number::Zero { negative: false }, false))),
        _ => register_operand(&c.x87, o.a),
    };
    // Those that set RFLAGS leave C1 as it is.
    let c1 = match o.c & how::FLAGS {
        0 => 0,
        _ => c.x87.status & C1,
    };
    let empty = b.is_none() || !c.x87.is_full(0);
    let (found, done) = order(&mut c.x87, b, o.c & how::QUIET != 0);
    if let Err(Stop::Fault(_)) = done {
        return end(c, done);
    }
    if !empty {
        c.x87.set_c1(c1 != 0);
    }
    // What waits keeps the operands on the stack. The result is there nevertheless.
    match o.c & how::FLAGS {
        0 => {
            let c1 = c.x87.status & C1;
            c.x87.set_conditions(conditions(found) | c1);
        }
        _ => {
            c.flags = Flags::from_bits(match found {
                None => ZF | PF | CF,
                Some(Ordering::Greater) => 0,
                Some(Ordering::Less) => CF,
                Some(Ordering::Equal) => ZF,
            })
        }
    }
    if done.is_ok() {
        (0..o.b).for_each(|_| c.x87.pop());
    }
    end(c, done)
}

/// FCHS and FABS change the sign, whatever the register holds.
fn sign<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let (s, head) = x.get(0);
    let done = match (x.is_full(0), o.c) {
        (false, _) => x.stack_fault(false),
        (_, 0) => Ok((s, head ^ 0x8000)),
        _ => Ok((s, head & 0x7fff)),
    };
    let full = x.is_full(0);
    let done = done.map(|r| {
        if full {
            x.set_c1(false);
        }
        x.set(0, r);
    });
    end(c, done)
}

/// FSQRT (`c` is 0) and FRNDINT.
fn one_operand<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let done = match (x.is_full(0), x.number(0)) {
        (false, _) => x.stack_fault(false),
        (_, None) => x.nan(None, None),
        (_, Some((n, _))) if n.is_nan() => x.nan(Some(n), Some(n)),
        (_, Some((n, tiny))) if o.c == 0 => {
            let r = soft::sqrt(n);
            x.raise(if r.flags & IE == 0 { denormal(tiny) } else { 0 })
                .and_then(|()| x.raise(r.flags))
                .and_then(|()| x.settle(r.number, x.precision()))
        }
        (_, Some((n, tiny))) => {
            let r = integral(n, x.mode());
            x.raise(r.flags | denormal(tiny)).map(|()| {
                x.set_c1(r.up);
                r.number.pack80()
            })
        }
    };
    let done = done.map(|r| x.set(0, r));
    end(c, done)
}

/// FXAM: what kind of number st(0) has. C1 is its sign.
fn fxam<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    let x = &mut c.x87;
    let (_, head) = x.get(0);
    let kind = match (x.is_full(0), x.number(0)) {
        (false, _) => C3 | C0,
        (_, None) => 0,
        (_, Some((Number::Nan { .. }, _))) => C0,
        (_, Some((Number::Infinite { .. }, _))) => C2 | C0,
        (_, Some((Number::Zero { .. }, _))) => C3,
        (_, Some((_, true))) => C3 | C2,
        _ => C2,
    };
    x.set_conditions(kind | if head >> 15 != 0 { C1 } else { 0 });
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let memory = i.op0_kind() == OpKind::Memory;
    let register = |n: u32| i.op_register(n).number() as u8;
    o.size = if memory {
        i.memory_size().size() as u8
    } else {
        0
    };
    let operation = match i.mnemonic() {
        Fadd | Faddp | Fiadd => Some((0, i.mnemonic() == Faddp)),
        Fsub | Fsubp | Fisub => Some((1, i.mnemonic() == Fsubp)),
        Fsubr | Fsubrp | Fisubr => Some((2, i.mnemonic() == Fsubrp)),
        Fmul | Fmulp | Fimul => Some((3, i.mnemonic() == Fmulp)),
        Fdiv | Fdivp | Fidiv => Some((4, i.mnemonic() == Fdivp)),
        Fdivr | Fdivrp | Fidivr => Some((5, i.mnemonic() == Fdivrp)),
        _ => Option::None,
    };
    if let Some((op, pops)) = operation {
        o.c = op;
        if memory {
            o.d = matches!(
                i.mnemonic(),
                Fiadd | Fisub | Fisubr | Fimul | Fidiv | Fidivr
            ) as u8;
            return Some(with_memory);
        }
        (o.a, o.b, o.d) = (register(0), register(1), pops as u8);
        return Some(with_register);
    }
    let (mut kind, pops) = match i.mnemonic() {
        Fcom | Ficom => (0, 0),
        Fcomp | Ficomp => (0, 1),
        Fcompp => (0, 2),
        Fucom => (how::QUIET, 0),
        Fucomp => (how::QUIET, 1),
        Fucompp => (how::QUIET, 2),
        Fcomi => (how::FLAGS, 0),
        Fcomip => (how::FLAGS, 1),
        Fucomi => (how::FLAGS | how::QUIET, 0),
        Fucomip => (how::FLAGS | how::QUIET, 1),
        Ftst => (how::ZERO, 0),
        Fchs | Fabs => {
            o.c = (i.mnemonic() == Fabs) as u8;
            return Some(sign);
        }
        Fsqrt | Frndint => {
            o.c = (i.mnemonic() == Frndint) as u8;
            return Some(one_operand);
        }
        Fxam => return Some(fxam),
        _ => return Option::None,
    };
    if memory {
        kind |= how::MEMORY;
        o.d = matches!(i.mnemonic(), Ficom | Ficomp) as u8;
    }
    o.a = match i.op_count() {
        0 => 1,
        n => register(n - 1),
    };
    (o.b, o.c) = (pops, kind);
    Some(compare)
}
