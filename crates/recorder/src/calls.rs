//! The program's system calls: which go to the kernel as they are, and what becomes of the others.

pub mod channel;
pub mod features;
pub mod filters;
pub mod mappings;
pub mod paths;
pub mod perform;
pub mod vsyscall;
