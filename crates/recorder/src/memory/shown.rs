//! What the recorder has to remember in order to show it in `/proc`.

use crate::sys::lock::Lock;
use alloc::vec::Vec;

/// What is remembered. The child of a `fork` has a copy, and goes on with it.
struct Shown {
    /// The largest size of the program and of its resident memory that were seen, in bytes.
    peak: Lock<(u64, u64)>,
    /// The auxiliary vector with which the program begins. Set before it runs.
    auxv: Lock<Vec<u8>>,
}

static SHOWN: Shown = Shown {
    peak: Lock::new((0, 0)),
    auxv: Lock::new(Vec::new()),
};

/// The largest sizes so far. The given ones count, too.
pub fn peaks(size: u64, resident: u64) -> (u64, u64) {
    let mut p = SHOWN.peak.lock();
    *p = (p.0.max(size), p.1.max(resident));
    *p
}

/// Notes the auxiliary vector with which the program begins.
pub fn set_auxv(bytes: &[u8]) {
    *SHOWN.auxv.lock() = bytes.to_vec();
}

/// The auxiliary vector as it was noted.
pub fn auxv() -> Vec<u8> {
    SHOWN.auxv.lock().clone()
}

/// Keeps what this module notes from changing while the process is copied.
pub fn hold() -> impl Sized {
    (SHOWN.auxv.lock(), SHOWN.peak.lock())
}
