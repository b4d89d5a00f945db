//! What one thread knows of its signals.

use crate::sys;
use crate::sys::guard::Trap;
use crate::thread::pending::{Pending, Shared};
use crate::thread::signal_actions::{Actions, Table};
use crate::thread::trap_flag::Stepping;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general::*;

/// Bit of a signal in a mask. `signo` is from 1 to 64.
pub const fn bit(signo: u32) -> u64 {
    1 << (signo - 1)
}

/// `SS_DISABLE`
const DISABLE: u32 = 2;

/// Mask of the signals that nobody can block.
pub const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// Stands for a thread's own mask. It is no real mask, since two signals cannot be blocked.
pub const OWN: u64 = !0;

/// An alternate stack as `sigaltstack` has it.
#[derive(Clone, Copy)]
pub struct AltStack {
    /// Lowest address.
    pub base: u64,
    /// Flags of `sigaltstack`, without `SS_ONSTACK`.
    pub flags: u32,
    /// Bytes.
    pub size: u64,
}

impl AltStack {
    /// There is none.
    pub const NONE: AltStack = AltStack {
        base: 0,
        flags: DISABLE,
        size: 0,
    };

    /// The stack that the kernel describes with these values.
    pub fn of(base: u64, flags: u64, size: u64) -> AltStack {
        let flags = flags as u32;
        if flags & DISABLE != 0 {
            return AltStack::NONE;
        }
        AltStack {
            base,
            flags: flags & SS_AUTODISARM,
            size,
        }
    }

    /// Whether `sp` lies on it.
    pub fn contains(&self, sp: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && sp > self.base && sp - self.base <= self.size
    }
}

/// What one thread knows of its signals.
pub struct State {
    /// Signals that the program has blocked.
    pub mask: u64,
    /// The program's alternate stack.
    pub alt: AltStack,
    /// The thread's own mask, if a call with a mask of its own (`sigsuspend`) was ended by a
    /// signal.
    pub suspended: Option<u64>,
    /// Mask of the call that the thread is in, for other threads. [`OWN`]: the call has none,
    /// `mask` counts.
    pub meanwhile: AtomicU64,
    /// Mask of the signals that it waits for in a call that takes them, for other threads.
    pub awaited: AtomicU64,
    /// Signals in [`SYNCHRONOUS`] that were sent while the program had them blocked.
    pub held: Shared,
    /// The same, for signals that were sent to the whole process. Any of its threads may take them.
    pub shared: Shared,
    /// The thread's last exception. The kernel shows it in the frames of all signals.
    pub trap: Trap,
    /// The program's trap flag.
    pub stepping: Stepping,
    /// What its signals do.
    pub actions: Actions,
}

impl State {
    /// The state of a thread with the mask that the kernel has now.
    pub fn new() -> State {
        State::with_mask(sys::signal_mask())
    }

    /// Whether the thread takes a signal that is sent now.
    pub fn takes(&self, signo: u32) -> bool {
        let blocked = match self.meanwhile.load(Relaxed) {
            OWN => self.mask,
            mask => mask,
        };
        (blocked | self.awaited.load(Relaxed)) & bit(signo) == 0
    }

    /// Whether the thread waits for the signal in a call that takes it.
    pub fn awaits(&self, signo: u32) -> bool {
        self.awaited.load(Relaxed) & bit(signo) != 0
    }

    /// Mask of the signals that were sent, are blocked, and are held by the recorder instead of the
    /// kernel.
    pub fn held(&self) -> u64 {
        self.held.set() | self.shared.set()
    }

    /// Mask of the signals that the call at hand may take.
    pub fn looked_for(&self) -> u64 {
        let unblocked = match self.meanwhile.load(Relaxed) {
            OWN => 0,
            mask => !mask,
        };
        unblocked | self.awaited.load(Relaxed)
    }

    /// The state of a new thread with this mask.
    pub fn with_mask(mask: u64) -> State {
        State {
            mask,
            alt: AltStack::NONE,
            suspended: None,
            meanwhile: AtomicU64::new(OWN),
            awaited: AtomicU64::new(0),
            held: Pending::new(),
            shared: Pending::new(),
            trap: Trap::default(),
            stepping: Stepping::default(),
            actions: Table::new(),
        }
    }
}

/// Mask of the signals that faults raise. The kernel kills a thread that faults while these are
/// blocked.
pub const SYNCHRONOUS: u64 = 1 << (SIGSEGV - 1)
    | 1 << (SIGBUS - 1)
    | 1 << (SIGFPE - 1)
    | 1 << (SIGILL - 1)
    | 1 << (SIGTRAP - 1);
