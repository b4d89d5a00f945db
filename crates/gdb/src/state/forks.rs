//! Processes that a process makes.

use hindsight_timeline::ThreadId;

/// System calls that make processes: clone, fork, vfork, clone3.
pub const FORKS: [u64; 4] = [CLONE, FORK, VFORK, CLONE3];
pub const CLONE: u64 = 56;
pub const FORK: u64 = 57;
pub const VFORK: u64 = 58;
pub const CLONE3: u64 = 435;
pub const CLONE_VFORK: u64 = 0x4000;
pub const CLONE_THREAD: u64 = 0x1_0000;

/// A process that a thread makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fork {
    pub thread: ThreadId,
    /// Instructions that the thread has completed when gdb is told. That is behind the call, or before it if the thread
    /// waits for the new process (`vfork`).
    pub count: u64,
    /// What the client calls the new process, and the one that makes it.
    pub pid: u64,
    pub by: u64,
    pub vfork: bool,
    /// The new process's first thread, if it was recorded.
    pub child: Option<ThreadId>,
}
