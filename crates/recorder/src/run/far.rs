//! Far transfers and loads of segment registers, as far as 64-bit programs use them:
//!
//! - transfers to the segment in which all of their code lies;
//! - selectors that are in place already, or empty ones.
//!
//! Transfers to 32-bit code end the recording with a message.
//!
//! Replay executes none of these instructions. It takes the registers after them from the
//! recording.

use crate::line;
use crate::signals::{exceptions, frame, stepping};
use crate::sys;
use crate::sys::context::TF;
use crate::sys::guard::{self, Fault, Trap};
use crate::thread::{Thread, end};
use hindsight_events::Event;
use hindsight_isa::regs::{RSP, recorded};
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_translate::effective::Registers;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Linux's selectors: of 64-bit code, of 32-bit code, and of data and stack.
const CODE: u64 = 0x33;
const CODE_32: u64 = 0x23;
const DATA: u64 = 0x2b;
/// In the low bits of a selector: the privilege of programs. The next bit says that the selector is
/// of the local table.
const RING: u64 = 3;
const LOCAL: u64 = 4;
/// The flag of a nested task. With it, `iret` does something else.
const NESTED: u64 = 1 << 14;

/// Executes the instruction `i` at which the thread stands, if it is one of these. False if it is
/// not.
pub fn execute(t: &mut Thread, i: &Instruction) -> bool {
    let done = match i.mnemonic() {
        Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => interrupt_return(t, i),
        Mnemonic::Retf => far_return(t, i),
        _ if i.is_jmp_far_indirect() || i.is_call_far_indirect() => transfer(t, i),
        Mnemonic::Push if is_segment(i) => push(t, i),
        Mnemonic::Pop | Mnemonic::Mov if is_segment(i) => load(t, i),
        _ => return false,
    };
    if let Err(f) = done {
        exceptions::fault(t, &f);
    }
    true
}

/// Whether the first operand is a segment register.
fn is_segment(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::Register && i.op0_register().is_segment_register()
}

/// A general protection fault that names a selector.
fn bad(selector: u64) -> Fault {
    Fault {
        trap: Trap::new(13, selector as u32 & 0xfffc),
        ..Fault::GP
    }
}

/// Fails unless `selector` is that of the program's code. With `jumps` its privilege is not looked
/// at, as the processor does for jumps and calls.
fn check_code(t: &mut Thread, i: &Instruction, selector: u64, jumps: bool) -> Result<(), Fault> {
    match selector & 0xffff {
        CODE => Ok(()),
        s if jumps && s | RING == CODE => Ok(()),
        s if s | RING == CODE_32 => {
            let what = line!("a far transfer to 32-bit code at {:#x}", i.ip());
            end::unsupported(t, &what)
        }
        s if s & LOCAL != 0 => {
            let what = line!(
                "a far transfer to a segment that the program made itself (selector {s:#x}) at {:#x}",
                i.ip()
            );
            end::unsupported(t, &what)
        }
        s => Err(bad(s)),
    }
}

fn canonical(address: u64) -> Result<u64, Fault> {
    match address >> 47 {
        0 => Ok(address),
        _ => Err(Fault::GP),
    }
}

/// Reads `N` words of `size` bytes at `at`.
fn words<const N: usize>(at: u64, size: usize) -> Result<[u64; N], Fault> {
    let mut all = [0; N];
    for (n, word) in all.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        guard::read(at.wrapping_add((n * size) as u64), &mut bytes[..size])?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(all)
}

/// Bytes of each word of an operand, by the instruction's prefixes.
fn size(i: &Instruction) -> usize {
    use iced_x86::Code::*;
    match i.code() {
        Iretw | Retfw | Retfw_imm16 | Jmp_m1616 | Call_m1616 => 2,
        Iretd | Retfd | Retfd_imm16 | Jmp_m1632 | Call_m1632 => 4,
        _ => 8,
    }
}

/// Records that the instruction is done. The thread goes on where its registers say.
fn done(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    t.event(&Event::Regs {
        mask: 0,
        ilen: i.len() as u8,
        values: [0; recorded::COUNT],
    });
    t.complete();
    frame::emit_state(t);
    Ok(())
}

