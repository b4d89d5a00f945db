//! The trap flag: a program that steps through its own instructions.
//!
//! Translated code never runs with the program's trap flag: its steps would be those of host
//! instructions. While the program has the flag set, the thread comes to the runtime after each of
//! its instructions and gets the signal there.
//!
//! Replay knows nothing of the flag. What an instruction does with it is recorded as the
//! instruction's result.

use crate::memory::regime;
use crate::signals::delivery::force;
use crate::sys::context::{Info, TF};
use crate::sys::guard::{self, Trap};
use crate::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use hindsight_events::Event;
use hindsight_isa::regs::{R11, RSP, recorded};
use hindsight_isa::state::RFLAGS_MASK;
use iced_x86::Instruction;
use linux_raw_sys::general::{SIGTRAP, TRAP_TRACE};

/// Number of the debug exception.
const DEBUG: u8 = 1;

/// Delivers the signal that is due, if the instruction has been completed.
pub fn deliver(t: &mut Thread) {
    let s = &mut t.signals.stepping;
    if !core::mem::take(&mut s.due) {
        return;
    }
    t.inbox.beyond.store(u64::MAX, Relaxed);
    if t.pos == s.from && !s.iterated {
        return;
    }
    let size = core::mem::take(&mut s.pushes);
    if size != 0 {
        // The flag is in the second byte.
        let at = t.ctx.gpr[RSP];
        let mut high = [0];
        if guard::read(at + 1, &mut high).is_ok() {
            let _ = guard::write(at + 1, &[high[0] | (TF >> 8) as u8]);
        }
        tell(t, at, size);
    }
    let info = Info::fault(SIGTRAP as u8, TRAP_TRACE as i32, t.ctx.rip);
    force(t, &info, Some(Trap::new(DEBUG, 0)));
}

/// Records what the runtime has written for an instruction that replay does not execute. `len` is 8
/// at most.
pub fn tell(t: &mut Thread, at: u64, len: u64) {
    if t.regime.quiet {
        return regime::tell(t, at, len);
    }
    let mut bytes = [0; 8];
    let bytes = &mut bytes[..len as usize];
    if guard::read(at, bytes).is_ok() {
        t.put(at, bytes);
    }
}

/// Executes the `popf` before which the thread stands. Among the flags that it takes from the stack
/// is the trap flag.
pub fn pop_flags(t: &mut Thread, i: &Instruction) {
    let size = i.stack_pointer_increment() as usize;
    let mut bytes = [0; 8];
    // Translated code has just read this word.
    let _ = guard::read(t.ctx.gpr[RSP], &mut bytes[..size.min(8)]);
    let changes = match size {
        2 => RFLAGS_MASK & 0xffff,
        _ => RFLAGS_MASK,
    };
    t.ctx.rflags = t.ctx.rflags & !changes | u64::from_le_bytes(bytes) & changes;
    t.ctx.gpr[RSP] = t.ctx.gpr[RSP].wrapping_add(size as u64);
    t.ctx.rip = i.next_ip();
    let mut values = [0; recorded::COUNT];
    (values[RSP], values[recorded::FLAGS]) = (t.ctx.gpr[RSP], t.ctx.rflags & RFLAGS_MASK);
    t.event(&Event::Regs {
        mask: 1 << RSP | 1 << recorded::FLAGS,
        ilen: i.len() as u8,
        values,
    });
    t.complete();
    t.signals.stepping.set = true;
}

/// Adds the flag to r11 after a system call, which leaves the flags there.
pub fn after_call(t: &mut Thread) {
    if !t.signals.stepping.set {
        return;
    }
    t.ctx.gpr[R11] |= TF;
    let mut values = [0; recorded::COUNT];
    values[R11] = t.ctx.gpr[R11];
    t.event(&Event::Regs {
        mask: 1 << R11,
        ilen: 0,
        values,
    });
}
