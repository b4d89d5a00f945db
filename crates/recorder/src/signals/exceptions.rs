//! Exceptions of the program's instructions, as the signals that the kernel makes of them.

use crate::memory::maps::regions;
use crate::signals::delivery::force;
use crate::sys::PAGE;
use crate::sys::context::Info;
use crate::sys::guard::{Fault, Trap};
use crate::thread::Thread;
use hindsight_isa::desc::raise;
use linux_raw_sys::general::*;

/// Number of the page fault.
pub const PAGE_FAULT: u8 = 14;
/// Bits of a page fault's error code: the program caused it; it was an instruction fetch.
const USER: u32 = 4;
const FETCH: u32 = 16;

/// Delivers the fault of an access that the runtime has made for the instruction at `ctx.rip`.
pub fn fault(t: &mut Thread, f: &Fault) {
    let trap = Trap {
        address: f.addr,
        ..f.trap
    };
    force(t, &Info::fault(f.signo, f.code, f.addr), Some(trap));
}

/// Delivers what the kernel answers to a signal frame that it cannot take back.
pub fn bad_frame(t: &mut Thread) {
    force(t, &Info::fault(SIGSEGV as u8, SI_KERNEL as i32, 0), None);
}

/// Delivers the exception `what` (of [`raise`]) of the instruction at `ctx.rip`. For [`raise::BP`]
/// that is the instruction after the breakpoint.
pub fn exception(t: &mut Thread, what: u8) {
    const ILL_ILLOPN: i32 = 2;
    let pc = t.ctx.rip;
    let kernel = SI_KERNEL as i32;
    let (info, trap) = match what {
        raise::UD => (Info::fault(SIGILL as u8, ILL_ILLOPN, pc), Trap::new(6, 0)),
        raise::BP => (Info::fault(SIGTRAP as u8, kernel, 0), Trap::new(3, 0)),
        raise::FETCH => {
            let regions = regions();
            // An instruction may begin in an executable page and go on in one that is not.
            let at = match regions.is_exec(pc) {
                true => (pc | (PAGE - 1)) + 1,
                false => pc,
            };
            let prot = regions.find(at).map(|r| r.prot);
            let code = match prot {
                Some(_) => SEGV_ACCERR,
                None => SEGV_MAPERR,
            };
            let present = prot.is_some_and(|p| p != PROT_NONE);
            let trap = Trap {
                number: PAGE_FAULT,
                error: USER | FETCH | present as u32,
                address: at,
            };
            (Info::fault(SIGSEGV as u8, code as i32, at), trap)
        }
        _ => return fault(t, &Fault::GP),
    };
    force(t, &info, Some(trap));
}

/// Delivers what `int n` of the instruction at hand means. `n` is not 80h. `next` is the address
/// behind it.
pub fn interrupt(t: &mut Thread, n: u8, next: u64) {
    const BREAKPOINT: u8 = 3;
    const OVERFLOW: u8 = 4;
    let kernel = SI_KERNEL as i32;
    match n {
        BREAKPOINT => {
            t.ctx.rip = next;
            exception(t, raise::BP);
        }
        OVERFLOW => {
            t.ctx.rip = next;
            let info = Info::fault(SIGSEGV as u8, kernel, 0);
            force(t, &info, Some(Trap::new(OVERFLOW, 0)));
        }
        _ => fault(
            t,
            &Fault {
                // The error code names the entry of the interrupt table.
                trap: Trap::new(13, (n as u32) << 3 | 2),
                ..Fault::GP
            },
        ),
    }
}

/// Delivers the debug exception of `int1`, before which the thread stands. `next` is the address
/// behind it.
pub fn debug_trap(t: &mut Thread, next: u64) {
    t.ctx.rip = next;
    let info = Info::fault(SIGTRAP as u8, TRAP_BRKPT as i32, next);
    force(t, &info, Some(Trap::new(1, 0)));
}
