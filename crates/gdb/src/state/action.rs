//! What gdb asks a session to do.

use hindsight_packets::Tid;

/// What gdb asked for last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Continue,
    Step(Tid),
    Range(Tid, u64, u64),
    ReverseStep(Tid),
    ReverseContinue,
}
