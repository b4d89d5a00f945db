//! Requests that all threads of the process stop soon.

use crate::sys;
use crate::sys::context::Info;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use linux_raw_sys::general::SIGTRAP;

/// The command line sets it: all threads have to stop, for one of the reasons in
/// [`hindsight_events::attach::leave`]. 0: none.
#[unsafe(no_mangle)]
static HINDSIGHT_DETACH: AtomicU32 = AtomicU32::new(0);

/// Whether threads have to stop at the next instruction of the program, since the process is left.
pub fn is_requested() -> bool {
    HINDSIGHT_DETACH.load(Relaxed) != 0
}

/// Whether translated code has to be left at the next instruction of the program, for whatever
/// reason.
pub fn must_leave() -> bool {
    is_requested() || is_dying()
}

/// Code of signals that a process sends with a value.
const SI_QUEUE: i32 = -1;

/// Whether a signal asks for leaving translated code. It may come from the command line, from a
/// thread that dies, or from the process `collector`. The collector's may come when the thread has
/// already done what was wished.
pub fn is_kick(signo: i32, info: &Info, collector: Option<i32>) -> bool {
    let sender = info.rest[0] as i32;
    signo as u32 == SIGTRAP
        && info.code == SI_QUEUE
        && (must_leave() || sender > 0 && collector == Some(sender))
}

/// A thread of this process is dying, and the others have to stop.
static DYING: AtomicBool = AtomicBool::new(false);

/// Whether threads have to stop at the next instruction of the program, for good.
pub fn is_dying() -> bool {
    DYING.load(Relaxed)
}

/// Notes that this thread is dying. False if another one was first.
pub fn begin_dying() -> bool {
    !DYING.swap(true, SeqCst)
}

/// Sends a thread the signal that makes it leave translated code (see [`is_kick`]).
pub fn kick(tid: i32) {
    let info = Info {
        signo: SIGTRAP as i32,
        code: SI_QUEUE,
        ..Info::default()
    };
    sys::queue_signal_to(tid, &info);
}

/// Why the process is left: one of the reasons in [`hindsight_events::attach::leave`].
pub fn reason() -> u32 {
    HINDSIGHT_DETACH.load(Relaxed)
}
