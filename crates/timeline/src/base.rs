//! What has nothing to do with recordings.

pub mod lru;
pub mod similar;
pub mod sync;

/// Instructions between two looks whether what is being done was cancelled.
pub const STRIDE: u64 = 1 << 22;
