//! The half of the recorder that lives in the recorded process.
//!
//! It uses no C library, no thread-local storage and no threads of its own. The crate `image` makes
//! a program of it. The command line has the kernel execute that program, with exactly the recorded
//! program's arguments and environment. It loads the recorded program into the same address space
//! and onto the same stack. Then it runs translated copies of the program's code until it exits.
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_op_in_unsafe_fn)]
extern crate alloc;

// First: the others use its macros.
#[macro_use]
mod sys;

mod boot;
mod calls;
mod code;
mod memory;
mod process;
mod run;
mod signals;
mod stream;
mod thread;

pub use crate::boot::attach::keep_entries;
pub use crate::boot::crash::panicked;
pub use crate::boot::start::abort;
pub use crate::boot::start::begin;

// For the crate `image`, and for the differential tests.
pub use crate::run::{precheck, shadow};
pub use crate::sys::{guard, heap};
