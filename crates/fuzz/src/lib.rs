//! Random inputs for everything that reads bytes from elsewhere.
//!
//! A [`Target`] is a function that takes any bytes. It panics when something is wrong, and must end soon and take
//! little memory whatever the bytes are. [`run`] feeds it with changed examples. Tests run each target for a moment,
//! the program `hindsight-fuzz` for as long as one likes, and libFuzzer can call the same functions (README.md).

#[path = "../../trace/tests/common/mod.rs"]
mod events;
pub mod made;
pub mod mutate;
mod run;
mod targets;

pub use hindsight_random::Rng;
pub use run::{Budget, corpus, run, try_one};
pub use targets::{TARGETS, target};

/// Something that reads bytes from elsewhere.
pub struct Target {
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Makes examples, from which other inputs are made.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads an input. Panics if what comes of it is wrong.
    pub run: fn(&[u8]),
}
