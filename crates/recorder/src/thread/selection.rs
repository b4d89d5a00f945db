//! Which of its code a thread is to record.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// There are rules of the kind, or the program has asked for something.
pub mod flag {
    pub const ONLY: u32 = 1;
    pub const SKIP: u32 = 2;
    pub const FROM: u32 = 4;
    pub const TO: u32 = 8;
    pub const STOPPED: u32 = 16;
    /// A thread is or was stopped.
    pub const USED: u32 = 32;
    /// What has to do with modules.
    pub const MODULES: u32 = ONLY | SKIP | FROM | TO;
}

pub static FLAGS: AtomicU32 = AtomicU32::new(0);

/// What one thread has of it.
#[derive(Clone)]
pub struct SelectionState {
    /// By the program's own wish.
    pub stopped: bool,
    /// Between the functions that were asked for.
    pub on: bool,
    /// The end of the call in which it is recorded, where that ends it.
    pub until: Option<Return>,
}

/// Where a call returns to.
#[derive(Clone)]
pub struct Return {
    pub pc: u64,
    /// The stack pointer then.
    pub sp: u64,
    /// The stack.
    pub stack: Range<u64>,
}

impl SelectionState {
    /// That of a program's first thread.
    pub fn new() -> SelectionState {
        let flags = FLAGS.load(Relaxed);
        SelectionState {
            stopped: flags & flag::STOPPED != 0,
            on: flags & flag::FROM == 0,
            until: None,
        }
    }

    /// That of a thread made by this one: it has entered no function yet.
    pub fn of_child(&self) -> SelectionState {
        SelectionState {
            stopped: self.stopped,
            ..SelectionState::new()
        }
    }
}
