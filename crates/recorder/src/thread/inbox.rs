//! What a thread's signal handlers and its runtime tell each other. The handler interrupts the
//! runtime anywhere, so everything here is either atomic or owned by one side at a time.

use crate::stream::ring;
use crate::sys::context::{Context, Info};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, compiler_fence};

/// Why translated code was left by a signal handler.
#[derive(Clone, Copy)]
pub enum Left {
    /// Before the guest instruction at `pc`; `pos` instructions are complete.
    Boundary { pc: u64, pos: u64 },
    /// The instruction at hand raised a fault.
    Fault,
}

/// One per thread; outlives it (see [`crate::thread::ThreadSlot`]).
pub struct Inbox {
    /// A signal waits for delivery. While set, all signals are blocked, so there is never a second.
    pub full: AtomicBool,
    /// The runtime wants translated code to be left before the next guest instruction.
    pub leave_requested: AtomicBool,
    /// Translated code runs one instruction at a time.
    pub stepping: AtomicBool,
    /// Address of the instruction being stepped over.
    pub step_pc: AtomicU64,
    /// The instruction at this position is to be executed before translated code is left; otherwise the
    /// greatest number.
    pub beyond: AtomicU64,
    /// The thread stays where it is until the process is dead (see [`crate::signals::cores`]).
    pub resting: AtomicBool,
    /// Where translated code was to be entered before the trap took that place.
    pub resume: AtomicU64,
    info: UnsafeCell<Info>,
    left: UnsafeCell<(Left, Context, Info)>,
}

// SAFETY: an inbox is used by one thread and its handlers; see the methods for who owns what.
unsafe impl Sync for Inbox {}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox {
            full: AtomicBool::new(false),
            leave_requested: AtomicBool::new(false),
            stepping: AtomicBool::new(false),
            step_pc: AtomicU64::new(0),
            beyond: AtomicU64::new(u64::MAX),
            resting: AtomicBool::new(false),
            resume: AtomicU64::new(0),
            info: UnsafeCell::new(Info::default()),
            left: UnsafeCell::new((Left::Fault, Context::default(), Info::default())),
        }
    }

    /// For a new thread: nothing waits.
    pub fn reset(&self) {
        for flag in [
            &self.full,
            &self.leave_requested,
            &self.stepping,
            &self.resting,
        ] {
            flag.store(false, Relaxed);
        }
        self.beyond.store(u64::MAX, Relaxed);
    }

    /// Handler: queues a signal.
    pub fn put(&self, info: &Info) {
        // SAFETY: `full` is clear, so the runtime does not look at `info`.
        unsafe { *self.info.get() = *info };
        compiler_fence(SeqCst);
        self.full.store(true, Relaxed);
        ring::note_signal(info.signo, true);
    }

    /// Runtime: the signal that waits. It stays until [`Inbox::clear`].
    pub fn get(&self) -> Option<Info> {
        let full = self.full.load(Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: while `full` is set no handler writes `info`.
        full.then(|| unsafe { *self.info.get() })
    }

    /// Runtime: room for the next signal.
    pub fn clear(&self) {
        if let Some(info) = self.get() {
            ring::note_signal(info.signo, false);
        }
        compiler_fence(SeqCst);
        self.full.store(false, Relaxed);
    }

    /// Handler: says why and where translated code is being left.
    pub fn set_left(&self, why: Left, at: &Context, info: &Info) {
        // SAFETY: translated code was interrupted, so the runtime does not look at `left`.
        unsafe { *self.left.get() = (why, *at, *info) };
    }

    /// Runtime, after translated code was left by a handler: why and where.
    pub fn left(&self) -> (Left, Context, Info) {
        // SAFETY: translated code does not run, so no handler writes `left`.
        unsafe { *self.left.get() }
    }
}
