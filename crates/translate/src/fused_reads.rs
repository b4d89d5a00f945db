//! Which reads of a block are fused.

use crate::addresses::Address;
use alloc::vec::Vec;

/// An instruction that compares more than it reads.
pub(crate) struct Lead {
    /// Its number in the block.
    pub at: usize,
    /// Where the comparison begins, in bytes from what the instruction reads.
    pub offset: i64,
    /// Bytes that are compared.
    pub size: usize,
}

/// An instruction that reads what its lead has compared.
#[derive(Clone, Copy)]
pub(crate) struct Second {
    /// Its number in the block.
    pub at: usize,
    /// It reads the upper half of what was compared.
    pub upper: bool,
}

/// Which reads of a block are fused.
#[derive(Default)]
pub(crate) struct FusedReads {
    pub leads: Vec<Lead>,
    pub seconds: Vec<Second>,
}

impl FusedReads {
    /// Fuses two reads (number, address, size), if they are adjacent.
    pub(crate) fn fuse(
        &mut self,
        (at, lead, size): (usize, Address, usize),
        (k, second, other): (usize, Address, usize),
    ) -> bool {
        let behind = second.behind(&lead).unwrap_or_default();
        if other != size || behind.unsigned_abs() != size as u64 {
            return false;
        }
        self.leads.push(Lead {
            at,
            offset: behind.min(0),
            size: 2 * size,
        });
        self.seconds.push(Second {
            at: k,
            upper: behind > 0,
        });
        true
    }
}

impl FusedReads {
    /// Whether instruction `k` compares more than it reads.
    pub fn leads(&self, k: usize) -> bool {
        self.leads.iter().any(|l| l.at == k)
    }

    /// Which half instruction `k` reads, if its lead has compared that.
    pub fn second(&self, k: usize) -> Option<Second> {
        self.seconds.iter().find(|s| s.at == k).copied()
    }
}
