//! Children that borrow this memory, and what becomes of threads that have left it.

use crate::stream::ring;
use crate::sys;
use crate::thread::{Thread, owners, threads};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// There have been children that borrow this memory and for whose end nobody waits.
pub static BORROWERS: AtomicBool = AtomicBool::new(false);

/// Lets go of children that borrowed this memory, were not made by `vfork`, and have left it.
pub fn sweep() {
    if !BORROWERS.load(Acquire) {
        return;
    }
    // SAFETY: threads leave the list before their memory goes.
    let left = threads::remove(|t| unsafe { has_left(t) });
    for t in left {
        // SAFETY: it is in no list, and executes nothing here any more.
        unsafe { discard(t.cast_mut()) };
    }
}

/// Whether a child has left the memory that it borrowed: it is gone, or a new program image has ended
/// its stream.
///
/// # Safety
/// `t` is in the list of threads.
unsafe fn has_left(t: *const Thread) -> bool {
    // SAFETY: the caller's; these are set before the thread is in the list or are atomics.
    let (borrows, tid, ring) = unsafe { ((*t).borrows, (*t).tid, (*t).ring.load(Acquire)) };
    // SAFETY: the caller's.
    let others = unsafe { (*t).slot.pid.load(Acquire) } != sys::getpid();
    (borrows || others && !owners::is_mixed())
        && tid != 0
        && (sys::has_left(tid) || borrows && ring >= 0 && !ring::carries(ring as usize, tid))
}

/// Takes a child that borrowed this memory out of the list, if it is still in it: it has executed
/// a program or ended.
pub fn returned(child: *mut Thread, tid: u64) {
    let gone = |t: *const Thread| {
        // SAFETY: threads leave the list before their memory goes.
        core::ptr::eq(t, child) && unsafe { (*t).tid as u64 } == tid
    };
    for t in threads::remove(gone) {
        // SAFETY: the kernel has told that the child has left this memory.
        unsafe { discard(t.cast_mut()) };
    }
}

/// # Safety
/// Nothing uses the thread or its stack any more.
pub unsafe fn discard(t: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        let slot = (*t).slot;
        if is_at_rest(&*t) {
            discard_structure(t);
        } else {
            // What it was about to free or to move must not be freed again, and locks that it holds are known by its stack.
            (*t).emit.release();
            let Some(next) = slot.succeed() else { return };
            (*t).slot = next;
            (*t).give_back_slot();
            return next.taken.store(0, Release);
        }
        slot.taken.store(0, Release);
    }
}

/// Whether a thread that does not run any more had come to its end or not begun, and was not killed somewhere.
fn is_at_rest(t: &Thread) -> bool {
    t.tid == 0 || t.slot.left.load(Acquire) && !t.slot.dead.load(Acquire)
}

/// # Safety
/// Nothing uses the thread any more, except its stack.
pub unsafe fn discard_structure(t: *mut Thread) {
    // SAFETY: made by `Thread::make`, which leaked the box.
    let mut t = unsafe { Box::from_raw(t) };
    t.emit.release();
    t.give_back_slot();
}
