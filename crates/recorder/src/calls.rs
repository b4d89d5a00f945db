//! The program's system calls. Most go to the kernel as they are; this folder treats the others.

pub mod channel;
pub mod features;
pub mod filters;
pub mod mappings;
pub mod paths;
pub mod perform;
pub mod user_dispatch;
pub mod vsyscall;
