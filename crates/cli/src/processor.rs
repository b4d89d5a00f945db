//! What executes a recording's instructions: `--processor`.

use crate::args::Processor;
use clap::ValueEnum;
use hindsight_timeline as timeline;
use hindsight_verify::Processors;
use std::sync::OnceLock;

/// What the user said.
static SAID: OnceLock<Processor> = OnceLock::new();

/// To be called once, before the others.
pub fn begin(said: Processor) {
    let _ = SAID.set(said);
}

/// Whether this kernel has pages of 4 KiB. The window's pages are the program's, and may be left out one by one.
pub fn has_small_pages() -> bool {
    // SAFETY: the call only returns a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) == 4096 }
}

/// The option with which another `hindsight` does the same, if the user said anything.
pub fn said() -> Option<String> {
    let said = SAID.get().copied().unwrap_or(Processor::Auto);
    let name = said.to_possible_value()?.get_name().to_owned();
    (said != Processor::Auto).then(|| format!("--processor={name}"))
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
