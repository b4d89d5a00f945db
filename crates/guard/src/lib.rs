//! Keeps what a recording holds from other users, and a stranger's recording from this machine.
//!
//! - [`private`]: files and folders that only their owner may look into.
//! - [`regular`]: opening nothing but regular files, without waiting.
//! - [`within`]: reading files whose names a recording says, below a folder.
//! - [`keeper`]: a process that plays recordings is split off, and has given up what that does not need ([`sandbox`])
//!   before it looks at one. It asks ([`outside`]) for files that belong to the recording.

pub mod keeper;
pub mod outside;
pub mod private;
pub mod regular;
pub mod sandbox;
mod wire;
pub mod within;

pub use wire::{keep_alive, wait};

use std::sync::OnceLock;

/// Processors that this process may use. They are counted once, since that takes files of the kernel.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
