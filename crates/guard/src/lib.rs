//! Protects the content of recordings from other users, and this machine from strangers' recordings.
//!
//! - [`private`]: files and folders that only their owner can read.
//! - [`regular`]: opens only regular files, without waiting.
//! - [`within`]: reads and makes files below a folder whose names come from a recording.
//! - [`broker`]: splits off a process that plays recordings. Before that process reads a recording, it gives
//!   up what it does not need ([`sandbox`]). It asks the broker ([`outside`]) for files that belong to the
//!   recording.
//! - [`place`]: reads and writes open files at a place.
//!
//! A host without files, as WebAssembly in a browser, has only what the player needs of this: `nowhere` refuses every file.

#[cfg(unix)]
pub mod broker;
#[cfg(unix)]
pub mod kernel;
mod names;
#[cfg(not(unix))]
mod nowhere;
#[cfg(unix)]
pub mod outside;
pub mod place;
#[cfg(unix)]
pub mod private;
#[cfg(unix)]
pub mod regular;
#[cfg(unix)]
pub mod sandbox;
#[cfg(unix)]
mod wire;
#[cfg(unix)]
pub mod within;

#[cfg(not(unix))]
pub use nowhere::{outside, private, regular};
#[cfg(unix)]
pub use wire::{keep_alive, wait};

use std::sync::OnceLock;

/// Number of processors that this process may use. It is determined once, because that needs files of the
/// kernel.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
