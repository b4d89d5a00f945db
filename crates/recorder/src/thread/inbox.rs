//! What a thread's signal handlers and its runtime tell each other. A handler can interrupt the
//! runtime anywhere. So everything here is atomic, or owned by one side at a time.

use crate::stream::ring;
use crate::sys::context::{Context, Info};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, compiler_fence};

/// Why a signal handler makes translated code leave.
#[derive(Clone, Copy)]
pub enum Left {
    /// It is before the guest instruction at `pc`. `pos` instructions are completed.
    Boundary { pc: u64, pos: u64 },
    /// The instruction at hand has raised a fault.
    Fault,
}

/// One per thread. It outlives the thread (see [`crate::thread::ThreadSlot`]).
pub struct Inbox {
    /// A signal waits for delivery. While this is set all signals are blocked, so there is never a
    /// second one.
    pub full: AtomicBool,
    /// The runtime wants translated code to leave before the next guest instruction.
    pub leave_requested: AtomicBool,
    /// Translated code runs one host instruction at a time, by the trap flag.
    pub stepping: AtomicBool,
    /// Address of the instruction that is being stepped over.
    pub step_pc: AtomicU64,
    /// The instruction at this position has to be executed before translated code leaves. The
    /// maximum if there is none.
    pub beyond: AtomicU64,
    /// The thread stays where it is until the process is dead (see [`crate::signals::cores`]).
    pub resting: AtomicBool,
    /// Where translated code was about to be entered, before the trap's address took that place.
    pub resume: AtomicU64,
    info: UnsafeCell<Info>,
    left: UnsafeCell<(Left, Context, Info)>,
}

// SAFETY: other threads use only the atomics. The two cells are used by the owning thread and its
// handlers. Each method says which of the two owns the cell then.
unsafe impl Sync for Inbox {}

impl Inbox {
    /// Nothing waits.
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

    /// Makes the inbox empty, for a new thread.
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

    /// For the handler: queues a signal. None may be waiting.
    pub fn put(&self, info: &Info) {
        invariant!(
            !self.full.load(Relaxed),
            "a signal is not put where another one waits",
            "signal {}",
            info.signo
        );
        // SAFETY: `full` is clear, so the runtime does not read `info`. Signals are blocked in the
        // handler, so no other one writes it.
        unsafe { *self.info.get() = *info };
        compiler_fence(SeqCst);
        self.full.store(true, Relaxed);
        ring::note_signal(info.signo, true);
    }

    /// For the runtime: the signal that waits. It stays until [`Inbox::clear`].
    pub fn get(&self) -> Option<Info> {
        let full = self.full.load(Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: `full` is set. So all signals are blocked, and no handler writes `info`.
        full.then(|| unsafe { *self.info.get() })
    }

    /// For the runtime: makes room for the next signal.
    pub fn clear(&self) {
        if let Some(info) = self.get() {
            ring::note_signal(info.signo, false);
        }
        compiler_fence(SeqCst);
        self.full.store(false, Relaxed);
    }

    /// For the handler: says why and where translated code leaves.
    pub fn set_left(&self, why: Left, at: &Context, info: &Info) {
        // SAFETY: the handler has interrupted translated code, so the runtime does not read `left`.
        unsafe { *self.left.get() = (why, *at, *info) };
    }

    /// For the runtime, after a handler made translated code leave: why and where.
    pub fn left(&self) -> (Left, Context, Info) {
        // SAFETY: translated code does not run, so no handler writes `left`.
        unsafe { *self.left.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(signo: i32) -> Info {
        Info {
            signo,
            ..Info::default()
        }
    }

    #[test]
    fn a_signal_stays_until_it_is_cleared() {
        let inbox = Inbox::new();
        assert!(inbox.get().is_none());
        for signo in [10, 12] {
            inbox.put(&signal(signo));
            assert_eq!(inbox.get().map(|i| i.signo), Some(signo));
            inbox.clear();
            assert!(inbox.get().is_none());
        }
    }

    #[test]
    #[should_panic = "a signal is not put where another one waits (signal 12)"]
    fn a_second_signal_is_not_put_over_the_first() {
        let inbox = Inbox::new();
        inbox.put(&signal(10));
        inbox.put(&signal(12));
    }
}
