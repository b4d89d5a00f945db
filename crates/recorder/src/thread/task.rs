//! What a thread is to the kernel, to the collector, and to those who count threads and processes.

use crate::thread::Thread;
use core::sync::atomic::{AtomicI32, Ordering::*};
use hindsight_events::unborn::Unborn;

/// What threads do all their lives: run the program.
pub type Run = fn(&mut Thread) -> !;

/// What a thread is to others. Its parent fills it in before the thread begins; other threads may look at it as
/// long as the thread is in the list of threads.
pub struct Task {
    /// The kernel's number. The thread itself says it when it begins; 0 before that.
    pub tid: i32,
    /// What it does.
    pub run: Run,
    /// Number of its ring, as long as the thread has not itself ended the stream; otherwise -1.
    ring: AtomicI32,
    /// Nothing is recorded of it.
    pub is_silent: bool,
    /// It is a process of its own in its parent's memory, as after `vfork`, until it executes a
    /// program or ends.
    pub borrows: bool,
    /// It is such a process, and has no ring yet. Set by the parent, taken by the thread when it begins.
    pub unborn: Option<Unborn>,
    /// Before it runs anything, it sets its signal handlers to the default.
    pub clear_handlers: bool,
}

impl Task {
    /// A thread that has not begun.
    pub(super) fn new(run: Run) -> Task {
        Task {
            tid: 0,
            run,
            ring: AtomicI32::new(-1),
            is_silent: false,
            borrows: false,
            unborn: None,
            clear_handlers: false,
        }
    }

    /// Number of the ring that the thread writes, if it has not ended its stream itself.
    pub fn ring(&self) -> Option<usize> {
        usize::try_from(self.ring.load(Acquire)).ok()
    }

    /// The thread writes this ring from now on.
    pub fn set_ring(&self, ring: Option<usize>) {
        self.ring.store(ring.map_or(-1, |r| r as i32), Release);
    }

    /// The thread ends its stream itself: it runs on for a moment, and is not to be taken for one that has left.
    pub fn end_stream(&self) {
        self.set_ring(None);
    }
}
