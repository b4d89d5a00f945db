//! What executes a recording's instructions: `--processor`.

use crate::args::Processor;
use hindsight_timeline as timeline;
use hindsight_verify::Processors;
use std::sync::OnceLock;

/// What the user said.
static SAID: OnceLock<Processor> = OnceLock::new();

/// To be called once, before the others.
pub fn begin(said: Processor) {
    let _ = SAID.set(said);
}

/// What verifies a recording.
pub fn of_verification() -> Processors {
    match SAID.get().copied().unwrap_or(Processor::Auto) {
        Processor::Auto if hindsight_replay::is_native_possible() => Processors::Native,
        Processor::Auto | Processor::Interpreter => Processors::Interpreter,
        Processor::Native => Processors::Native,
        Processor::Both => Processors::Both,
    }
}

/// What travels in a recording.
pub fn of_travel() -> timeline::Processor {
    match of_verification() {
        Processors::Interpreter => timeline::Processor::Interpreter,
        _ => timeline::Processor::Native,
    }
}
