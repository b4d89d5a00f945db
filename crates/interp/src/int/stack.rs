//! The stack, and flags as a whole.

use super::form::{At, at, sized};
use crate::Memory;
use crate::core::Core;
use crate::flags::{CF, DF, Flags, OF, STATUS};
use crate::op::{A, Flow, Imm, Int, Mem, Op, Place, Run};
use crate::operand::gpr;

use hindsight_isa::regs::{RBP, RSP};
use hindsight_isa::state::RFLAGS_MASK;
use iced_x86::{Instruction, Mnemonic};

/// What PUSHF shows besides the flags that a program can change: the reserved bit, and that interrupts are enabled.
const ALWAYS: u64 = 0x202;

/// The number of the high byte of the accumulator.
const AH: u8 = 0x80;

/// Pushes a value.
pub fn push<M: Memory, T: Int>(c: &mut Core, m: &mut M, v: T) {
    let to = c.gpr[RSP].wrapping_sub(T::BYTES as u64);
    v.store(m, to);
    c.gpr[RSP] = to;
}

/// Pops a value.
pub fn pop<M: Memory, T: Int>(c: &mut Core, m: &mut M) -> T {
    let v = T::load(m, c.gpr[RSP]);
    c.gpr[RSP] = c.gpr[RSP].wrapping_add(T::BYTES as u64);
    v
}

fn push_op<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v: T = P::get(c, m, o);
    push(c, m, v);
    Flow::Next
}

/// The address of an operand in memory is computed with rsp behind the pop.
fn pop_op<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let v: T = pop(c, m);
    P::set(c, m, o, v);
    Flow::Next
}

fn pushf<M: Memory, T: Int>(c: &mut Core, m: &mut M, _: &Op<M>) -> Flow {
    let v = c.flags.bits() | c.other_flags | ALWAYS;
    push(c, m, T::of(v));
    Flow::Next
}

fn popf<M: Memory, T: Int>(c: &mut Core, m: &mut M, _: &Op<M>) -> Flow {
    let v = pop::<M, T>(c, m).wide();
    // POPF with 16 bits leaves the upper ones.
    let kept = match T::BITS {
        16 => c.other_flags & !0xffff,
        _ => 0,
    };
    c.set_rflags((v | kept) & RFLAGS_MASK);
    Flow::Next
}

fn leave<M: Memory, T: Int>(c: &mut Core, m: &mut M, _: &Op<M>) -> Flow {
    c.gpr[RSP] = c.gpr[RBP];
    let v: T = pop(c, m);
    v.set(c, RBP as u8);
    Flow::Next
}

/// ENTER with `imm` bytes of room and `c` nested frames.
fn enter<M: Memory, T: Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let old = T::held(c, RBP as u8);
    push(c, m, old);
    let frame = c.gpr[RSP];
    let levels = o.c & 31;
    let mut from = c.gpr[RBP];
    for _ in 1..levels {
        from = from.wrapping_sub(T::BYTES as u64);
        let v = T::load(m, from);
        push(c, m, v);
    }
    if levels > 0 {
        push(c, m, T::of(frame));
    }
    T::of(frame).set(c, RBP as u8);
    c.gpr[RSP] = c.gpr[RSP].wrapping_sub(o.imm);
    Flow::Next
}

fn lahf<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    (c.flags.bits() as u8 | 2).set(c, AH);
    Flow::Next
}

fn sahf<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    let low = u8::held(c, AH) as u64;
    c.flags = Flags::from_bits(c.flags.bits() & OF | low & STATUS & !OF);
    Flow::Next
}

/// Changes single flags: what is in `imm` is kept, then what is in `disp` is flipped.
fn change<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let f = (c.flags.bits() | c.other_flags) & o.imm ^ o.disp;
    c.set_rflags(f);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let mut flags = |keep: u64, flip: u64| -> Option<Run<M>> {
        (o.imm, o.disp) = (keep, flip);
        Some(change)
    };
    match i.mnemonic() {
        Clc => return flags(!CF, 0),
        Stc => return flags(!CF, CF),
        Cmc => return flags(!0, CF),
        Cld => return flags(!DF, 0),
        Std => return flags(!DF, DF),
        _ => {}
    }
    let bytes = i.stack_pointer_increment().unsigned_abs() as usize;
    if matches!(i.mnemonic(), Push | Pop) {
        o.a = gpr(i.op0_register());
        if at(i, 0) == At::Register && !i.op0_register().is_gpr() {
            return Option::None;
        }
    }
    match (i.mnemonic(), at(i, 0)) {
        (Push, At::Register) => sized!(bytes, T => push_op::<M, T, A>),
        (Push, At::Memory) => sized!(bytes, T => push_op::<M, T, Mem>),
        (Push, _) => {
            o.imm = i.immediate(0);
            sized!(bytes, T => push_op::<M, T, Imm>)
        }
        (Pop, At::Memory) => sized!(bytes, T => pop_op::<M, T, Mem>),
        (Pop, _) => sized!(bytes, T => pop_op::<M, T, A>),
        (Pushf | Pushfq, _) => sized!(bytes, T => pushf::<M, T>),
        (Popf | Popfq, _) => sized!(bytes, T => popf::<M, T>),
        (Leave, _) => match i.code() {
            iced_x86::Code::Leaveq => Some(leave::<M, u64>),
            iced_x86::Code::Leavew => Some(leave::<M, u16>),
            _ => Option::None,
        },
        (Enter, _) => {
            o.imm = i.immediate(0) & 0xffff;
            o.c = i.immediate(1) as u8;
            match i.code() {
                iced_x86::Code::Enterq_imm16_imm8 => Some(enter::<M, u64>),
                iced_x86::Code::Enterw_imm16_imm8 => Some(enter::<M, u16>),
                _ => Option::None,
            }
        }
        (Lahf, _) => Some(lahf),
        (Sahf, _) => Some(sahf),
        _ => Option::None,
    }
}
