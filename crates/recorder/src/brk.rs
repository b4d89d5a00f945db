//! The end of the program's heap, as `brk` moves it.

use crate::lock::Lock;
use crate::sys;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// The program's heap end: lowest allowed, and present.
pub static BRK: Lock<(u64, u64)> = Lock::new((0, 0));

/// Where the program's heap begins.
pub fn set_brk(start: u64) {
    *BRK.lock() = (start, start);
}

/// The kernel's idea of the heap is the program's.
pub static KERNEL_BRK: AtomicBool = AtomicBool::new(false);

/// Leaves the heap to the kernel, in a process that had one before it was recorded.
pub fn keep_kernel_brk() {
    KERNEL_BRK.store(true, Relaxed);
    let end = sys::kernel_brk();
    *BRK.lock() = (end, end);
}

/// The heap, if the kernel does not know of it; else 0 to 0.
pub fn virtual_heap() -> core::ops::Range<u64> {
    if KERNEL_BRK.load(Relaxed) {
        0..0
    } else {
        heap()
    }
}

/// Keeps the heap's end from changing while the process is copied.
pub fn hold() -> impl Sized {
    BRK.lock()
}

/// The program's heap.
pub fn heap() -> core::ops::Range<u64> {
    let (start, end) = *BRK.lock();
    start..end
}
