//! Standing for a program: its parent, its process group, its signals.

pub mod foreground;
mod group_probe;
pub mod parent;
pub mod proxy;
mod untaken;
