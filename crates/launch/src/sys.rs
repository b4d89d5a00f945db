//! The system calls that the standard library has no form for.

pub mod files;
pub mod limits;
pub mod process;
pub mod signals;
pub mod spawn;
