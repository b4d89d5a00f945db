//! Verifies whole traces: replays all threads, and compares everything that a trace says twice.
//!
//! - [`verify`] replays each thread, in parallel between key frames. [`Report::difference`] says where replay
//!   and recording first differ, and which system calls are suspects.
//! - [`check_order`] proves the recorded order of all threads from the values that atomic operations read:
//!   they took effect in this order.

mod cost;
mod order_proof;
mod part;
mod suspects;
pub mod symbols;
mod whole;

pub use order_proof::{OrderError, OrderReport, Violation, check_order};
pub use suspects::Suspect;
pub use whole::{Checks, Located, Options, Processors, Report, verify};
