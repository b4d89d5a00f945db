//! Memory in the recorder's own part of the address space.

use crate::sys::{self, PAGE};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::*};
use hindsight_events::arena::{ARENA, FAR, FIRST_FREE};
use linux_raw_sys::errno::{EEXIST, EINVAL};
use linux_raw_sys::general::MAP_FIXED_NOREPLACE;

/// First address: that of the recorder's image.
pub const START: u64 = ARENA.start;

/// The parts of the address space, in the order in which they are used: start and end of each.
const RANGES: [(u64, u64); 2] = [(ARENA.start, ARENA.end), (FAR.start, FAR.end)];

/// The next free address in each part.
static NEXT: [AtomicU64; 2] = [AtomicU64::new(FIRST_FREE), AtomicU64::new(FAR.start)];

/// Maps memory at the next free address, with a hole below it. The error is an errno.
pub fn map(len: u64, prot: u32, flags: u32, fd: i32, offset: u64) -> sys::Result<u64> {
    let len = len.next_multiple_of(PAGE);
    let step = len + 16 * PAGE;
    for (next, (_, end)) in NEXT.iter().zip(RANGES) {
        loop {
            let at = next.load(Relaxed);
            if at + step > end {
                break;
            }
            if next
                .compare_exchange(at, at + step, Relaxed, Relaxed)
                .is_err()
            {
                continue;
            }
            let at = at + 16 * PAGE;
            match sys::mmap(at, len, prot, flags | MAP_FIXED_NOREPLACE, fd, offset) {
                Ok(got) if got == at => {
                    // A core dump should show the program, and not be twice as large.
                    sys::madvise_dontdump(at, len);
                    return Ok(at);
                }
                // Kernels before 4.17 take the flag for a hint.
                Ok(got) => {
                    let _ = sys::munmap(got, len);
                    return Err(EINVAL as i32);
                }
                Err(e) if e == EEXIST as i32 => {}
                Err(e) => return Err(e),
            }
        }
    }
    Err(linux_raw_sys::errno::ENOMEM as i32)
}

/// Whether any byte of `addr..addr+len` belongs to the recorder.
pub fn overlaps(addr: u64, len: u64) -> bool {
    let last = addr.saturating_add(len.max(1));
    RANGES
        .iter()
        .any(|(start, end)| addr < *end && last > *start)
}

/// The parts of `addr..addr+len` that do not belong to the recorder: start and length of each.
pub fn outside(addr: u64, len: u64) -> Vec<(u64, u64)> {
    let mut from = addr;
    let end = addr.saturating_add(len);
    let mut out = Vec::new();
    // From the lowest one.
    for (start, after) in RANGES.into_iter().rev() {
        if from < start.min(end) {
            out.push((from, start.min(end) - from));
        }
        from = from.max(after);
    }
    if from < end {
        out.push((from, end - from));
    }
    out
}
