//! The program's heap and its end, as `brk` moves it.

use crate::memory::maps::{kernel_mappings, regions};
use crate::sys::lock::Lock;
use crate::sys::{self, PAGE};
use core::sync::atomic::{AtomicBool, Ordering::*};

/// The program's heap. The child of a `fork` has a copy, and goes on with it.
struct Heap {
    /// Its lowest and its present end. A change is a single store, so it needs no mending.
    ends: Lock<(u64, u64)>,
    /// The kernel manages it. Set before the program runs.
    is_kernels: AtomicBool,
}

static HEAP: Heap = Heap {
    ends: Lock::mended((0, 0), |_| {}),
    is_kernels: AtomicBool::new(false),
};

/// Sets where the program's heap begins.
pub fn set_brk(start: u64) {
    *HEAP.ends.lock() = (start, start);
}

/// Whether the kernel manages the program's heap.
pub fn is_kernels() -> bool {
    HEAP.is_kernels.load(Relaxed)
}

/// Moves the end of the program's heap.
pub fn set_end(end: u64) {
    HEAP.ends.lock().1 = end;
}

/// Leaves the heap to the kernel, in a process that had one before it was recorded.
pub fn keep_kernel_brk() {
    HEAP.is_kernels.store(true, Relaxed);
    let end = sys::kernel_brk();
    *HEAP.ends.lock() = (end, end);
}

/// The heap, if the recorder manages it. Otherwise an empty range.
pub fn virtual_heap() -> core::ops::Range<u64> {
    if is_kernels() { 0..0 } else { heap() }
}

/// Keeps the heap's end from changing while the process is copied.
pub fn hold() -> impl Sized {
    HEAP.ends.lock()
}

/// The program's heap.
pub fn heap() -> core::ops::Range<u64> {
    let (start, end) = *HEAP.ends.lock();
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
    if is_kernels() {
        return;
    }
    let (start, end) = *HEAP.ends.lock();
    let now = heap_end(start & !(PAGE - 1), sys::pages(end));
    if now != sys::pages(end) {
        set_end(now.max(start));
    }
}
