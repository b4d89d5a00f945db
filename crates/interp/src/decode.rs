//! Decoded instructions from iced's.

use crate::core::{Core, slot};
use crate::fault::Fault;
use crate::op::{Flow, Op, Run};
use crate::operand::address;
use crate::{Memory, int, vec, x87};
use hindsight_isa::approximate;
use hindsight_isa::comes_from_outside;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind};

/// Where a block goes on behind an instruction.
pub enum Next {
    At(u64),
    /// The block ends.
    Elsewhere,
}

/// Decodes an instruction, and says where its block goes on.
pub fn decode<M: Memory>(i: &Instruction) -> (Op<M>, Next) {
    let mut o = Op {
        run: refuse,
        imm: i.code() as u64,
        disp: 0,
        next: i.next_ip(),
        a: 0,
        b: 0,
        c: 0,
        d: 0,
        base: slot::ZERO,
        index: slot::ZERO,
        scale: 0,
        segment: slot::ZERO,
        bits: 0,
        lanes: 0,
        mask: 0,
        element: 0,
        size: 0,
        rounding: 0,
        len: i.len() as u8,
    };
    let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
    let addressed = !memory || address(i, &mut o);
    let run = match addressed {
        true => find(i, &mut o),
        false => None,
    };
    let Some(run) = run else {
        o.imm = i.code() as u64;
        return (o, Next::Elsewhere);
    };
    o.run = run;
    let next = match i.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch => Next::At(o.next),
        FlowControl::UnconditionalBranch | FlowControl::Call => Next::At(o.next),
        _ => Next::Elsewhere,
    };
    (o, next)
}

/// The function that executes an instruction, with its operands in `o`.
fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    int::find(i, o)
        .or_else(|| vec::find(i, o))
        .or_else(|| x87::find(i, o))
}

/// Executes nothing: says why.
fn refuse<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    c.fault = Some(fault(o.imm));
    Flow::Fault
}

/// Why the instruction with this code is not executed.
pub fn fault(code: u64) -> Fault {
    use Mnemonic::*;
    let Ok(code) = Code::try_from(code as usize) else {
        return Fault::NoInstruction;
    };
    match code.mnemonic() {
        Syscall => Fault::Outside("a system call".to_string()),
        m if comes_from_outside(m) => Fault::Outside(format!("{m:?}")),
        Ud0 | Ud1 | Ud2 => Fault::Exception(6),
        Int3 => Fault::Exception(3),
        Hlt | Rdpmc => Fault::Exception(13),
        m if approximate::kind(m).is_some() => Fault::Approximate(format!("{m:?}")),
        m => Fault::Unsupported(format!("{m:?} ({})", form(code))),
    }
}

/// The form of an instruction. For WebAssembly it is its number: the names of all forms would be a quarter of a module's data.
fn form(code: Code) -> String {
    match cfg!(target_family = "wasm") {
        true => format!("form {}", code as u32),
        false => format!("{code:?}"),
    }
}
