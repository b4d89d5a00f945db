//! What a run is to stop at, and what is known of a stop at a signal.

use crate::state::agent::Program;
use hindsight_timeline::ThreadId;
use std::collections::HashMap;

/// Bytes of the largest variable whose changes are told apart from other writes.
pub(crate) const LARGEST: u64 = 64;
/// Linux signal numbers.
pub(crate) const SIGNALS: std::ops::Range<u8> = 1..65;

/// A breakpoint that gdb has set.
#[derive(Clone)]
pub struct Break {
    pub address: u64,
    pub hardware: bool,
    /// Any of these lets it stop; empty: always.
    pub conditions: Vec<Program>,
}

/// What came with the signal at which the cursor stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalInfo {
    pub number: u8,
    pub code: i32,
    pub address: u64,
}

/// Where each thread gets signals, by the instructions it has completed then.
pub type Signals = HashMap<ThreadId, Vec<(u64, SignalInfo)>>;
