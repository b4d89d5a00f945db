//! The generation of translated code: how often the translation cache has been begun anew.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// The present generation.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The present generation.
pub fn present() -> u64 {
    GENERATION.load(SeqCst)
}

/// Begins a new generation.
pub fn next() {
    GENERATION.fetch_add(1, SeqCst);
}
