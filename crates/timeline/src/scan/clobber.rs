//! Unrecorded changes of memory, and times of accesses.

use crate::{Segment, ThreadId};

/// A stretch of memory that something else than instructions may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clobber {
    pub thread: ThreadId,
    /// The number of instructions that the thread had completed when the change began.
    pub from: u64,
    /// The change may go on for ever.
    pub endless: bool,
    /// The last order number before the change began. `closes` is the first one after its end.
    pub opens: u64,
    pub closes: Option<u64>,
    pub address: u64,
    pub len: u64,
}

/// When an access happened: between two counts of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    pub thread: ThreadId,
    /// At least this many instructions were completed before it.
    pub from: u64,
    /// Fewer than this many were.
    pub to: u64,
}

impl When {
    /// Whether the exact instruction is known.
    pub fn is_exact(&self) -> bool {
        self.to <= self.from + 1
    }
}

/// An instant, for the threads of an image.
#[derive(Clone, Debug)]
pub struct Instant {
    /// The thread whose instant it is, and the instructions that it has completed. For another image it is none of its
    /// threads.
    pub home: (ThreadId, u64),
    pub segment: Segment,
    /// Threads that the home thread creates only later.
    pub unborn: Vec<ThreadId>,
}

impl Instant {
    /// Whether something may have begun that a thread did after order number `opens`.
    pub fn may_follow(&self, thread: ThreadId, opens: u64) -> bool {
        self.segment.closes.is_none_or(|c| opens < c) && !self.unborn.contains(&thread)
    }
}
