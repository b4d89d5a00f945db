//! What a thread is about to execute.

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;
use hindsight_events::config::Config;

/// What `execve` is given, from before the call until it has failed. It belongs to the thread, so that a child
/// which leaves its parent's memory by `execve` leaves nothing behind.
#[derive(Default)]
pub struct Exec {
    /// What is executed, if it is recorded.
    pub plan: Option<Box<Plan>>,
    /// Path of a program that is executed and not recorded.
    pub leaving: Option<CString>,
}

/// What is handed to the kernel for a program that is recorded.
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
