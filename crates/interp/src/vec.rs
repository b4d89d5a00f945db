//! Instructions on vectors: SSE, AVX, and the forms of AVX-512 that they have.
//!
//! An operation is written once, for one lane of 16 bytes. The forms with wider registers, a third operand, a mask or
//! a broadcast follow from the encoding.

mod accumulate;
mod approximate;
mod bfloat;
mod compare;
mod convert;
mod crypto;
mod element;
mod fields;
mod float;
mod form;
mod fused;
mod gather;
mod integer;
mod mask;
mod mmx;
mod moves;
mod numbers;
mod pack;
mod shifts;
mod shuffle;
mod special;
mod text;
mod wide;

use crate::Memory;
use crate::op::{Op, Run, bit};
use iced_x86::Instruction;

/// The function that executes an instruction of this kind, with its operands in `o`.
pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    if i.memory_index().is_vector_register() {
        return gather::find(i, o);
    }
    form::operands(i, o)?;
    if o.has(bit::MMX) {
        return mmx::find(i, o);
    }
    moves::find(i, o)
        .or_else(|| integer::find(i, o))
        .or_else(|| shifts::find(i, o))
        .or_else(|| shuffle::find(i, o))
        .or_else(|| float::find(i, o))
        .or_else(|| compare::find(i, o))
        .or_else(|| convert::find(i, o))
        .or_else(|| fused::find(i, o))
        .or_else(|| wide::find(i, o))
        .or_else(|| pack::find(i, o))
        .or_else(|| accumulate::find(i, o))
        .or_else(|| special::find(i, o))
        .or_else(|| approximate::find(i, o))
        .or_else(|| bfloat::find(i, o))
        .or_else(|| fields::find(i, o))
        .or_else(|| mask::find(i, o))
        .or_else(|| text::find(i, o))
        .or_else(|| crypto::find(i, o))
}
