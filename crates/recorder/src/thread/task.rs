//! What a thread is to the kernel, to the collector, and to other threads.

use crate::thread::Thread;
use core::sync::atomic::{AtomicI32, Ordering::*};
use hindsight_events::unborn::Unborn;

/// What a thread does all its life: it runs the program.
pub type Run = fn(&mut Thread) -> !;

/// What a thread is to others. Its parent fills it in before the thread begins. Other threads may
/// read it while the thread is in the list of threads.
pub struct Task {
    /// The kernel's number of the thread. 0 until the thread has begun, which sets it.
    pub tid: i32,
    /// The main loop.
    pub run: Run,
    /// Number of its ring. -1 before it has one, and after the thread itself has ended the stream.
    ring: AtomicI32,
    /// Nothing of it is recorded, ever.
    pub is_silent: bool,
    /// It is a process of its own in its parent's memory, as after `vfork`, until it executes a
    /// program or ends.
    pub borrows: bool,
    /// It is such a process and has no ring yet. The parent sets this, and the thread takes it when
    /// it begins.
    pub unborn: Option<Unborn>,
    /// Before it runs anything, it sets its signal handlers to the default.
    pub clear_handlers: bool,
}

impl Task {
    /// For a thread that has not begun.
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

    /// Number of the ring that the thread writes to. `None` after the thread itself has ended its
    /// stream.
    pub fn ring(&self) -> Option<usize> {
        usize::try_from(self.ring.load(Acquire)).ok()
    }

    /// Notes that the thread writes to this ring from now on.
    pub fn set_ring(&self, ring: Option<usize>) {
        self.ring.store(ring.map_or(-1, |r| r as i32), Release);
    }

    /// Notes that the thread itself ends its stream. It runs on for a moment, and nobody may take
    /// it for one that has left.
    pub fn end_stream(&self) {
        self.set_ring(None);
    }
}
