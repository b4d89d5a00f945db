//! Makes the program's own system calls.

use crate::sys::{self, stub};
use crate::thread::signal_state::SYNCHRONOUS;
use crate::thread::{Thread, pass};

/// Makes a call with the program's own arguments. `None`: a signal has to be delivered first.
pub fn pass(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    // SAFETY: the caller handles calls that could harm the recorder elsewhere and does not pass
    // them on.
    unsafe {
        if pass::gives_back(t) {
            return pass::call_with_held(t, nr, a);
        }
        stub::call(nr as u64, *a, &t.inbox.full)
    }
}

/// Gives signals back to the kernel: all that are held for this thread, and those of `shared` that
/// are held for the process.
pub fn give_back(t: &Thread, shared: u64) {
    while let Some(info) = t.signals.held.take(!0) {
        sys::queue_signal(&info);
    }
    while let Some(info) = t.signals.shared.take(shared) {
        sys::queue_signal(&info);
    }
}

/// Whether [`call_with_held`] has to make the thread's next call.
pub fn gives_back(t: &Thread) -> bool {
    t.signals.held.set() != 0 || t.signals.shared.set() & t.signals.looked_for() != 0
}

/// Makes a system call while signals are held. The call may look at signals or wait for them. So
/// the kernel gets the held ones back while the call lasts. `None`: a signal has to be delivered
/// first.
///
/// # Safety
/// As for [`stub::call`].
pub unsafe fn call_with_held(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    sys::set_signal_mask(!0);
    if waiting(t) {
        return None;
    }
    give_back(t, t.signals.looked_for());
    sys::set_signal_mask(t.signals.mask);
    // SAFETY: the caller promises the same.
    let ret = unsafe { stub::call(nr as u64, *a, &t.inbox.full) };
    sys::set_signal_mask(!0);
    if !waiting(t) {
        unblock(t);
    }
    ret
}

/// Whether a signal waits for delivery.
pub fn waiting(t: &Thread) -> bool {
    t.inbox.get().is_some()
}

/// Lets the kernel deliver what the program has not blocked.
pub fn unblock(t: &Thread) {
    sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
}

/// Blocks all signals. Returns whether one waits for delivery.
pub fn comes_first(t: &Thread) -> bool {
    sys::set_signal_mask(!0);
    waiting(t)
}

/// Gives the kernel what else belongs to the program, before the program goes on unrecorded. That
/// is the signals that would be pending, and the alternate stack. All signals are blocked.
pub fn hand_back(t: &mut Thread) {
    give_back(t, !0);
    let alt = t.signals.alt;
    sys::restore_altstack([alt.base, alt.flags as u64, alt.size]);
}
