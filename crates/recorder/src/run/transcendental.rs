//! Transcendental instructions of the x87. Processors differ in the results, so these are recorded.

use crate::sys::guard::{Fault, Trap};
use crate::thread::Thread;
use hindsight_events::Event;
use hindsight_glue::{Waiting, X87State};
use hindsight_isa::Transcendental;
use iced_x86::Instruction;
use linux_raw_sys::general::*;

/// Executes `i` and records what it leaves in the x87.
pub fn execute(t: &mut Thread, i: &Instruction, what: Transcendental) -> Result<(), Fault> {
    let mut state = X87State::here();
    // SAFETY: the runtime uses no x87 register. So the program's are in this processor while the runtime runs, and the new ones
    // may stay there.
    unsafe { state.execute(what) }.map_err(|waiting| fault(&waiting, t.ctx.rip))?;
    let registers = state.registers();
    t.event(&Event::X87 {
        ilen: i.len() as u8,
        status: state.status(),
        tags: state.tags(),
        registers: registers[..what.results()].as_flattened(),
    });
    Ok(())
}

/// What the kernel makes of an exception that waited until the instruction at `pc`.
fn fault(Waiting(waiting): &Waiting, pc: u64) -> Fault {
    const COPROCESSOR_ERROR: u8 = 16;
    let code = match waiting {
        w if w & 1 != 0 => FPE_FLTINV,
        w if w & 4 != 0 => FPE_FLTDIV,
        w if w & 8 != 0 => FPE_FLTOVF,
        w if w & 0x12 != 0 => FPE_FLTUND,
        w if w & 0x20 != 0 => FPE_FLTRES,
        _ => 0,
    };
    Fault {
        signo: SIGFPE as u8,
        code: code as i32,
        addr: pc,
        trap: Trap::new(COPROCESSOR_ERROR, 0),
    }
}
