//! Hints, fences, and the segment bases.

use crate::Memory;
use crate::core::{Core, slot};
use crate::op::{Flow, Int, Op, Run};
use crate::operand::gpr;
use iced_x86::{Instruction, Mnemonic};

fn nothing<M: Memory>(_: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    Flow::Next
}

/// Reads the segment base in slot `c`.
fn read_base<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    T::held(c, o.c).set(c, o.a);
    Flow::Next
}

fn write_base<M: Memory, T: Int>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    c.gpr[(o.c & 31) as usize] = T::held(c, o.a).wide();
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    let wide = i.op0_register().is_gpr64();
    match i.mnemonic() {
        Nop | Endbr64 | Endbr32 | Prefetchnta | Prefetcht0 | Prefetcht1 | Prefetcht2
        | Prefetchw | Prefetch | Prefetchit0 | Prefetchit1 | Prefetchwt1 | Reservednop
        | Clflush | Clflushopt | Clwb | Cldemote | Rdsspd | Rdsspq | Pause | Mfence | Lfence
        | Sfence => Some(nothing),
        Rdfsbase | Wrfsbase | Rdgsbase | Wrgsbase => {
            o.a = gpr(i.op0_register());
            o.c = match i.mnemonic() {
                Rdfsbase | Wrfsbase => slot::FS,
                _ => slot::GS,
            };
            Some(match (i.mnemonic(), wide) {
                (Rdfsbase | Rdgsbase, true) => read_base::<M, u64>,
                (Rdfsbase | Rdgsbase, false) => read_base::<M, u32>,
                (_, true) => write_base::<M, u64>,
                (_, false) => write_base::<M, u32>,
            })
        }
        _ => Option::None,
    }
}
