//! The x87 unit: its registers, and how its instructions use them.

mod arithmetic;
mod control;
mod exact;
mod moves;
pub mod unit;

use crate::Memory;
use crate::core::Core;
use crate::fault::Fault;
use crate::op::{Flow, Op, Run};
use crate::soft::flag::DE;
use crate::soft::{F32, F64, Format, Number};
use iced_x86::Instruction;

/// An operand in memory, as the stack has it.
fn widen(bits: u64, f: Format) -> (Number, bool) {
    Number::unpack(bits, f)
}

/// Ends an instruction: a fault is noted.
fn end(c: &mut Core, done: Result<(), Fault>) -> Flow {
    match done {
        Ok(()) => Flow::Next,
        Err(fault) => {
            c.fault = Some(fault);
            Flow::Fault
        }
    }
}

/// The function that executes an instruction of this kind, with its operands in `o`.
pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    control::find(i, o)
        .or_else(|| moves::find(i, o))
        .or_else(|| arithmetic::find(i, o))
        .or_else(|| exact::find(i, o))
}

/// The format of an operand in memory of so many bytes.
fn memory_format(size: usize) -> Option<Format> {
    match size {
        4 => Some(F32),
        8 => Some(F64),
        _ => None,
    }
}

/// The flag of a denormal operand.
fn denormal(is: bool) -> u32 {
    if is { DE } else { 0 }
}
