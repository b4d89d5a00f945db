//! Whether there are others against which a thread has to be ordered.

use core::sync::atomic::{AtomicBool, Ordering::*};

/// What the program has made so far against which its threads have to be ordered. Neither is ever taken back. In the child
/// of a `fork` both are as in the parent.
struct Others {
    /// More than one thread or process is recorded, so their order matters. Set before the second one begins.
    many: AtomicBool,
    /// The program has had memory that it can write and that other processes can have, too.
    share: AtomicBool,
}

static OTHERS: Others = Others {
    many: AtomicBool::new(false),
    share: AtomicBool::new(false),
};

/// From now on system calls draw order numbers.
pub fn matters() {
    OTHERS.many.store(true, Release);
}

/// Whether there may be other threads or processes that a thread can be ahead of.
pub fn is_shared() -> bool {
    OTHERS.many.load(Relaxed)
}

/// Notes that the program has memory that other processes can have, too.
pub fn shares() {
    OTHERS.share.store(true, Release);
}

/// Whether the program has had memory that other processes can have, too.
pub fn has_shared_memory() -> bool {
    OTHERS.share.load(Relaxed)
}
