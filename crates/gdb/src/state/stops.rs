//! What stops a run, and what is known of a signal.

use hindsight_inspect::SignalInfo;
use hindsight_timeline::ThreadId;
use hindsight_timeline::expression::Expression;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of the largest variable of which writes that change nothing are passed over.
pub(crate) const LARGEST: u64 = 64;
/// Linux signal numbers.
pub(crate) const SIGNALS: std::ops::Range<u8> = 1..65;

/// A breakpoint that gdb has set.
#[derive(Clone)]
pub struct Break {
    pub address: u64,
    pub hardware: bool,
    /// It stops if this holds.
    pub condition: Option<Arc<Expression>>,
}

/// The signals that each thread gets, with the instructions that it has completed then.
pub type Signals = HashMap<ThreadId, Vec<(u64, SignalInfo)>>;
