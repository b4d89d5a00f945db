//! Flags that a check may change, because code behind the check computes them again.
//!
//! Programs often read memory between a comparison and the instruction that uses its outcome. A
//! check there that preserves flags costs four instructions more than one that changes them.
//! Repeating the comparison on the same registers costs one.

use crate::lazy_flags::whole;
use crate::regs::{self, RegisterSet, number};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

/// How to compute the guest's flags again from the present registers.
#[derive(Clone, Copy)]
pub(crate) enum Redo {
    /// By the instruction itself, which changes only flags.
    Same(Instruction),
    /// From the result of a bitwise operation: register and size in bytes.
    Result(u8, u8),
    /// By undoing an addition or subtraction and doing it again. The code is that of the inverse
    /// operation.
    Back(Instruction, Code),
}

impl Redo {
    /// How to compute the flags behind `i` again. `None` if it cannot be done.
    pub(crate) fn of(i: &Instruction) -> Option<Redo> {
        use Mnemonic::*;
        if i.op_count() != 2 || i.has_lock_prefix() {
            return None;
        }
        let general = |op: u32| {
            i.op_kind(op) != OpKind::Memory
                && (i.op_kind(op) != OpKind::Register
                    || number(i.op_register(op)).is_some_and(|r| r != regs::SCR && r != regs::CNT))
        };
        if i.op_kind(0) != OpKind::Register || !general(0) || !general(1) {
            return None;
        }
        // A segment prefix means nothing without a memory operand. Behind another prefix it would
        // mean something.
        let mut i = *i;
        i.set_segment_prefix(Register::None);
        let i = &i;
        let (a, b) = (i.op_register(0), i.op_register(1));
        let apart = i.op_kind(1) != OpKind::Register || number(a) != number(b);
        match i.mnemonic() {
            Cmp | Test => Some(Redo::Same(*i)),
            And | Or | Xor => whole(i, 0).map(|r| Redo::Result(r, a.size() as u8)),
            Add | Sub if apart => inverse(i.code()).map(|code| Redo::Back(*i, code)),
            _ => None,
        }
    }

    /// Whether this still works when the registers in `changed` have other values.
    pub(crate) fn survives(&self, changed: RegisterSet) -> bool {
        let same = |r| !number(r).is_some_and(|n| changed.has(n));
        match self {
            Redo::Result(r, _) => !changed.has(*r),
            Redo::Same(i) | Redo::Back(i, _) => {
                same(i.op0_register())
                    && (i.op1_kind() != OpKind::Register || same(i.op1_register()))
            }
        }
    }
}

/// The code that undoes what the addition or subtraction `code` does to its first operand.
fn inverse(code: Code) -> Option<Code> {
    use Code::*;
    const PAIRS: [(Code, Code); 15] = [
        (Add_rm8_r8, Sub_rm8_r8),
        (Add_rm16_r16, Sub_rm16_r16),
        (Add_rm32_r32, Sub_rm32_r32),
        (Add_rm64_r64, Sub_rm64_r64),
        (Add_r8_rm8, Sub_r8_rm8),
        (Add_r16_rm16, Sub_r16_rm16),
        (Add_r32_rm32, Sub_r32_rm32),
        (Add_r64_rm64, Sub_r64_rm64),
        (Add_rm8_imm8, Sub_rm8_imm8),
        (Add_rm16_imm8, Sub_rm16_imm8),
        (Add_rm32_imm8, Sub_rm32_imm8),
        (Add_rm64_imm8, Sub_rm64_imm8),
        (Add_rm16_imm16, Sub_rm16_imm16),
        (Add_rm32_imm32, Sub_rm32_imm32),
        (Add_rm64_imm32, Sub_rm64_imm32),
    ];
    PAIRS.iter().find_map(|(a, b)| match code {
        c if c == *a => Some(*b),
        c if c == *b => Some(*a),
        _ => None,
    })
}
