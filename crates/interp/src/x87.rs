//! Instructions of the x87.

mod arithmetic;
mod control;
mod exact;
mod form;
mod moves;

use crate::Memory;
use crate::op::{Op, Run};
use iced_x86::Instruction;

/// The function that executes an instruction of this kind, with its operands in `o`.
pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    control::find(i, o)
        .or_else(|| moves::find(i, o))
        .or_else(|| arithmetic::find(i, o))
        .or_else(|| exact::find(i, o))
}
