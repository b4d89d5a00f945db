//! The program's heap.

use super::{forget_code, pages};
use crate::lock::Lock;
use crate::maps::{kernel_mappings, regions};
use crate::sigcalls::returned;
use crate::sys::{self, PAGE};
use crate::thread::Thread;
use crate::{arena, limits, regime};
use core::sync::atomic::{AtomicBool, Ordering::*};
use linux_raw_sys::general::*;

/// The program's heap end: lowest allowed, and present. A change is one store.
static BRK: Lock<(u64, u64)> = Lock::mended((0, 0), |_| {});

/// Where the program's heap begins.
pub fn set_brk(start: u64) {
    *BRK.lock() = (start, start);
}

/// The kernel's idea of the heap is the program's.
static KERNEL_BRK: AtomicBool = AtomicBool::new(false);

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

/// The heap: the kernel's own idea of it belongs to the recorder's image, unless the program
/// ran before it was recorded.
pub(super) fn perform(t: &mut Thread, wanted: u64) {
    let (start, end) = *BRK.lock();
    let (old, new) = (pages(end), pages(wanted));
    let prot = PROT_READ | PROT_WRITE;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    let done = if KERNEL_BRK.load(Relaxed) {
        (new <= old || limits::allow(t, new - old, None, true))
            && sys::set_kernel_brk(wanted) == wanted
    } else if wanted < start
        || wanted >= 1 << 47
        || arena::overlaps(start, new.saturating_sub(start))
    {
        false
    } else if new > old {
        limits::allow(t, new - old, None, true)
            && sys::mmap(old, new - old, prot, flags | MAP_FIXED_NOREPLACE, -1, 0).is_ok()
    } else if new < old {
        sys::munmap(new, old - new).is_ok()
    } else {
        true
    };
    if !done {
        returned(t, end);
        return;
    }
    BRK.lock().1 = wanted;
    returned(t, wanted);
    if new > old {
        regions().add(old, new - old, prot, flags, 0, b"[heap]");
        t.zero_window(old, new - old);
        regime::accessible(t, old, new - old);
    } else if new < old {
        forget_code(t, new, old - new);
        regions().remove(new, old - new);
        t.zero_window(new, old - new);
    }
}

/// Where the kernel's mappings say that the heap ends, which begins in the page `first` and ended at `last`.
fn heap_end(first: u64, last: u64) -> u64 {
    let mut end = first;
    for m in kernel_mappings(first, last - first) {
        if m.start == end {
            end = m.end;
        }
    }
    // What is mapped behind and nobody knows of has come to it.
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

/// Takes note of where the heap ends, if whoever changed that was killed.
pub(super) fn catch_up() {
    if KERNEL_BRK.load(Relaxed) {
        return;
    }
    let (start, end) = *BRK.lock();
    let now = heap_end(start & !(PAGE - 1), pages(end));
    if now != pages(end) {
        BRK.lock().1 = now.max(start);
    }
}
