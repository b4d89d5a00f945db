//! What executes a recording's instructions: `--processor`.

use crate::args::Processor;
use clap::ValueEnum;
use hindsight_timeline as timeline;
use hindsight_verify::Processors;
use std::sync::OnceLock;

/// What the user said: the processor, and the features that it is to do without.
static SAID: OnceLock<(Processor, Vec<String>)> = OnceLock::new();

/// To be called once, before the others.
pub fn begin(said: Processor, without: Vec<String>) {
    let names: Vec<&str> = without.iter().map(String::as_str).collect();
    // The command line has only names that are known.
    let _ = hindsight_replay::leave_out(&names);
    let _ = SAID.set((said, without));
}

fn choice() -> Processor {
    SAID.get().map_or(Processor::Auto, |s| s.0)
}

/// Whether this kernel has pages of 4 KiB. The window's pages are the program's, and may be left out one by one.
pub fn has_small_pages() -> bool {
    // SAFETY: the call only returns a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) == 4096 }
}

/// The options with which another `hindsight` does the same: none if the user said nothing.
pub fn said() -> Vec<String> {
    let mut out = Vec::new();
    if choice() != Processor::Auto
        && let Some(value) = choice().to_possible_value()
    {
        out.push(format!("--processor={}", value.get_name()));
    }
    if let Some((_, without)) = SAID.get().filter(|s| !s.1.is_empty()) {
        out.push(format!("--without={}", without.join(",")));
    }
    out
}

/// What verifies a recording.
pub fn of_verification() -> Processors {
    match choice() {
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
