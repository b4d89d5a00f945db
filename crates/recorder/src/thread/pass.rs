//! Makes the program's system calls.

use crate::sys::{self, stub};
use crate::thread::signal_state::SYNCHRONOUS;
use crate::thread::{Thread, pass};

/// Makes the call for the program as it is. `None`: a signal comes first.
pub fn pass(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    // SAFETY: calls that could harm the recorder are not passed on.
    unsafe {
        if pass::gives_back(t) {
            return pass::call_with_held(t, nr, a);
        }
        stub::call(nr as u64, *a, &t.inbox.full)
    }
}

/// Has the kernel keep those that are held for this thread, and `shared` of the process's.
pub fn give_back(t: &Thread, shared: u64) {
    while let Some(info) = t.signals.held.take(!0) {
        sys::queue_signal(&info);
    }
    while let Some(info) = t.signals.shared.take(shared) {
        sys::queue_signal(&info);
    }
}

/// Whether a call that the thread makes is to be made by [`call_with_held`].
pub fn gives_back(t: &Thread) -> bool {
    t.signals.held.set() != 0 || t.signals.shared.set() & t.signals.looked_for() != 0
}

/// Makes a system call while signals are held: gives them back to the kernel as long as it lasts,
/// since the call may be one that looks at them or waits for them. `None`: a signal comes first.
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
    // SAFETY: the caller's.
    let ret = unsafe { stub::call(nr as u64, *a, &t.inbox.full) };
    sys::set_signal_mask(!0);
    if !waiting(t) {
        unblock(t);
    }
    ret
}

/// Whether a signal waits for [`deliver_pending`].
pub fn waiting(t: &Thread) -> bool {
    t.inbox.get().is_some()
}

/// Lets the kernel deliver what the program has not blocked.
pub fn unblock(t: &Thread) {
    sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
}

/// Blocks all signals, unless one waits for [`deliver_pending`].
pub fn comes_first(t: &Thread) -> bool {
    sys::set_signal_mask(!0);
    waiting(t)
}

/// Makes what else is the program's own that of the kernel: the signals that it would have
/// pending, and its alternate stack. All signals are blocked.
pub fn hand_back(t: &mut Thread) {
    give_back(t, !0);
    let alt = t.signals.alt;
    sys::restore_altstack([alt.base, alt.flags as u64, alt.size]);
}
