//! Where two recordings of a program part, and which value made them.
//!
//! [`compare`] pairs the threads of two recordings, and the system calls of each pair of threads. Between two of these it
//! compares registers, as long as these agree. Where they do not, it compares which code was executed. Where that differs, it
//! looks for the place at which both do the same again, and for the value that decided ([`Cause`]). Values differ between
//! any two runs: addresses, process ids, clocks. What is caused by those counts only where it does not pass at once.
//!
//! ```
//! # let (_scene, trace) = hindsight_lab::example();
//! use hindsight_compare::{Options, compare};
//! use hindsight_timeline::Timeline;
//!
//! let open = || Timeline::open(&trace, Default::default());
//! let (a, b) = (open()?, open()?);
//! let report = compare([&a, &b], &Options::default(), &|_, _| {})?;
//! assert!(report.is_same());
//! # Ok::<(), hindsight_compare::Error>(())
//! ```

#![deny(missing_docs)]

mod align;
mod cause;
mod code;
mod course;
mod details;
mod events;
mod model;
mod side;
mod stream;
mod thread;
mod whole;

pub use model::*;
pub use whole::compare;

use hindsight_timeline::ThreadId;

/// Something of the first recording, and of the second.
pub type Both<T> = [T; 2];

/// What is to be compared, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most differences that are looked for; at least 1.
    pub limit: usize,
    /// All that was executed is compared. Otherwise registers are, where that is enough.
    pub exact: bool,
    /// Every difference in what was executed counts, whatever the reason.
    pub strict: bool,
    /// Only this thread of the first recording.
    pub thread: Option<ThreadId>,
    /// Only this program image of the first recording.
    pub image: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limit: 1,
            exact: false,
            strict: false,
            thread: None,
            image: None,
        }
    }
}

/// Why recordings cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A recording does not answer.
    #[error(transparent)]
    Timeline(#[from] hindsight_timeline::Error),
    /// A place cannot be shown.
    #[error(transparent)]
    Inspect(#[from] hindsight_inspect::Error),
    /// Where a value came from cannot be found.
    #[error(transparent)]
    Origin(#[from] hindsight_origin::Error),
    /// The first recording has no thread, or no program image, with this number.
    #[error("the first recording has no {0}")]
    Nothing(String),
    /// A thread of the comparison has ended before its time.
    #[error("the comparison was interrupted")]
    Stopped,
}

/// The result of a comparison.
pub type Result<T> = std::result::Result<T, Error>;
