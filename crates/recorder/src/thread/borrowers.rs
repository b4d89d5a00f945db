//! Children that borrow this memory, and the cleaning up after threads that have left it.

use crate::stream::ring;
use crate::sys;
use crate::thread::{Thread, owners, threads};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// Whether there have been children that borrow this memory and for whose end nobody waits.
static BORROWERS: AtomicBool = AtomicBool::new(false);

/// Says that such a child is about to be made.
pub fn expect() {
    BORROWERS.store(true, Release);
}

/// Discards children that borrowed this memory, were not made by `vfork`, and have left it.
pub fn sweep() {
    if !BORROWERS.load(Acquire) {
        return;
    }
    // SAFETY: `remove` passes threads that are in the list. Their memory is freed only after they
    // left it.
    let left = threads::remove(|t| unsafe { has_left(t) });
    for t in left {
        // SAFETY: `remove` took it out of the list, and `has_left` says that it executes nothing
        // here any more.
        unsafe { discard(t.cast_mut()) };
    }
}

/// Whether a child has left the memory that it borrowed: it has ended, or a new program image has
/// ended its stream.
///
/// # Safety
/// `t` is in the list of threads.
unsafe fn has_left(t: *const Thread) -> bool {
    // SAFETY: the caller promises that `t` is in the list. `borrows` and `tid` were set before it
    // got there, `ring` is atomic.
    let (borrows, tid, ring) = unsafe { ((*t).task.borrows, (*t).task.tid, (*t).task.ring()) };
    // SAFETY: as above. `slot` was set when the thread was made, and slots are never freed.
    let others = unsafe { (*t).slot.pid.load(Acquire) } != sys::getpid();
    (borrows || others && !owners::is_mixed())
        && tid != 0
        && (sys::has_left(tid) || borrows && ring.is_some_and(|r| !ring::carries(r, tid)))
}

/// Discards a child that borrowed this memory and has executed a program or ended. Does nothing if
/// it is not in the list any more.
pub fn returned(child: *mut Thread, tid: u64) {
    let gone = |t: *const Thread| {
        // SAFETY: `remove` passes threads that are in the list. Their memory is freed only after
        // they left it.
        core::ptr::eq(t, child) && unsafe { (*t).task.tid as u64 } == tid
    };
    for t in threads::remove(gone) {
        // SAFETY: callers call this when the kernel has told them that the child has left this
        // memory.
        unsafe { discard(t.cast_mut()) };
    }
}

/// Frees a thread that has left this memory, and gives its slot to others.
///
/// # Safety
/// Nothing uses the thread or its stack any more.
pub unsafe fn discard(t: *mut Thread) {
    // SAFETY: the caller promises that nothing uses the thread.
    unsafe {
        let slot = (*t).slot;
        if is_at_rest(&*t) {
            discard_structure(t);
        } else {
            // It was killed somewhere. What it was about to free or to move must not be freed
            // again. A lock that it holds is known by an address on its stack, so nobody else gets
            // that stack.
            (*t).emit.release();
            let Some(next) = slot.succeed() else { return };
            (*t).slot = next;
            (*t).give_back_slot();
            return next.taken.store(0, Release);
        }
        slot.taken.store(0, Release);
    }
}

/// Whether a thread that does not run any more has come to its end or has never begun. If not, it
/// was killed somewhere.
fn is_at_rest(t: &Thread) -> bool {
    t.task.tid == 0 || t.slot.left.load(Acquire) && !t.slot.dead.load(Acquire)
}

/// Frees a thread's structure and gives its slot back.
///
/// # Safety
/// Nothing uses the thread any more, except its stack.
pub unsafe fn discard_structure(t: *mut Thread) {
    // SAFETY: `Thread::make` leaked a box, and the caller promises that nothing uses it any more.
    let mut t = unsafe { Box::from_raw(t) };
    t.emit.release();
    t.give_back_slot();
}
