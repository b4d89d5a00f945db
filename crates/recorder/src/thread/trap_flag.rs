//! What a thread knows of the program's trap flag.

use crate::sys::context::TF;

/// What a thread knows of the program's trap flag.
#[derive(Default)]
pub struct Stepping {
    /// It is set.
    pub set: bool,
    /// It was set when the instruction at hand began: the signal comes when that is done.
    pub due: bool,
    /// Instructions that had been completed then.
    pub from: u64,
    /// One iteration of a repeated instruction is done.
    pub iterated: bool,
    /// Bytes of flags that the instruction puts on the stack.
    pub pushes: u64,
}

impl Stepping {
    /// As it is in the child of a thread.
    pub fn of_child(&self) -> Stepping {
        Stepping {
            set: self.set,
            ..Stepping::default()
        }
    }

    /// The flag as it is among others.
    pub fn flag(&self) -> u64 {
        if self.set { TF } else { 0 }
    }

    /// Whether the runtime is to see the thread after the instruction at hand.
    pub fn is_on(&self) -> bool {
        self.set || self.due
    }

    /// The flag in the flags that a signal's frame holds; a handler begins without it.
    pub fn enter_handler(&mut self) -> u64 {
        // An instruction that takes it back, and has failed, has not done so.
        let set = self.set || self.due;
        *self = Stepping::default();
        if set { TF } else { 0 }
    }
}
