//! What a search looks at, and what it finds.

use crate::ThreadId;
use crate::model::stops::Reason;

/// A stop that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hit {
    pub thread: ThreadId,
    /// The instant where the cursor is to stand.
    pub count: u64,
    pub reason: Reason,
    /// The address of the instruction that stops the run, if it was looked at.
    pub pc: Option<u64>,
}

/// A stretch of one thread that is to be searched.
#[derive(Clone, Copy, Debug)]
pub struct SearchRange {
    pub thread: ThreadId,
    /// The effects of instructions `lo..hi` count.
    pub lo: u64,
    pub hi: u64,
    /// Stops before an instruction (breakpoints, events) count from here on, up to `hi`. Forwards `hi` itself counts;
    /// backwards it does not.
    pub first: u64,
}
