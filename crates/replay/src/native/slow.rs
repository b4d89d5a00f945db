//! Instructions that translated code leaves to the runtime.

use super::Native;
use crate::Error;
use crate::access::decode;
use crate::cpu::Cpu;
use crate::processor::Processor;
use crate::string::string;
use hindsight_glue::X87State;
use hindsight_isa::string::StringOp;
use hindsight_isa::{Ctx, Transcendental, comes_from_outside};
use hindsight_translate::effective::Registers;
use hindsight_translate::vsib::{Elements, gathers};
use iced_x86::{Instruction, Mnemonic, Register};

/// Executes the instruction in `bytes`, at which no event is due. Does not advance the position.
pub(crate) fn execute(native: &mut Native, cpu: &mut Cpu, bytes: &[u8]) -> Result<(), Error> {
    if let Some(op) = StringOp::decode(bytes) {
        return match string(cpu, &op, None)? {
            true => Ok(()),
            false => Err(cpu.unsupported("a string instruction stopped without a reason")),
        };
    }
    let Some(i) = decode(bytes, cpu.rip) else {
        return Err(cpu.unsupported("not an instruction"));
    };
    if i.memory_index().is_vector_register() {
        return vsib(native, cpu, &i);
    }
    if let Some(what) = Transcendental::of(i.mnemonic()) {
        return transcendental(native, cpu, what);
    }
    use Mnemonic::*;
    match i.mnemonic() {
        // It asks the recorder for something. An answer would be an event.
        Nop => {}
        Rdfsbase => write_register(cpu.window.ctx_mut(), i.op0_register(), |c| c.fs_base),
        Rdgsbase => write_register(cpu.window.ctx_mut(), i.op0_register(), |c| c.gs_base),
        Wrfsbase => {
            let v = read_register(cpu.window.ctx(), i.op0_register());
            cpu.window.ctx_mut().fs_base = v;
        }
        Wrgsbase => {
            let v = read_register(cpu.window.ctx(), i.op0_register());
            cpu.window.ctx_mut().gs_base = v;
        }
        // They only write memory. What they wrote comes as an event when it is read.
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Fxsave | Fxsave64 => {}
        Fnsave | Fsave => native.x87_init(),
        Fnstenv | Fstenv => native.x87_mask(),
        m if comes_from_outside(m) => {
            return Err(cpu.difference("no event", format!("{m:?}, whose result is not recorded")));
        }
        m => return Err(cpu.unsupported(format!("{m:?} is not supported"))),
    }
    Ok(())
}

/// An older recording does not say what these gave, so this machine's results have to do. Where they are others, a comparison of
/// registers finds it.
fn transcendental(native: &mut Native, cpu: &Cpu, what: Transcendental) -> Result<(), Error> {
    if native.knows_transcendental {
        return Err(cpu.difference(
            "no event",
            format!("{what:?}, whose result is not recorded"),
        ));
    }
    match X87State::execute_in(&mut native.area, what) {
        Ok(()) => Ok(()),
        Err(_) => Err(cpu.difference("no event", "an x87 exception that waits")),
    }
}

/// A gather or scatter with a small window.
fn vsib(native: &mut Native, cpu: &mut Cpu, i: &Instruction) -> Result<(), Error> {
    let mut v = native.vectors();
    let registers = Registers::from(cpu.window.ctx());
    let Some(elements) = Elements::of(i, &v, &registers) else {
        return Err(cpu.unsupported("a vector of addresses of an unknown kind"));
    };
    for (e, at) in &elements.active {
        let element = elements.element(&mut v, *e);
        if gathers(i) {
            cpu.window.read(*at, element);
        } else {
            cpu.window.write(*at, element);
        }
    }
    elements.finish(&mut v, gathers(i));
    native.set_vectors(&v);
    Ok(())
}

fn read_register(c: &Ctx, r: Register) -> u64 {
    let v = c.gpr[r.full_register().number() & 15];
    if r.size() == 4 { v as u32 as u64 } else { v }
}

fn write_register(c: &mut Ctx, r: Register, value: impl Fn(&Ctx) -> u64) {
    let v = value(c);
    c.gpr[r.full_register().number() & 15] = if r.size() == 4 { v as u32 as u64 } else { v };
}
