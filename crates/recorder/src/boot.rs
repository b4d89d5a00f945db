//! Where recording begins.

pub mod attach;
pub mod start;
