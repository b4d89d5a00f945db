//! The recorder's own part of the address space: far from where the kernel puts a program, its
//! libraries, heap and stack, so that neither gets in the other's way.

use crate::sys::{self, PAGE};
use core::sync::atomic::{AtomicU64, Ordering::*};
use linux_raw_sys::errno::{EEXIST, EINVAL};
use linux_raw_sys::general::MAP_FIXED_NOREPLACE;

/// First address: that of the recorder's image (see `build.rs`).
pub const START: u64 = 0x6800_0000_0000;
/// End of the range.
pub const END: u64 = 0x6c00_0000_0000;

static NEXT: AtomicU64 = AtomicU64::new(START + (4 << 30));

/// Maps memory at the next free place, with a hole before it.
pub fn map(len: u64, prot: u32, flags: u32, fd: i32, offset: u64) -> sys::Result<u64> {
    let len = len.next_multiple_of(PAGE);
    loop {
        let step = len + 16 * PAGE;
        let at = NEXT.fetch_add(step, Relaxed) + 16 * PAGE;
        if at + len > END {
            return Err(linux_raw_sys::errno::ENOMEM as i32);
        }
        match sys::mmap(at, len, prot, flags | MAP_FIXED_NOREPLACE, fd, offset) {
            Ok(got) if got == at => {
                // A core dump is to be the program's, and not twice its size.
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

/// Whether any byte of `addr..addr+len` is the recorder's.
pub fn overlaps(addr: u64, len: u64) -> bool {
    addr < END && addr.saturating_add(len.max(1)) > START
}
