//! Wishes that all threads of the process come to rest soon.

use crate::sys;
use crate::sys::context::Info;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use linux_raw_sys::general::SIGTRAP;

/// Set by the command line: all threads are to come to rest, for one of the reasons in
/// [`hindsight_events::attach::leave`].
#[unsafe(no_mangle)]
static HINDSIGHT_DETACH: AtomicU32 = AtomicU32::new(0);

/// Whether the thread is to be left at the next instruction of the program.
pub fn is_requested() -> bool {
    HINDSIGHT_DETACH.load(Relaxed) != 0
}

/// Whether translated code is to be left at the next instruction of the program, for whatever reason.
pub fn must_leave() -> bool {
    is_requested() || is_dying()
}

/// Code of signals that a process sends with a value.
const SI_QUEUE: i32 = -1;

/// Whether a signal is the wish of the command line, of a thread that dies, or of the process `collector`, that translated
/// code be left. That of the collector may come when the thread has already done what was wished.
pub fn is_kick(signo: i32, info: &Info, collector: Option<i32>) -> bool {
    let sender = info.rest[0] as i32;
    signo as u32 == SIGTRAP
        && info.code == SI_QUEUE
        && (must_leave() || sender > 0 && collector == Some(sender))
}

/// A thread of this process is dying, and the others are to come to rest.
static DYING: AtomicBool = AtomicBool::new(false);

/// Whether the thread is to stop at the next instruction of the program, for good.
pub fn is_dying() -> bool {
    DYING.load(Relaxed)
}

/// This thread is dying. `false`: another one was first.
pub fn begin_dying() -> bool {
    !DYING.swap(true, SeqCst)
}

/// Sends a thread the signal by which translated code is left (see [`is_kick`]).
pub fn kick(tid: i32) {
    let info = Info {
        signo: SIGTRAP as i32,
        code: SI_QUEUE,
        ..Info::default()
    };
    sys::queue_signal_to(tid, &info);
}

/// Why the threads are to be left: one of the reasons in [`hindsight_events::attach::leave`].
pub fn reason() -> u32 {
    HINDSIGHT_DETACH.load(Relaxed)
}
