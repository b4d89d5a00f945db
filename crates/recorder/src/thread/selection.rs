//! Which of its code a thread is to record.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// What asks for parts of the program. Bits of [`FLAGS`].
pub mod flag {
    /// There are rules that name the only modules that are recorded.
    pub const ONLY: u32 = 1;
    /// There are rules that name modules that are not recorded.
    pub const SKIP: u32 = 2;
    /// There are functions at which recording begins.
    pub const FROM: u32 = 4;
    /// There are functions at which recording ends.
    pub const TO: u32 = 8;
    /// Recording begins stopped, until the program asks for it.
    pub const STOPPED: u32 = 16;
    /// A thread is stopped, or was.
    pub const USED: u32 = 32;
    /// Rules that name modules or their functions.
    pub const MODULES: u32 = ONLY | SKIP | FROM | TO;
}

/// The bits in [`flag`] that apply.
static FLAGS: AtomicU32 = AtomicU32::new(0);

/// What asks for parts of the program: bits of [`flag`].
pub fn flags() -> u32 {
    FLAGS.load(Relaxed)
}

/// More asks for parts of the program. Nothing ever asks no more.
pub fn ask(more: u32) {
    FLAGS.fetch_or(more, Relaxed);
}

/// What one thread is to record.
#[derive(Clone)]
pub struct SelectionState {
    /// The program has asked for not being recorded.
    pub stopped: bool,
    /// It is between the functions that were asked for.
    pub on: bool,
    /// The end of the call in which it is recorded, if that ends it.
    pub until: Option<Return>,
}

/// Where a call returns to.
#[derive(Clone)]
pub struct Return {
    /// The address.
    pub pc: u64,
    /// The stack pointer after the return.
    pub sp: u64,
    /// The stack on which that is.
    pub stack: Range<u64>,
}

impl Return {
    /// Whether the call is over for a thread that comes to `pc` with this stack pointer: it has returned, or what it called has
    /// left it in another way.
    pub fn is_over(&self, pc: u64, sp: u64) -> bool {
        sp >= self.sp && (pc == self.pc || self.stack.contains(&sp))
    }
}

impl SelectionState {
    /// The state of a program's first thread.
    pub fn new() -> SelectionState {
        let flags = flags();
        SelectionState {
            stopped: flags & flag::STOPPED != 0,
            on: flags & flag::FROM == 0,
            until: None,
        }
    }

    /// The state of a thread made by this one. It has entered no function yet.
    pub fn of_child(&self) -> SelectionState {
        SelectionState {
            stopped: self.stopped,
            ..SelectionState::new()
        }
    }
}
