//! Which access marks of a block are made together.

use crate::addresses::Value;
use alloc::vec::Vec;

/// Writes through one register that are marked together.
pub(crate) struct Lead {
    /// The instruction that marks them.
    pub at: usize,
    /// The register's value.
    pub value: Value,
    /// For each write, its offset from what the register holds at that instruction, and its size.
    pub writes: Vec<(i64, usize)>,
    /// The constants added to the register by then.
    pub sum: i64,
}

/// Which marks are made together, in a run that a budget check covers.
#[derive(Default)]
pub(crate) struct Together {
    /// Instructions whose reads (first) and writes (second) are marked by others: a bit for each.
    pub done: [u64; 2],
    pub leads: Vec<Lead>,
}
