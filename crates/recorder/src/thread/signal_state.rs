//! What one thread knows of its signals.

use crate::sys;
use crate::sys::guard::Trap;
use crate::thread::pending::{Pending, Shared};
use crate::thread::signal_actions::{Actions, Table};
use crate::thread::trap_flag::Stepping;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general::*;

/// Bit of a signal in a mask.
pub const fn bit(signo: u32) -> u64 {
    1 << (signo - 1)
}

const DISABLE: u32 = 2;

pub const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// No mask, since two signals cannot be blocked: a thread has blocked what it says itself.
pub const OWN: u64 = !0;

/// An alternate stack as `sigaltstack` knows it.
#[derive(Clone, Copy)]
pub struct AltStack {
    pub base: u64,
    /// Without SS_ONSTACK.
    pub flags: u32,
    pub size: u64,
}

impl AltStack {
    pub const NONE: AltStack = AltStack {
        base: 0,
        flags: DISABLE,
        size: 0,
    };

    /// The one that the kernel describes so.
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

/// The part of the state that one thread has.
pub struct State {
    /// Signals that the program has blocked.
    pub mask: u64,
    pub alt: AltStack,
    /// Mask of the call that a signal has ended, if that had one of its own (`sigsuspend`).
    pub suspended: Option<u64>,
    /// The mask of the call that the thread is in, for other threads to see; [`OWN`]: as `mask` says.
    pub meanwhile: AtomicU64,
    /// The signals that it waits for in a call that takes them, for other threads to see.
    pub awaited: AtomicU64,
    /// Signals of [`SYNCHRONOUS`] that were sent while the program had them blocked.
    pub held: Shared,
    /// The same, where they were sent to the whole process: for whichever of its threads takes them.
    pub shared: Shared,
    /// The thread's last exception: the kernel shows it in the frames of all signals.
    pub trap: Trap,
    /// The program's trap flag.
    pub stepping: Stepping,
    pub actions: Actions,
}

impl State {
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

    /// Whether the thread waits in a call that takes the signal.
    pub fn awaits(&self, signo: u32) -> bool {
        self.awaited.load(Relaxed) & bit(signo) != 0
    }

    /// Signals that were sent, are blocked, and are not known to the kernel as such.
    pub fn held(&self) -> u64 {
        self.held.set() | self.shared.set()
    }

    /// The signals that the call at hand may take.
    pub fn looked_for(&self) -> u64 {
        let unblocked = match self.meanwhile.load(Relaxed) {
            OWN => 0,
            mask => !mask,
        };
        unblocked | self.awaited.load(Relaxed)
    }

    /// The state of a new thread.
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

/// Signals that faults raise; the kernel kills a thread that has them blocked when it faults.
pub const SYNCHRONOUS: u64 = 1 << (SIGSEGV - 1)
    | 1 << (SIGBUS - 1)
    | 1 << (SIGFPE - 1)
    | 1 << (SIGILL - 1)
    | 1 << (SIGTRAP - 1);
