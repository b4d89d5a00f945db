//! Processes: how programs are loaded, executed, copied and left, and what `/proc` shows of them.

pub mod birth;
pub mod detach;
pub mod exec;
pub mod fork;
pub mod host;
pub mod loader;
pub mod procfiles;
pub mod stack;
