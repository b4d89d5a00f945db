//! Branches, calls and returns.

use super::moves::condition;
use super::stack::{pop, push};
use crate::Memory;
use crate::core::Core;
use crate::op::{A, Flow, Mem, Op, Place, Run, bit};
use crate::operand::gpr;
use hindsight_isa::regs::{RCX, RSP};
use iced_x86::{Instruction, Mnemonic, OpKind};

/// A conditional branch to `imm`.
fn jcc<M: Memory, const N: u8>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    if c.flags.condition(N) {
        c.rip = o.imm;
        return Flow::Leave;
    }
    Flow::Next
}

fn goes_on<M: Memory>(_: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    Flow::Next
}

/// The block goes on at the function. The address behind the call is `imm`.
fn call<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    push(c, m, o.imm);
    Flow::Next
}

fn jump_to<M: Memory, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    c.rip = P::get(c, m, o);
    Flow::Leave
}

fn call_to<M: Memory, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let to = P::get(c, m, o);
    push(c, m, o.next);
    c.rip = to;
    Flow::Leave
}

fn ret<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    c.rip = pop(c, m);
    c.gpr[RSP] = c.gpr[RSP].wrapping_add(o.imm);
    Flow::Leave
}

/// JRCXZ, and the loops: `c` is 0 for JRCXZ, 1 for LOOP, 2 for LOOPE, 3 for LOOPNE.
fn counted<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let short = o.has(bit::SHORT);
    let mut n = c.gpr[RCX];
    if o.c != 0 {
        n = n.wrapping_sub(1);
        c.gpr[RCX] = if short { n as u32 as u64 } else { n };
    }
    let zero = if short { n as u32 == 0 } else { n == 0 };
    let taken = match o.c {
        0 => zero,
        1 => !zero,
        2 => !zero && c.flags.zf(),
        _ => !zero && !c.flags.zf(),
    };
    if taken {
        c.rip = o.imm;
        return Flow::Leave;
    }
    Flow::Next
}

fn find_counted<M: Memory>(o: &mut Op<M>, i: &Instruction, kind: u8) -> Option<Run<M>> {
    if i.op0_kind() != OpKind::NearBranch64 {
        return None;
    }
    o.c = kind;
    o.imm = i.near_branch_target();
    let code = format!("{:?}", i.code());
    if code.contains("ECX") || code.contains("Jecxz") {
        o.bits |= bit::SHORT;
    }
    Some(counted)
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    let near = i.op0_kind() == OpKind::NearBranch64;
    if i.is_jcc_short_or_near() && near {
        o.imm = i.near_branch_target();
        macro_rules! by_condition {
            ($($n:literal)*) => {
                match condition(i.condition_code())? {
                    $($n => Some(jcc::<M, $n>),)*
                    _ => None,
                }
            };
        }
        return by_condition!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
    let qword = i.op0_kind() == OpKind::Memory && i.memory_size().size() == 8
        || i.op0_kind() == OpKind::Register && i.op0_register().size() == 8;
    match i.mnemonic() {
        Mnemonic::Jmp if near => {
            o.next = i.near_branch_target();
            Some(goes_on)
        }
        Mnemonic::Call if near => {
            o.imm = i.next_ip();
            o.next = i.near_branch_target();
            Some(call)
        }
        Mnemonic::Jmp | Mnemonic::Call
            if qword && !i.is_jmp_far_indirect() && !i.is_call_far_indirect() =>
        {
            o.a = gpr(i.op0_register());
            let memory = i.op0_kind() == OpKind::Memory;
            match (i.mnemonic() == Mnemonic::Call, memory) {
                (true, true) => Some(call_to::<M, Mem>),
                (true, false) => Some(call_to::<M, A>),
                (false, true) => Some(jump_to::<M, Mem>),
                (false, false) => Some(jump_to::<M, A>),
            }
        }
        Mnemonic::Ret if i.stack_pointer_increment() >= 8 => {
            o.imm = if i.op_count() == 1 { i.immediate(0) } else { 0 };
            Some(ret)
        }
        Mnemonic::Jrcxz | Mnemonic::Jecxz => find_counted(o, i, 0),
        Mnemonic::Loop => find_counted(o, i, 1),
        Mnemonic::Loope => find_counted(o, i, 2),
        Mnemonic::Loopne => find_counted(o, i, 3),
        _ => None,
    }
}
