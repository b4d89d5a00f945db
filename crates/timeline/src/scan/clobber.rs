//! What may have changed memory without the recording saying to what, and when an access was.

use crate::{Segment, ThreadId};

/// A stretch of memory that something other than instructions may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clobber {
    pub thread: ThreadId,
    /// Instructions that the thread had completed when it began.
    pub from: u64,
    /// It can go on for ever.
    pub endless: bool,
    /// The last number of the order before it began, and the first behind its end.
    pub opens: u64,
    pub closes: Option<u64>,
    pub address: u64,
    pub len: u64,
}

/// When an access happened: between two counts of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    pub thread: ThreadId,
    /// Not before this many instructions were completed.
    pub from: u64,
    /// Before this many were.
    pub to: u64,
}

impl When {
    /// Whether the instruction is known.
    pub fn is_exact(&self) -> bool {
        self.to <= self.from + 1
    }
}

/// An instant for the threads of an image.
#[derive(Clone, Debug)]
pub struct Instant {
    /// The thread whose instant it is, and its instructions completed; of another image: none of it.
    pub home: (ThreadId, u64),
    pub segment: Segment,
    /// Threads that the home thread makes only later.
    pub unborn: Vec<ThreadId>,
}

impl Instant {
    /// Whether what a thread began behind number `opens` may have begun.
    pub fn may_follow(&self, thread: ThreadId, opens: u64) -> bool {
        self.segment.closes.is_none_or(|c| opens < c) && !self.unborn.contains(&thread)
    }
}
