//! Where values of a recording came from.

#![deny(missing_docs)]

mod model;
mod past;
mod recorded;
mod source;
mod start;

pub use model::{Origin, Point};
pub use past::{Past, Step};
pub use recorded::{Moved, Recorded};
pub use source::{Source, tell};
pub use start::{Piece, Start, shifts};

/// Why an origin cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording does not answer.
    #[error(transparent)]
    Timeline(#[from] hindsight_timeline::Error),
    /// A place cannot be shown.
    #[error(transparent)]
    Inspect(#[from] hindsight_inspect::Error),
}

/// The result of a question.
pub type Result<T> = std::result::Result<T, Error>;
