//! What has to be remembered to be shown in `/proc`.

use crate::sys::lock::Lock;
use alloc::vec::Vec;

/// Most that has been seen of the program's size and of its resident memory.
static PEAK: Lock<(u64, u64)> = Lock::new((0, 0));

/// The greatest sizes so far, these included.
pub fn peaks(size: u64, resident: u64) -> (u64, u64) {
    let mut p = PEAK.lock();
    *p = (p.0.max(size), p.1.max(resident));
    *p
}

static AUXV: Lock<Vec<u8>> = Lock::new(Vec::new());

/// Notes the auxiliary vector with which the program begins.
pub fn set_auxv(bytes: &[u8]) {
    *AUXV.lock() = bytes.to_vec();
}

/// What was noted of it.
pub fn auxv() -> Vec<u8> {
    AUXV.lock().clone()
}

/// Keeps what this module notes from changing while the process is copied.
pub fn hold() -> impl Sized {
    (AUXV.lock(), PEAK.lock())
}
