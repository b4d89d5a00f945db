//! What the instructions of the x87 have in common: operands in memory, and how they end.

use crate::core::Core;
use crate::core::x87::Stop;
use crate::op::Flow;
use crate::soft::flag::DE;
use crate::soft::{F32, F64, Format, Number};

/// An operand in memory, as the stack has it.
pub fn widen(bits: u64, f: Format) -> (Number, bool) {
    Number::unpack(bits, f)
}

/// Ends an instruction: a fault is noted.
pub fn end(c: &mut Core, done: Result<(), Stop>) -> Flow {
    match done {
        Ok(()) | Err(Stop::Withheld) => Flow::Next,
        Err(Stop::Fault(fault)) => {
            c.fault = Some(fault);
            Flow::Fault
        }
    }
}

/// The format of an operand in memory of so many bytes.
pub fn memory_format(size: usize) -> Option<Format> {
    match size {
        4 => Some(F32),
        8 => Some(F64),
        _ => None,
    }
}

/// The flag of a denormal operand.
pub fn denormal(is: bool) -> u32 {
    if is { DE } else { 0 }
}