fn interrupt_return(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    let size = size(i);
    let [rip, code, flags, rsp, stack] = words(t.ctx.gpr[RSP], size)?;
    if t.ctx.rflags & NESTED != 0 {
        return Err(Fault::GP);
    }
    check_code(t, i, code, false)?;
    if stack & 0xffff != DATA {
        return Err(bad(stack));
    }
    let rip = canonical(rip)?;
    let changes = match size {
        2 => RFLAGS_MASK & 0xffff,
        _ => RFLAGS_MASK,
    };
    t.ctx.rflags = t.ctx.rflags & !changes | flags & changes;
    t.ctx.gpr[RSP] = rsp;
    t.ctx.rip = rip;
    t.signals.stepping.set = flags & TF != 0;
    done(t, i)
}

fn far_return(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    let size = size(i);
    let [rip, code] = words(t.ctx.gpr[RSP], size)?;
    check_code(t, i, code, false)?;
    t.ctx.rip = canonical(rip)?;
    let more = match i.op_count() {
        0 => 0,
        _ => i.immediate16() as u64,
    };
    t.ctx.gpr[RSP] = t.ctx.gpr[RSP].wrapping_add(2 * size as u64 + more);
    done(t, i)
}

/// A far jump or call whose target stands in memory.
fn transfer(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    let size = size(i);
    let at = Registers::from(&*t.ctx).operand(i, 0);
    let at = at.ok_or(Fault::GP)?;
    let [rip] = words(at, size)?;
    let mut selector = [0; 2];
    guard::read(at.wrapping_add(size as u64), &mut selector)?;
    check_code(t, i, u16::from_le_bytes(selector) as u64, true)?;
    let rip = canonical(rip)?;
    if i.is_call_far_indirect() {
        let to = t.ctx.gpr[RSP].wrapping_sub(2 * size as u64);
        let (mut frame, whole) = ([0; 16], 2 * size);
        frame[..size].copy_from_slice(&i.next_ip().to_le_bytes()[..size]);
        frame[size..size + 2].copy_from_slice(&(CODE as u16).to_le_bytes());
        guard::write(to, &frame[..whole])?;
        t.ctx.gpr[RSP] = to;
        t.ctx.rip = rip;
        done(t, i)?;
        for part in [0, size] {
            stepping::tell(t, to + part as u64, size as u64);
        }
        return Ok(());
    }
    t.ctx.rip = rip;
    done(t, i)
}

/// `push fs` and `push gs`. Both selectors are empty.
fn push(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    let size = i.stack_pointer_increment().unsigned_abs() as usize;
    let to = t.ctx.gpr[RSP].wrapping_sub(size as u64);
    guard::write(to, &[0; 8][..size.min(8)])?;
    t.ctx.gpr[RSP] = to;
    t.ctx.rip = i.next_ip();
    done(t, i)?;
    stepping::tell(t, to, size as u64);
    Ok(())
}

/// Loads a segment register with the selector that it has, or with an empty one.
fn load(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    let register = i.op0_register();
    let registers = Registers::from(&*t.ctx);
    let selector = match i.op1_kind() {
        _ if i.mnemonic() == Mnemonic::Pop => {
            let [word] = words(t.ctx.gpr[RSP], 2)?;
            word
        }
        OpKind::Register => registers.value(i.op1_register()).unwrap_or(0),
        _ => {
            let at = registers.operand(i, 1);
            let [word] = words(at.ok_or(Fault::GP)?, 2)?;
            word
        }
    } & 0xffff;
    match register {
        Register::SS if selector == DATA => {}
        Register::SS if selector & !RING == 0 || selector | RING == DATA => {
            return Err(bad(selector));
        }
        Register::CS => return Err(Fault::GP),
        Register::SS => return refuse(t, i, selector),
        _ if selector != 0 => return refuse(t, i, selector),
        // An empty selector has no base.
        Register::FS => {
            t.ctx.fs_base = 0;
            sys::set_fs_base(0);
        }
        Register::GS => t.ctx.gs_base = 0,
        _ => {}
    }
    if i.mnemonic() == Mnemonic::Pop {
        let size = i.stack_pointer_increment() as u64;
        t.ctx.gpr[RSP] = t.ctx.gpr[RSP].wrapping_add(size);
    }
    t.ctx.rip = i.next_ip();
    done(t, i)
}

fn refuse(t: &mut Thread, i: &Instruction, selector: u64) -> Result<(), Fault> {
    let (what, pc) = (i.op0_register(), i.ip());
    let what =
        line!("selector {selector:#x} is loaded into the segment register {what:?} at {pc:#x}");
    end::unsupported(t, &what)
}
