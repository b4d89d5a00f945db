//! Whether there are others against which a thread has to be ordered.

use core::sync::atomic::{AtomicBool, Ordering::*};

/// More than one thread or process is recorded, so their order matters.
static MANY: AtomicBool = AtomicBool::new(false);

/// The program has had memory that it can write and that other processes can have, too.
static SHARES: AtomicBool = AtomicBool::new(false);

/// From now on system calls draw order numbers.
pub fn matters() {
    MANY.store(true, Release);
}

/// Whether there may be other threads or processes that a thread can be ahead of.
pub fn is_shared() -> bool {
    MANY.load(Relaxed)
}

/// Notes that the program has memory that other processes can have, too.
pub fn shares() {
    SHARES.store(true, Release);
}

/// Whether the program has had memory that other processes can have, too.
pub fn has_shared_memory() -> bool {
    SHARES.load(Relaxed)
}
