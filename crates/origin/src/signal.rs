//! Registers that the kernel saves on the stack for a handler, and restores behind it.
//!
//! Source: `struct sigcontext` and `struct ucontext` of the kernel, `arch/x86/include/uapi/asm/sigcontext.h`.

use crate::past::Step;
use crate::place::Place;
use hindsight_timeline::regs;
use iced_x86::{Mnemonic, Register};
use std::ops::Range;

/// Where registers are in a `ucontext`.
const REGISTERS: u64 = 40;
/// Their order there.
const ORDER: [Register; 16] = [
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
    Register::RDI,
    Register::RSI,
    Register::RBP,
    Register::RBX,
    Register::RDX,
    Register::RAX,
    Register::RCX,
    Register::RSP,
];
/// The number of `rt_sigreturn`.
const SIGRETURN: u64 = 15;

/// The register whose value the kernel put into memory for a handler, if it is one: which of the bytes of `place` have it, beginning
/// at the first one. `step` is the handler's first instruction.
pub(crate) fn saved(step: &Step, place: &Place) -> Option<(Range<usize>, Place)> {
    let Place::Memory { at, len } = *place else {
        return None;
    };
    // The third argument of a handler.
    let within = at.checked_sub(step.cpu.gpr[regs::RDX])?;
    let within = usize::try_from(within.checked_sub(REGISTERS)?).ok()?;
    let register = *ORDER.get(within / 8)?;
    let first = within % 8;
    let len = len.min(8 - first);
    let from = Place::Register {
        register,
        first,
        len,
    };
    step.entered.then_some((0..len, from))
}

/// Where in memory the kernel found what it put into a register behind a handler. `step` is the call that ended the handler.
pub(crate) fn restored(step: &Step, place: &Place) -> Option<Place> {
    let Place::Register {
        register,
        first,
        len,
    } = *place
    else {
        return None;
    };
    let n = ORDER.iter().position(|r| *r == register)?;
    let registers = step.cpu.gpr[regs::RSP].wrapping_add(REGISTERS);
    is_return(step).then(|| Place::Memory {
        at: registers.wrapping_add((8 * n + first) as u64),
        len,
    })
}

/// Whether this is the call that ends a handler.
pub(crate) fn is_return(step: &Step) -> bool {
    step.instruction.mnemonic() == Mnemonic::Syscall && step.cpu.gpr[regs::RAX] == SIGRETURN
}

/// Whether the kernel may set a register when a handler begins: its arguments, the stack pointer, and all vector registers.
pub(crate) fn set_for_handlers(register: Register) -> bool {
    !register.is_gpr()
        || matches!(
            register,
            Register::RAX | Register::RDI | Register::RDX | Register::RSI | Register::RSP
        )
}
