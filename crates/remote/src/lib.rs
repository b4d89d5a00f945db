//! Other processes, seen and changed through `ptrace` and `/proc`.
//!
//! [`Process`] holds all threads of a process, each of which can be brought to a stop in which its
//! registers are those of the program: a system call that was waiting will be made anew, as after
//! a signal that nobody noticed. Nothing here knows of recording.
//!
//! `ptrace` belongs to a thread: all calls for one process must come from the thread that began.

mod process;
mod restart;
mod rseq;
mod status;
mod thread;

pub use process::{Call, Mapping, Process};
pub use restart::Restart;
pub use rseq::Rseq;
pub use status::Status;
pub use thread::{Regs, Stop, Thread};
