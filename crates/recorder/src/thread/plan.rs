//! What a thread is about to execute.

use alloc::ffi::CString;
use alloc::vec::Vec;
use hindsight_events::config::Config;

/// What is handed to the kernel. It belongs to the thread, so that a child which leaves its
/// parent's memory by `execve` leaves nothing behind.
pub struct Plan {
    pub path: CString,
    /// Arguments that replace the program's, if it is a script.
    pub front: Vec<CString>,
    pub argv: Vec<u64>,
    pub config: Config,
}
