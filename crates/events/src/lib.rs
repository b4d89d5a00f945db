//! Events of a recording, and the rings in shared memory that carry them from the recorded process to the
//! collector. Needs no `std`.
#![no_std]

extern crate alloc;

pub mod arena;
pub mod asked;
pub mod attach;
pub mod config;
pub mod consumer;
pub mod copied;
mod decode;
mod encode;
pub mod event;
pub mod fresh;
pub mod log;
#[cfg(all(test, loom))]
mod models;
pub mod pen;
pub mod producer;
pub mod ring;
pub mod script;
pub mod select;
pub mod shared;
pub mod shared_cache;
pub mod unborn;
pub mod varint;

pub use decode::Decoder;
pub use encode::Encoder;
pub use event::{EndKind, Event, GapReason, MAX_EVENT};
pub use pen::Pen;
