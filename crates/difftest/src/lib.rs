//! Differential tests of the translator: one instruction (or a few) is run on the bare processor,
//! translated for recording, and replayed from what that recorded; registers, flags, vector state,
//! memory, predictor cells, faults and positions are compared.
//!
//! The runtime that serves translated code here calls the recorder where what that does decides the outcome:
//! line fills, checks ahead of masked instructions, guarded access.

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

/// A number from the environment, decimal or after `0x` hexadecimal.
pub fn setting(name: &str) -> Option<u64> {
    let v = std::env::var(name).ok()?;
    match v.strip_prefix("0x") {
        Some(h) => u64::from_str_radix(h, 16).ok(),
        None => v.parse().ok(),
    }
}
