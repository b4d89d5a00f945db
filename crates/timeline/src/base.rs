//! Tools that know nothing of recordings.

pub mod lru;
pub mod similar;
pub mod sync;

/// The number of instructions between two looks at the flag that cancels.
pub const STRIDE: u64 = 1 << 22;
