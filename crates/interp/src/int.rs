//! Instructions on general purpose registers and flags.

mod alu;
mod atomic;
mod bits;
mod branch;
mod form;
mod moves;
mod muldiv;
mod saves;
mod shift;
mod stack;
mod strings;
mod system;

use crate::Memory;
use crate::op::{Op, Run};
use iced_x86::Instruction;

/// The function that executes an instruction of this kind, with its operands in `o`.
pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    alu::find(i, o)
        .or_else(|| moves::find(i, o))
        .or_else(|| branch::find(i, o))
        .or_else(|| stack::find(i, o))
        .or_else(|| shift::find(i, o))
        .or_else(|| bits::find(i, o))
        .or_else(|| muldiv::find(i, o))
        .or_else(|| atomic::find(i, o))
        .or_else(|| strings::find(i, o))
        .or_else(|| system::find(i, o))
        .or_else(|| saves::find(i, o))
}
