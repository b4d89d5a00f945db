//! Tells locks which thread owns them, and whether that thread lives.

use crate::sys::{self, lock, log};
use crate::thread::ThreadSlot;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// Some threads in this memory are in another namespace of process ids, so a number does not say
/// who that is.
static MIXED: AtomicBool = AtomicBool::new(false);

/// Notes that the calling thread, a process of its own, has begun to run in this memory.
pub fn arrive() {
    if sys::getppid() == 0 {
        MIXED.store(true, Release);
    }
}

/// A thread, known by an address on its stack in the recorder. As long as this value exists, no
/// other thread gets that stack.
struct Owner {
    address: u64,
    slot: &'static ThreadSlot,
}

/// Makes locks ask here whether their owners live, and the log where threads stand.
pub fn serve_locks() {
    lock::ask(|address, then| {
        if let Some(slot) = ThreadSlot::at(address) {
            slot.watched.fetch_add(1, SeqCst);
            then(&Owner { address, slot });
        }
    });
    log::ask_position(|address| {
        let thread = ThreadSlot::at(address)?.thread.load(Acquire);
        // SAFETY: whose stack that is asks, so the thread is there.
        unsafe { thread.as_ref() }.map(|t| t.pos)
    });
}

impl lock::Owner for Owner {
    fn is(&self, address: u64) -> bool {
        self.address == address
    }

    fn has(&self, address: u64) -> bool {
        ThreadSlot::at(address).is_some_and(|s| core::ptr::eq(s, self.slot))
    }

    fn is_gone(&self) -> bool {
        let tid = self.slot.tid.load(SeqCst);
        self.slot.dead.load(Acquire) && (tid == 0 || sys::has_left(tid))
            || tid > 0 && !is_mixed() && sys::has_left(tid)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.slot.watched.fetch_sub(1, SeqCst);
    }
}

/// Whether some processes that share this memory are in another namespace of process ids.
pub fn is_mixed() -> bool {
    MIXED.load(Acquire)
}
