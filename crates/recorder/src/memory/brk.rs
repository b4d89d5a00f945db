//! The program's heap and its end, as `brk` moves it.

use crate::memory::maps::{kernel_mappings, regions};
use crate::sys::lock::Lock;
use crate::sys::{self, PAGE};
use core::sync::atomic::{AtomicBool, Ordering::*};

/// The program's heap: its lowest and its present end. A change is a single store, so it needs no
/// mending.
pub static BRK: Lock<(u64, u64)> = Lock::mended((0, 0), |_| {});

/// Sets where the program's heap begins.
pub fn set_brk(start: u64) {
    *BRK.lock() = (start, start);
}

/// Whether the kernel manages the program's heap.
pub static KERNEL_BRK: AtomicBool = AtomicBool::new(false);

/// Leaves the heap to the kernel, in a process that had one before it was recorded.
pub fn keep_kernel_brk() {
    KERNEL_BRK.store(true, Relaxed);
    let end = sys::kernel_brk();
    *BRK.lock() = (end, end);
}

/// The heap, if the recorder manages it. Otherwise an empty range.
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

/// Where the heap ends by the kernel's mappings. It begins in the page `first`, and ended at `last`
/// before.
fn heap_end(first: u64, last: u64) -> u64 {
    let mut end = first;
    for m in kernel_mappings(first, last - first) {
        if m.start == end {
            end = m.end;
        }
    }
    // A mapping behind the heap that nobody knows of belongs to the heap now.
    let regions = regions();
    let behind = kernel_mappings(last, u64::MAX - last);
    match behind.first() {
        Some(m) if end == last && m.start == last && regions.find(last).is_none() => {
            let mut others = regions.overlapping(last, m.end - last);
            others.next().map_or(m.end, |r| r.start)
        }
        _ => end,
    }
}

/// Corrects the heap's end, if somebody was killed while changing it.
pub fn catch_up() {
    if KERNEL_BRK.load(Relaxed) {
        return;
    }
    let (start, end) = *BRK.lock();
    let now = heap_end(start & !(PAGE - 1), sys::pages(end));
    if now != sys::pages(end) {
        BRK.lock().1 = now.max(start);
    }
}
