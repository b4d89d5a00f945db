//! What a thread knows of memory that it gets and has not written yet (`--fill-fresh`).

use crate::sys::config;
use crate::thread::selection::Return;
use core::ops::Range;
use hindsight_events::fresh;

/// What it knows. Only the thread itself uses it, and its maker before it begins.
#[derive(Default)]
pub struct FreshState {
    /// The number of the next piece of memory that is filled (see [`fresh::key`]).
    next: u32,
    /// The call by which it is about to get memory, if it is in one.
    pub call: Option<Call>,
    /// It has come where it stands by an instruction that takes the address from memory or a register, as a return does.
    pub by_address: bool,
    /// The memory below its first stack pointer, if it is known to be its own.
    pub stack: Range<u64>,
}

/// A call of a function by which programs get memory.
pub struct Call {
    /// The function's first instruction.
    pub entry: u64,
    /// Where it returns to.
    pub returns: Return,
    /// What it will have got.
    pub gets: Gets,
}

/// A block of memory, before the call that gets it has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gets {
    /// Nothing of which it is known that it is fresh.
    Nothing,
    /// The block that is the result. It has `size` bytes, of which the first `kept` are not fresh.
    Result {
        /// Bytes that hold something.
        kept: u64,
        /// Bytes of the block.
        size: u64,
    },
    /// The block of `size` bytes whose address is stored at `at`, if the result is 0.
    Stored {
        /// Where its address is.
        at: u64,
        /// Bytes of the block.
        size: u64,
    },
}

impl FreshState {
    /// The state of a thread that this one makes, with the memory below its stack pointer.
    pub fn of_child(&mut self, stack: Range<u64>) -> FreshState {
        let next = fresh::first_of_child(self.number());
        FreshState {
            next,
            stack,
            ..FreshState::default()
        }
    }

    /// The key of the next piece of memory.
    pub fn key(&mut self) -> u64 {
        fresh::key(config::get().fill_fresh, self.number())
    }

    fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }
}
