//! System calls that a thread wants to have as signals (`PR_SET_SYSCALL_USER_DISPATCH`): all that
//! are not made by a range of its code, as long as a byte of its memory says so. Programs that run
//! others use it, whose system calls are not those of Linux.
//!
//! The kernel would do it to the recorder's own calls too. So it is not told, and the recorder
//! looks before each call that the program makes. Neither threads nor children inherit it.

use crate::calls::filters;
use crate::signals::{death, delivery};
use crate::sys::context::Info;
use crate::sys::{self, guard};
use crate::thread::Thread;
use crate::thread::call::{Flow, errno};
use crate::thread::emulated::Dispatch;
use crate::thread::filter_list;
use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{__NR_prctl, SIGSEGV, SIGSYS};

/// The operation of `prctl`.
pub const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const OFF: u64 = 0;
/// Calls from within the range are made.
const OUTSIDE: u64 = 1;
/// Calls from outside the range are made (Linux 6.17).
const INSIDE: u64 = 2;

/// What the byte may say.
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// Performs the `prctl` with these arguments.
pub fn set(t: &mut Thread, a: &[u64; 6]) -> u64 {
    let [_, mode, start, len, selector, _] = *a;
    if let Err(e) = ask(mode, start, len, selector) {
        return errno(e);
    }
    t.emulated.dispatch = match mode {
        OUTSIDE => Some((start, len)),
        INSIDE => Some((start.wrapping_add(len), len.wrapping_neg())),
        _ => None,
    }
    .map(|(start, len)| Dispatch {
        start,
        len,
        selector,
    });
    if mode != OFF {
        filter_list::note(filter_list::DISPATCHED);
    }
    0
}

/// Lets the kernel judge the arguments. It acts on them for a moment, in which it finds nothing to
/// do: at first because a byte of our own allows all calls, then because the range is everything.
fn ask(mode: u64, start: u64, len: u64, selector: u64) -> Result<(), u32> {
    static ALLOWED: u8 = ALLOW;
    let call = |a: [u64; 4]| {
        let [mode, start, len, selector] = a;
        // SAFETY: the kernel reads a byte at `selector`, if there is one.
        let ret = unsafe {
            sys::raw(
                __NR_prctl,
                [PR_SET_SYSCALL_USER_DISPATCH, mode, start, len, selector, 0],
            )
        };
        sys::result(ret).map(drop).map_err(|e| e as u32)
    };
    if mode > INSIDE {
        return Err(EINVAL);
    }
    if mode == OFF {
        return call([OFF, start, len, selector]);
    }
    let done = call([mode, start, len, &raw const ALLOWED as u64])
        .and_then(|()| call([OUTSIDE, 0, !0, selector]));
    let _ = call([OFF, 0, 0, 0]);
    done
}

/// Looks whether the call at hand is to be a signal. `None`: it is not.
pub fn check(t: &mut Thread, nr: u32) -> Option<Flow> {
    let d = t.emulated.dispatch?;
    let next = t.ctx.rip + filters::SYSCALL_LEN;
    if next.wrapping_sub(d.start) < d.len {
        return None;
    }
    if d.selector != 0 {
        let mut said = [0];
        let signo = match guard::read(d.selector, &mut said) {
            Err(_) => SIGSEGV,
            Ok(()) if said[0] == ALLOW => return None,
            Ok(()) if said[0] != BLOCK => SIGSYS,
            Ok(()) => 0,
        };
        if signo != 0 {
            const SI_KERNEL: i32 = 0x80;
            let info = Info {
                signo: signo as i32,
                code: SI_KERNEL,
                ..Info::default()
            };
            death::die(t, &info);
        }
    }
    const SYS_USER_DISPATCH: i32 = 2;
    let mut info = filters::information(nr, next);
    info.code = SYS_USER_DISPATCH;
    delivery::refused(t, &info, next);
    t.complete();
    Some(Flow::Jump)
}
