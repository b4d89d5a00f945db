//! Makes a live process of an instant of a recording.
//!
//! There are two halves. One ([`send`]) reads the recording, which may be anybody's, in a process that can do nothing else. It
//! sends what the process was. The other one receives that and believes nothing of it ([`Received::from`]). It finds the files
//! of this machine and tells what will be done ([`Prepared`]). Only then it makes the process ([`Prepared::make`]), which
//! stands still until it is let go.
//!
//! - `wire`: what the first half says.
//! - `source`: the half that reads the recording.
//! - `received`: what came, checked; `room`: how much memory that may take.
//! - `files`: what descriptors will lead to.
//! - `make`: the process.

#![deny(missing_docs)]

mod files;
mod make;
mod received;
mod room;
mod source;
mod wire;

pub use files::{Choice, Prepared, may_begin};
pub use make::Made;
pub use received::Received;
pub use source::send;

use std::io;

/// Ends a process that was made here and was not let go.
pub fn kill(pid: i32) {
    hindsight_remote::end(pid);
}

/// Why nothing goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording does not answer.
    #[error(transparent)]
    Inspect(#[from] hindsight_inspect::Error),
    /// What the other half says is nonsense.
    #[error("what the recording says of the process {0}")]
    Nonsense(&'static str),
    /// The half that reads the recording has ended. It has said why.
    #[error("the half that reads the recording has ended: {0}")]
    Gone(io::Error),
    /// Memory that the process could read is not known.
    #[error("{0}")]
    Unknown(String),
    /// What is here is not what it was.
    #[error("{0}")]
    Refused(String),
    /// A step failed.
    #[error("{0}: {1}")]
    Step(String, io::Error),
}

/// What comes of it.
pub type Result<T> = std::result::Result<T, Error>;

/// Says which step has failed.
trait During<T> {
    fn during(self, step: impl FnOnce() -> String) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, step: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::Step(step(), e))
    }
}
