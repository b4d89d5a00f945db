//! General purpose registers by hardware number, and renaming of the two that the translator uses.

use hindsight_isa::regs;
use iced_x86::{Instruction, OpKind, Register};

/// Hardware number of rax.
pub const RAX: u8 = regs::RAX as u8;
/// Hardware number of rcx.
pub const RCX: u8 = regs::RCX as u8;
/// Hardware number of rdx.
pub const RDX: u8 = regs::RDX as u8;
/// Hardware number of rsp.
pub const RSP: u8 = regs::RSP as u8;
/// Hardware number of rbp.
pub const RBP: u8 = regs::RBP as u8;
/// Hardware number of rsi.
pub const RSI: u8 = regs::RSI as u8;
/// Hardware number of rdi.
pub const RDI: u8 = regs::RDI as u8;
/// Hardware number of the scratch register.
pub const SCR: u8 = hindsight_isa::ctx::SCR_REG as u8;
/// Hardware number of the instruction counter.
pub const CNT: u8 = hindsight_isa::ctx::CNT_REG as u8;

const R8: [Register; 16] = [
    Register::AL,
    Register::CL,
    Register::DL,
    Register::BL,
    Register::SPL,
    Register::BPL,
    Register::SIL,
    Register::DIL,
    Register::R8L,
    Register::R9L,
    Register::R10L,
    Register::R11L,
    Register::R12L,
    Register::R13L,
    Register::R14L,
    Register::R15L,
];
const R16: [Register; 16] = [
    Register::AX,
    Register::CX,
    Register::DX,
    Register::BX,
    Register::SP,
    Register::BP,
    Register::SI,
    Register::DI,
    Register::R8W,
    Register::R9W,
    Register::R10W,
    Register::R11W,
    Register::R12W,
    Register::R13W,
    Register::R14W,
    Register::R15W,
];
const R32: [Register; 16] = [
    Register::EAX,
    Register::ECX,
    Register::EDX,
    Register::EBX,
    Register::ESP,
    Register::EBP,
    Register::ESI,
    Register::EDI,
    Register::R8D,
    Register::R9D,
    Register::R10D,
    Register::R11D,
    Register::R12D,
    Register::R13D,
    Register::R14D,
    Register::R15D,
];
const R64: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Register `n` at an operand size of 1, 2, 4 or 8 bytes.
pub fn gpr(n: u8, size: usize) -> Register {
    let table = match size {
        1 => &R8,
        2 => &R16,
        4 => &R32,
        _ => &R64,
    };
    table[n as usize]
}

/// Hardware number of the general purpose register that `r` is part of.
pub fn number(r: Register) -> Option<u8> {
    r.is_gpr().then(|| r.full_register().number() as u8)
}

/// Whether `r` is AH, BH, CH or DH. No instruction with a REX prefix can name these.
pub fn is_high_byte(r: Register) -> bool {
    matches!(r, Register::AH | Register::BH | Register::CH | Register::DH)
}

/// A set of general purpose registers, as bits by hardware number.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RegisterSet(pub u16);

impl RegisterSet {
    /// Adds register `n`.
    pub fn add(&mut self, n: u8) {
        self.0 |= 1 << n;
    }
    /// Whether register `n` is in the set.
    pub fn has(self, n: u8) -> bool {
        self.0 & (1 << n) != 0
    }
}

/// Replaces guest register `from` by `to` wherever `i` names it explicitly.
pub fn rename(i: &mut Instruction, from: u8, to: u8) {
    for op in 0..i.op_count() {
        if i.op_kind(op) == OpKind::Register {
            let r = i.op_register(op);
            if number(r) == Some(from) {
                i.set_op_register(op, gpr(to, r.size()));
            }
        }
    }
    let b = i.memory_base();
    if number(b) == Some(from) {
        i.set_memory_base(gpr(to, b.size()));
    }
    let x = i.memory_index();
    if number(x) == Some(from) {
        i.set_memory_index(gpr(to, x.size()));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn the_decoders_registers_have_hardware_numbers() {
        for (n, name) in regs::NAMES.iter().enumerate() {
            for size in [1, 2, 4, 8] {
                assert_eq!(number(gpr(n as u8, size)), Some(n as u8), "{name}");
            }
            let whole = std::format!("{:?}", gpr(n as u8, 8));
            assert_eq!(whole.to_lowercase(), *name);
        }
    }
}
