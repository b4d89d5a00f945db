//! Restartable sequences: which area a thread has registered, and where it goes on if it was
//! stopped inside of a sequence.

use crate::process::read_u64;
use std::fs::File;

/// Where in the area the address of the present sequence is.
const SEQUENCE: u64 = 8;

/// A registered area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rseq {
    pub addr: u64,
    pub len: u32,
    pub sig: u32,
}

impl Rseq {
    /// Where a thread that was stopped at `rip` goes on: at the abort handler if that is inside of
    /// a sequence.
    pub fn resume(&self, mem: &File, rip: u64) -> u64 {
        let aborted = || {
            let at = read_u64(mem, self.addr + SEQUENCE)?;
            if at == 0 {
                return None;
            }
            // Version and flags, start, length, abort handler.
            let start = read_u64(mem, at + 8)?;
            let len = read_u64(mem, at + 16)?;
            let abort = read_u64(mem, at + 24)?;
            (rip.wrapping_sub(start) < len).then_some(abort)
        };
        aborted().unwrap_or(rip)
    }
}
