//! Where values of a recording came from.

#![deny(missing_docs)]

mod copies;
mod join;
mod model;
mod past;
mod place;
mod recorded;
mod signal;
mod source;
mod start;
mod streams;
mod trail;
mod unseen;
mod writers;

pub use model::{Hop, How, Operand, Origin, Piece as OriginPiece, Point};
pub use past::{Past, Step, Wrote};
pub use place::Place;
pub use recorded::{Moved, Recorded};
pub use source::{Source, tell};
pub use start::{Piece, Start, shifts};
pub use trail::{LONGEST, Limits, origins};
pub use writers::{Stored, stored, wrote_register};

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
    /// No byte was asked for, or too many were.
    #[error("the origin of 1 to {0} bytes can be asked for")]
    Length(usize),
}

/// The result of a question.
pub type Result<T> = std::result::Result<T, Error>;
