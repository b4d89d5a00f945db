//! Exchanges. A lock changes nothing here: the thread has its memory to itself.

use super::form::{At, at, size, sized};
use crate::Memory;
use crate::core::Core;
use crate::flags::{Flags, ZF};
use crate::op::{A, Flow, Int, Mem, Op, Place, Run};
use crate::operand::gpr;
use hindsight_isa::regs::{RAX, RBX, RCX, RDX};
use iced_x86::{Instruction, Mnemonic};

fn xchg<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b): (T, T) = (P::get(c, m, o), T::held(c, o.b));
    P::set(c, m, o, b);
    a.set(c, o.b);
    Flow::Next
}

fn xadd<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, b): (T, T) = (P::get(c, m, o), T::held(c, o.b));
    let r = a.plus(b);
    // In memory first: the register may be a part of the address. Between registers, the sum wins.
    if o.c != 0 {
        P::set(c, m, o, r);
        a.set(c, o.b);
    } else {
        a.set(c, o.b);
        P::set(c, m, o, r);
    }
    c.flags = Flags::sum(a, b, r);
    Flow::Next
}

fn cmpxchg<M: Memory, T: Int, P: Place>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let (a, rax): (T, T) = (P::get(c, m, o), T::held(c, RAX as u8));
    c.flags = Flags::difference(rax, a, rax.minus(a));
    if a == rax {
        let b = T::held(c, o.b);
        P::set(c, m, o, b);
    } else {
        // Memory is written with what it had.
        if o.c != 0 {
            P::set(c, m, o, a);
        }
        a.set(c, RAX as u8);
    }
    Flow::Next
}

/// CMPXCHG8B and CMPXCHG16B change only ZF. `T` is half the operand.
fn cmpxchg_wide<M: Memory, T: Int>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    let behind = at.wrapping_add(T::BYTES as u64);
    let (low, high) = (T::load(m, at), T::load(m, behind));
    let same = low == T::held(c, RAX as u8) && high == T::held(c, RDX as u8);
    let (new_low, new_high) = match same {
        true => (T::held(c, RBX as u8), T::held(c, RCX as u8)),
        false => (low, high),
    };
    new_low.store(m, at);
    new_high.store(m, behind);
    if !same {
        low.set(c, RAX as u8);
        high.set(c, RDX as u8);
    }
    c.flags = Flags::from_bits(c.flags.bits() & !ZF | if same { ZF } else { 0 });
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    let memory = at(i, 0) == At::Memory;
    macro_rules! of {
        ($f:ident) => {{
            o.a = gpr(i.op0_register());
            o.b = gpr(i.op1_register());
            o.c = memory as u8;
            match memory {
                true => sized!(size(i, 0), T => $f::<M, T, Mem>),
                false => sized!(size(i, 0), T => $f::<M, T, A>),
            }
        }};
    }
    match i.mnemonic() {
        Mnemonic::Xchg if at(i, 1) == At::Memory => {
            o.b = gpr(i.op0_register());
            sized!(size(i, 1), T => xchg::<M, T, Mem>)
        }
        Mnemonic::Xchg => of!(xchg),
        Mnemonic::Xadd => of!(xadd),
        Mnemonic::Cmpxchg => of!(cmpxchg),
        Mnemonic::Cmpxchg8b => Some(cmpxchg_wide::<M, u32>),
        Mnemonic::Cmpxchg16b => Some(cmpxchg_wide::<M, u64>),
        _ => None,
    }
}
