//! Control and status words, and the whole state.

use super::form::end;
use crate::Memory;
use crate::core::Core;
use crate::core::x87::BUSY;
use crate::op::{Flow, Int, Op, Run};
use crate::word::Lane;
use hindsight_isa::regs::RAX;
use iced_x86::{Code, Instruction, Mnemonic, OpKind};

fn fninit<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    c.x87.init();
    Flow::Next
}

/// What it writes is not computed. `o.imm` is its length.
fn fnsave<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    m.saved(o.address(c), o.imm);
    c.x87.init();
    Flow::Next
}

/// The same.
fn fnstenv<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    m.saved(o.address(c), o.imm);
    c.x87.fcw |= 0x3f;
    Flow::Next
}

fn fnstcw<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    m.store(o.address(c), c.x87.fcw.to_le_bytes());
    Flow::Next
}

fn fldcw<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let fcw = u16::from_le_bytes(m.load(o.address(c)));
    c.x87.set_control(fcw);
    Flow::Next
}

fn fnstsw<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    m.store(o.address(c), c.x87.status_word().to_le_bytes());
    Flow::Next
}

fn fnstsw_ax<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    c.x87.status_word().set(c, RAX as u8);
    Flow::Next
}

fn fnclex<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    c.x87.status &= !(0xff | BUSY);
    Flow::Next
}

/// FINCSTP (`c` is 1) and FDECSTP (`c` is 7).
fn turn<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    c.x87.top = (c.x87.top + o.c) & 7;
    c.x87.set_c1(false);
    Flow::Next
}

fn ffree<M: Memory>(c: &mut Core, _: &mut M, o: &Op<M>) -> Flow {
    let slot = c.x87.slot(o.a);
    c.x87.full &= !(1 << slot);
    c.x87.set_c1(false);
    Flow::Next
}

/// FFREEP.
fn free_and_pop<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    ffree(c, m, o);
    c.x87.pop();
    Flow::Next
}

fn emms<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    (c.x87.full, c.x87.top) = (0, 0);
    Flow::Next
}

fn nothing<M: Memory>(c: &mut Core, _: &mut M, _: &Op<M>) -> Flow {
    end(c, Ok(()))
}

/// Loads an environment, whose fields have `field` bytes. There are seven.
fn environment<M: Memory>(c: &mut Core, m: &mut M, at: u64, field: u64) {
    let word = |m: &mut M, n: u64| u16::from_le_bytes(m.load(at.wrapping_add(n * field)));
    let (fcw, fsw, tags) = (word(m, 0), word(m, 1), word(m, 2));
    c.x87.set_status_word(fsw);
    c.x87.full = (0..8)
        .filter(|i| tags >> (2 * i) & 3 != 3)
        .map(|i| 1 << i)
        .sum();
    c.x87.set_control(fcw);
}

fn fldenv<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    environment(c, m, o.address(c), o.size as u64);
    Flow::Next
}

fn frstor<M: Memory>(c: &mut Core, m: &mut M, o: &Op<M>) -> Flow {
    let at = o.address(c);
    environment(c, m, at, o.size as u64);
    let registers = at.wrapping_add(7 * o.size as u64);
    let st: [Lane; 8] = std::array::from_fn(|i| {
        let mut lane = [0; 16];
        let bytes: [u8; 10] = m.load(registers.wrapping_add(10 * i as u64));
        lane[..10].copy_from_slice(&bytes);
        lane
    });
    let (fcw, fsw, full) = (c.x87.fcw, c.x87.status_word(), c.x87.full);
    c.x87.restore(fcw, fsw, full, &st);
    Flow::Next
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    use Mnemonic::*;
    match i.mnemonic() {
        Fninit | Finit => Some(fninit),
        Fnsave | Fsave => {
            o.imm = i.memory_size().size() as u64;
            Some(fnsave)
        }
        Fnstenv | Fstenv => {
            o.imm = i.memory_size().size() as u64;
            Some(fnstenv)
        }
        Fnstcw | Fstcw => Some(fnstcw),
        Fldcw => Some(fldcw),
        Fnstsw | Fstsw => Some(match i.op0_kind() == OpKind::Memory {
            true => fnstsw,
            false => fnstsw_ax,
        }),
        Fnclex | Fclex => Some(fnclex),
        Fincstp | Fdecstp => {
            o.c = if i.mnemonic() == Fincstp { 1 } else { 7 };
            Some(turn)
        }
        Ffree | Ffreep => {
            o.a = i.op0_register().number() as u8;
            Some(match i.mnemonic() {
                Ffree => ffree,
                _ => free_and_pop,
            })
        }
        Emms => Some(emms),
        Fnop | Wait | Fneni | Fndisi | Fnsetpm => Some(nothing),
        Fldenv | Frstor => {
            o.size = match i.code() {
                Code::Fldenv_m14byte | Code::Frstor_m94byte => 2,
                _ => 4,
            };
            Some(match i.mnemonic() {
                Fldenv => fldenv,
                _ => frstor,
            })
        }
        _ => Option::None,
    }
}
