//! Answers to "what was in memory?".

use crate::{Position, ThreadId};

/// Why a byte's value is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// An instruction of the program wrote it.
    Written,
    /// An instruction of the program read it.
    Read,
    /// It was read later, and nothing in between can have changed it.
    Exposed,
    /// It is the content of a mapped file, which nothing has changed since.
    Module,
    /// It is zero, as the kernel gave it, and nothing has changed it since.
    Fresh,
    /// It was executed.
    Code,
    /// A snapshot of memory holds it.
    Snapshot,
}

/// A known byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    pub value: u8,
    pub ground: Ground,
}

/// Another value that memory may have had, since the order of threads is not determined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub address: u64,
    pub bytes: Vec<u8>,
    /// Who accessed it so.
    pub thread: ThreadId,
    /// Before the instruction that did.
    pub position: Position,
}

/// What is known of a stretch of memory at a position.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    pub address: u64,
    /// For each byte its value, or `None`.
    pub bytes: Vec<Option<Known>>,
    /// Values that segments which ran at the same time gave to some of it; empty where the order is
    /// determined. Not empty: likely a race.
    pub candidates: Vec<Candidate>,
}

impl Memory {
    /// The bytes, if all are known.
    pub fn whole(&self) -> Option<Vec<u8>> {
        self.bytes.iter().map(|b| b.map(|k| k.value)).collect()
    }

    /// The known bytes at the start.
    pub fn prefix(&self) -> Vec<u8> {
        self.bytes
            .iter()
            .map_while(|b| b.map(|k| k.value))
            .collect()
    }
}

/// An access to memory that a search found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub thread: ThreadId,
    /// Before the instruction that did it.
    pub position: Position,
    /// Instructions that the thread had completed there.
    pub count: u64,
    /// Address of the instruction.
    pub pc: u64,
    /// What it accessed.
    pub address: u64,
    /// Bytes that it accessed.
    pub len: u64,
    pub read: bool,
    pub write: bool,
    /// The kernel did it, in the system call that is there or with the signal that is delivered there.
    pub kernel: bool,
}
