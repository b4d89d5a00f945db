//! Commands on live programs, on a machine that cannot run any.

use crate::say;
use crate::status::FAILED;
use anyhow::{Result, bail};

const WHY: &str =
    "this machine is not x86-64: it plays recordings, but records and runs no programs";

/// In place of a command.
pub fn refused<A>(_: A) -> Result<i32> {
    bail!(WHY)
}

/// In place of a command whose lower statuses are the program's.
pub fn not_recorded<A>(_: A) -> i32 {
    say(WHY);
    FAILED
}

pub mod record {
    pub use super::not_recorded as run;
}

pub mod attach {
    pub use super::{not_recorded as run, refused as detach};
}

pub mod cache {
    pub use super::refused as run;
}

pub mod mark {
    pub use super::refused as run;
}

pub mod dump {
    pub use super::refused as run;
}

pub mod rerun {
    pub use super::refused as run;
}

pub mod resume {
    pub use super::refused as run;
}
