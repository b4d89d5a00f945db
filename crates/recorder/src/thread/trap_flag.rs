//! What a thread knows of the program's trap flag.

use crate::sys::context::TF;

/// What a thread knows of the program's trap flag.
#[derive(Default)]
pub struct Stepping {
    /// The flag is set.
    pub set: bool,
    /// It was set when the instruction at hand began. So the signal comes when that is done.
    pub due: bool,
    /// Number of instructions completed then.
    pub from: u64,
    /// One iteration of a repeated instruction is done.
    pub iterated: bool,
    /// Bytes of flags that the instruction pushes. 0 if it pushes none.
    pub pushes: u64,
}

impl Stepping {
    /// The state in the child of a thread.
    pub fn of_child(&self) -> Stepping {
        Stepping {
            set: self.set,
            ..Stepping::default()
        }
    }

    /// The flag's bit as it stands among the other flags.
    pub fn flag(&self) -> u64 {
        if self.set { TF } else { 0 }
    }

    /// Whether the thread has to come to the runtime after the instruction at hand.
    pub fn is_on(&self) -> bool {
        self.set || self.due
    }

    /// Clears it for a handler. Returns the flag's bit for the flags in the signal's frame.
    pub fn enter_handler(&mut self) -> u64 {
        // An instruction that was to clear the flag, and has failed, has not done so.
        let set = self.set || self.due;
        *self = Stepping::default();
        if set { TF } else { 0 }
    }
}
