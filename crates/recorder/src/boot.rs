//! Where recording begins.

pub mod attach;
pub mod crash;
pub mod start;
