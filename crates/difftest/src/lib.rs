//! Differential tests of the translator.
//!
//! A case is one instruction, or a few. It runs on the bare processor, translated for recording,
//! and replayed from that recording. Then these are compared: registers, flags, vector state,
//! memory, cells, faults and positions.
//!
//! A small runtime of its own serves translated code. It calls the recorder where that decides the
//! outcome: recording mispredictions, checks before masked instructions, guarded access.

extern crate alloc;

pub mod case;
mod compare;
pub mod confined;
pub mod generate;
pub mod memory;
pub mod native;
mod prepare;
pub mod record;
pub mod replay;
pub mod rng;
pub mod sequences;
pub mod state;
pub mod thread;

pub use hindsight_recorder::guard;

/// A number from the environment: decimal, or hexadecimal behind `0x`. `None` if there is none.
pub fn setting(name: &str) -> Option<u64> {
    let v = std::env::var(name).ok()?;
    match v.strip_prefix("0x") {
        Some(h) => u64::from_str_radix(h, 16).ok(),
        None => v.parse().ok(),
    }
}
