//! What has nothing to do with recordings.

pub mod lru;
pub mod similar;
pub mod sync;
