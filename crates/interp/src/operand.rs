//! Operands from iced's: addresses, and the numbers of registers.

use crate::core::slot;
use crate::op::{Op, bit};
use iced_x86::{Instruction, Register};

/// Sets the address of the memory operand. False for one that is made of a vector register.
pub fn address<M>(i: &Instruction, o: &mut Op<M>) -> bool {
    o.disp = i.memory_displacement64();
    o.scale = i.memory_index_scale().trailing_zeros() as u8;
    let (base, index) = (i.memory_base(), i.memory_index());
    if index.is_vector_register() {
        // Gathers and scatters take their index registers from `c`.
        o.c = index.number() as u8;
    } else if index != Register::None {
        o.index = index.number() as u8;
    }
    match base {
        Register::None | Register::RIP | Register::EIP => {}
        b => o.base = b.number() as u8,
    }
    if i.memory_displ_size() == 4 && base == Register::None && index == Register::None
        || base.is_gpr32()
        || index.is_gpr32()
        || base == Register::EIP
    {
        o.bits |= bit::SHORT;
    }
    o.segment = segment(i);
    true
}

/// The slot of the segment's base.
pub fn segment(i: &Instruction) -> u8 {
    match i.memory_segment() {
        Register::FS => slot::FS,
        Register::GS => slot::GS,
        _ => slot::ZERO,
    }
}

/// The number of a general purpose register, with 0x80 for a high byte.
pub fn gpr(r: Register) -> u8 {
    let high = matches!(r, Register::AH | Register::CH | Register::DH | Register::BH);
    r.full_register().number() as u8 | (high as u8) << 7
}
