//! Other processes, inspected and changed through `ptrace` and `/proc`.
//!
//! [`Process`] holds all threads of a process. Each thread can be stopped in such a way that its registers
//! are the program's. A system call that was waiting is made again afterwards, as after a signal that nobody
//! noticed. Nothing here knows of recording.
//!
//! `ptrace` belongs to a thread: all calls for one process must come from the thread that began.

mod process;
mod restart;
mod rseq;
mod status;
mod stopped;
mod thread;
mod tracee;
mod vectors;

pub use process::{Call, Mapping, Process};
pub use restart::Restart;
pub use rseq::Rseq;
pub use status::Status;
pub use stopped::{Still, end, halt, start_still};
pub use thread::{Regs, Stop, Thread};
pub use tracee::{
    Ended, Halt, Launch, SignalSent, filter, halt_of, launch, next_halt, next_halt_within,
};
