//! What a thread is about to execute.

use alloc::ffi::CString;
use alloc::vec::Vec;
use hindsight_events::config::Config;

/// What is handed to the kernel. It belongs to the thread: so a child that leaves its parent's
/// memory by `execve` leaves nothing behind there.
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
