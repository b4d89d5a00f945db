//! What a thread is about to execute.

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;
use hindsight_events::config::Config;

/// What `execve` is given. It is set before the call and cleared when the call has failed. It
/// belongs to the thread: so a child that leaves its parent's memory by `execve` leaves nothing
/// behind there.
#[derive(Default)]
pub struct Exec {
    /// The program, if it will be recorded.
    pub plan: Option<Box<Plan>>,
    /// Path of the program, if it will not be recorded.
    pub leaving: Option<CString>,
}

/// What is handed to the kernel for a program that will be recorded.
pub struct Plan {
    /// Path of the file that is executed.
    pub path: CString,
    /// Arguments in place of the program's first one, if it is a script.
    pub front: Vec<CString>,
    /// Addresses of the arguments.
    pub argv: Vec<u64>,
    /// How the recorder in the new image is configured.
    pub config: Config,
}
