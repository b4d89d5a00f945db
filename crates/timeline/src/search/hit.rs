//! What a search looks at, and what it finds.

use crate::ThreadId;
use crate::model::stops::Reason;

/// Something to stop at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hit {
    pub thread: ThreadId,
    /// Where the cursor is to be.
    pub count: u64,
    pub reason: Reason,
    /// The address of the instruction that does what stops, if that was looked at.
    pub pc: Option<u64>,
}

/// A stretch of one thread to be searched.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub thread: ThreadId,
    /// Instructions `lo..hi` are looked at.
    pub lo: u64,
    pub hi: u64,
    /// What is met before an instruction (breakpoints, events) counts from here on, up to `hi`, which
    /// counts only backwards when it is less.
    pub first: u64,
}
