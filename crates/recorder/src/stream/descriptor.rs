//! The descriptor of the control file, which leads from this process to the collector.

use crate::sys::lock::Lock;
use crate::sys::{self, resources};
use core::sync::atomic::{AtomicI32, Ordering::*};
use linux_raw_sys::general::*;

/// The descriptor. -1: there is none.
static FD: AtomicI32 = AtomicI32::new(-1);

/// Locked by whoever needs the descriptor to lead to the file, and by whoever changes it.
static HELD: Lock<()> = Lock::mended((), |()| ());

/// Most programs do not use descriptors from here on. It is no higher, since the kernel's table of
/// descriptors is as long as the highest number, and each `fork` copies it.
const HIGH: u64 = 900;

/// If the program's limit is above this, a descriptor above the limit would make that table long.
const LONG: u64 = 4096;

/// Keeps `fd`, under another number where that is better.
pub fn hide(fd: i32) {
    let (soft, _) = resources::get(RLIMIT_NOFILE);
    let _raised = resources::Raised::new();
    let (raised, _) = resources::get(RLIMIT_NOFILE);
    // Above the program's limit, if that is allowed: no program looks there.
    let from = if raised > soft && soft <= LONG {
        soft
    } else {
        HIGH.min(soft.saturating_sub(1))
    };
    let high = if fd as u64 >= from {
        Err(0)
    } else {
        sys::duplicate_from(fd, from as i32)
    };
    let hidden = match high {
        Ok(high) => {
            sys::close(fd);
            high
        }
        Err(_) => {
            sys::set_close_on_exec(fd, true);
            fd
        }
    };
    FD.store(hidden, Release);
}

/// The descriptor, if it is open.
pub fn fd() -> Option<i32> {
    Some(FD.load(Acquire)).filter(|fd| *fd >= 0)
}

/// Keeps the descriptor open under its number as long as the result lives, whatever other threads of the program do.
pub fn hold() -> impl Sized {
    HELD.lock()
}

/// Closes the descriptor: the process is not recorded any more.
pub fn close() {
    let _held = hold();
    if let Some(fd) = fd() {
        FD.store(-1, Release);
        sys::close(fd);
    }
}

/// Notes that the descriptor has another number now.
pub fn replace(fd: i32) {
    let _held = hold();
    FD.store(fd, Release);
}
