//! Restartable sequences: the area that a thread has registered, and where the thread continues if it was
//! stopped inside a sequence.

use crate::process::read_u64;
use std::fs::File;

/// Offset in the area of the current sequence's address.
const SEQUENCE: u64 = 8;

/// A registered area of restartable sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rseq {
    pub addr: u64,
    pub len: u32,
    pub sig: u32,
}

impl Rseq {
    /// Where a thread that was stopped at `rip` continues. Inside a sequence, this is the sequence's abort
    /// handler.
    pub fn resume(&self, mem: &File, rip: u64) -> u64 {
        let aborted = || {
            let at = read_u64(mem, self.addr + SEQUENCE)?;
            if at == 0 {
                return None;
            }
            // Layout: version and flags, start, length, abort handler.
            let start = read_u64(mem, at + 8)?;
            let len = read_u64(mem, at + 16)?;
            let abort = read_u64(mem, at + 24)?;
            (rip.wrapping_sub(start) < len).then_some(abort)
        };
        aborted().unwrap_or(rip)
    }
}
