//! The verification of whole traces: replays all threads and compares everything that a trace says twice.
//!
//! - [`verify`] replays each thread, in parallel between key frames, and says where replay and recording first
//!   differ. [`Report::difference`] names the place, and the system calls that are suspects.
//! - [`check_order`] proves from the values that atomic operations read that the recorded order of all threads is
//!   the one in which they took effect.

mod cost;
mod order;
mod part;
mod suspects;
pub mod symbols;
mod whole;

pub use order::{OrderError, OrderReport, Violation, check_order};
pub use suspects::Suspect;
pub use whole::{Checks, Located, Options, Report, verify};
