//! The call that moves the end of the program's heap.

use super::forget_code;
use crate::memory::brk;
use crate::memory::maps::regions;
use crate::memory::{limits, regime};
use crate::sys::{self, arena};
use crate::thread::Thread;
use crate::thread::call::returned;
use core::ops::Range;
use linux_raw_sys::general::*;

/// Performs `brk`. The kernel's heap belongs to the recorder's image, so the recorder keeps the
/// program's. If the program ran before it was recorded, the kernel's heap is the program's.
pub(super) fn perform(t: &mut Thread, wanted: u64) {
    let Range { start, end } = brk::heap();
    let (old, new) = (sys::pages(end), sys::pages(wanted));
    let prot = PROT_READ | PROT_WRITE;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    let done = if brk::is_kernels() {
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
    brk::set_end(wanted);
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
