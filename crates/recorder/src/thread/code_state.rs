//! Which translated code a thread may be running.

use crate::sys::generation;
use core::sync::atomic::{AtomicU64, Ordering, Ordering::*};

/// Which translated code a thread may be running, and what its stream says about that.
///
/// Whoever begins a generation or an epoch looks at all threads, to find out when nobody runs the
/// old code any more. Only the thread itself writes this, and only in the runtime.
pub struct CodeState {
    /// The generation of translated code that the thread has noticed. Its lookup tables have only
    /// entries of this one.
    pub generation: u64,
    /// The code epoch that its stream has announced last.
    pub epoch: u64,
    /// [`CodeState::generation`], for other threads. The maximum while it runs no translated code.
    seen: AtomicU64,
    /// [`CodeState::epoch`], for other threads. The maximum where the epoch does not matter.
    announced: AtomicU64,
}

impl CodeState {
    /// For a thread that begins: it may run code of the present generation.
    pub(super) fn new() -> CodeState {
        CodeState {
            generation: generation::present(),
            epoch: 0,
            seen: AtomicU64::new(generation::present()),
            announced: AtomicU64::new(0),
        }
    }

    /// The thread runs no translated code until [`CodeState::enter`], however long that takes.
    pub fn leave(&self) {
        self.seen.store(u64::MAX, Release);
    }

    /// The thread is about to run code of the generation that it has noticed.
    ///
    /// With `order` `SeqCst` this works without a lock, if the thread looks at the present
    /// generation after it. Either the thread sees a new generation, or whoever begins that sees
    /// this store.
    pub fn enter(&self, order: Ordering) {
        self.seen.store(self.generation, order);
    }

    /// The oldest generation whose code the thread may be running.
    pub fn seen(&self) -> u64 {
        self.seen.load(SeqCst)
    }

    /// Says which epoch the stream has announced. The maximum: none that matters.
    pub fn announce(&self, epoch: u64) {
        self.announced.store(epoch, Release);
    }

    /// The oldest epoch whose code the thread may be running.
    pub fn announced(&self) -> u64 {
        self.announced.load(Acquire)
    }
}
