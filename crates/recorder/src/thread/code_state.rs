//! Which translated code a thread may be running.

use crate::sys::generation;
use core::sync::atomic::{AtomicU64, Ordering, Ordering::*};

/// Which translated code a thread may be running, and of which code its stream says that it runs.
///
/// Whoever begins a generation or an epoch looks at all threads, to know when nobody runs code of the old one.
/// The thread itself writes everything here, in the runtime only.
pub struct CodeState {
    /// Generation of translated code that the thread has noticed: its lookup tables have entries of this one.
    pub generation: u64,
    /// Code epoch that this thread's stream has announced.
    pub epoch: u64,
    /// [`CodeState::generation`], for others to see; the greatest number while it runs no translated code.
    seen: AtomicU64,
    /// [`CodeState::epoch`], for others to see; the greatest number where that does not matter.
    announced: AtomicU64,
}

impl CodeState {
    /// The thread begins: it may run code of the present generation.
    pub(super) fn new() -> CodeState {
        CodeState {
            generation: generation::present(),
            epoch: 0,
            seen: AtomicU64::new(generation::present()),
            announced: AtomicU64::new(0),
        }
    }

    /// The thread runs no translated code until [`CodeState::enter`], however long it waits.
    pub fn leave(&self) {
        self.seen.store(u64::MAX, Release);
    }

    /// The thread is about to run code of the generation that it has noticed. `order`: whoever begins another
    /// without a lock sees this, or the thread sees the other one, if it is `SeqCst`.
    pub fn enter(&self, order: Ordering) {
        self.seen.store(self.generation, order);
    }

    /// The oldest generation whose code the thread may be running.
    pub fn seen(&self) -> u64 {
        self.seen.load(SeqCst)
    }

    /// The stream says which code runs: that of `epoch`, or none that matters (the greatest number).
    pub fn announce(&self, epoch: u64) {
        self.announced.store(epoch, Release);
    }

    /// The oldest epoch whose code the thread may be running.
    pub fn announced(&self) -> u64 {
        self.announced.load(Acquire)
    }
}
