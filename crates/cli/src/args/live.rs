//! Commands on live programs.

mod cache;
mod recording;
mod rerun;
mod resume;
mod values;

/// All of them work on this machine.
pub fn adapt(command: clap::Command) -> clap::Command {
    command
}

pub use cache::*;
pub use recording::*;
pub use rerun::*;
pub use resume::*;
