//! What the recorder has to remember in order to show it in `/proc`.

use crate::sys::lock::Lock;
use alloc::vec::Vec;

/// The largest size of the program and of its resident memory that were seen, in bytes.
static PEAK: Lock<(u64, u64)> = Lock::new((0, 0));

/// The largest sizes so far. The given ones count, too.
pub fn peaks(size: u64, resident: u64) -> (u64, u64) {
    let mut p = PEAK.lock();
    *p = (p.0.max(size), p.1.max(resident));
    *p
}

/// The auxiliary vector with which the program begins.
static AUXV: Lock<Vec<u8>> = Lock::new(Vec::new());

/// Notes the auxiliary vector with which the program begins.
pub fn set_auxv(bytes: &[u8]) {
    *AUXV.lock() = bytes.to_vec();
}

/// The auxiliary vector as it was noted.
pub fn auxv() -> Vec<u8> {
    AUXV.lock().clone()
}

/// Keeps what this module notes from changing while the process is copied.
pub fn hold() -> impl Sized {
    (AUXV.lock(), PEAK.lock())
}
