//! What kind of instruction one is.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Whether `i` ends a segment: conditional branches, and everything that ends a block.
pub(crate) fn ends_segment(i: &Instruction) -> bool {
    i.flow_control() == FlowControl::ConditionalBranch || ends_block(i)
}

/// Whether nothing behind `i` belongs to its block.
pub(crate) fn ends_block(i: &Instruction) -> bool {
    !matches!(
        i.flow_control(),
        FlowControl::Next | FlowControl::ConditionalBranch
    ) || i.is_invalid()
        || i.is_privileged()
        || sets_segment_base(i)
}

/// Whether `i` changes a segment's base. Operands behind it are then elsewhere, so the block ends.
pub(crate) fn sets_segment_base(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Wrfsbase | Mnemonic::Wrgsbase)
}

/// Whether `i` uses zmm31, a part of it, or k7.
pub(crate) fn names_wide(i: &Instruction) -> bool {
    use iced_x86::Mnemonic::*;
    if matches!(i.mnemonic(), Xrstor | Xrstor64) {
        return true;
    }
    let wide = |r: Register| {
        matches!(
            r,
            Register::XMM31 | Register::YMM31 | Register::ZMM31 | Register::K7
        )
    };
    wide(i.op_mask())
        || wide(i.memory_index())
        || (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && wide(i.op_register(n)))
}

pub(crate) fn is_masked_move(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        Mnemonic::Maskmovq | Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu
    )
}

/// `i` with a register in place of memory operand `op`.
pub(crate) fn with_register(i: &Instruction, op: u32, r: Register) -> Instruction {
    let mut i = *i;
    i.set_op_kind(op, OpKind::Register);
    i.set_op_register(op, r);
    i.set_segment_prefix(Register::None);
    i.set_memory_base(Register::None);
    i.set_memory_index(Register::None);
    i.set_memory_displ_size(0);
    i.set_memory_displacement64(0);
    i.set_has_lock_prefix(false);
    i.set_has_xacquire_prefix(false);
    i.set_has_xrelease_prefix(false);
    i
}
