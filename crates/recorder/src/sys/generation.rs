//! The generation of translated code: how often all of it has been thrown away.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// The present generation.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The present generation of translated code.
pub fn present() -> u64 {
    GENERATION.load(SeqCst)
}

/// A new one begins.
pub fn next() {
    GENERATION.fetch_add(1, SeqCst);
}
