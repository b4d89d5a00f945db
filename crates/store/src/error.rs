//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// Why a recording was not found, kept, received or deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing says where the store is.
    #[error("no folder for recordings is known: set HINDSIGHT_DIR, or name a file with -o")]
    NoStore,
    /// The store has no recordings.
    #[error("the store is empty: name a file")]
    StoreEmpty,
    /// There is no such file or recording.
    #[error("{}: no such file, and no such recording in the store", .0.display())]
    NoRecording(PathBuf),
    /// The store has no such recording.
    #[error("{}: no such recording in the store", .0.display())]
    NotStored(PathBuf),
    /// A path is given where the store has names.
    #[error("{}: not a name in the store", .0.display())]
    NotAName(PathBuf),
    /// The recording is still being made.
    #[error("this recording is still being made")]
    Busy,
    /// Copies of files that no recording uses cannot be listed or deleted.
    #[error("cannot remove files from the store that no recording uses: {0}")]
    Sweep(hindsight_trace::Error),
    /// What was received is not the beginning of a recording.
    #[error("{0}")]
    NoBeginning(String),
    /// The system refused something.
    #[error("{what}: {cause}")]
    Io {
        /// What was to be done.
        what: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The system refused something, and says itself what.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The result of what may fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Says of a refusal of the system what was to be done.
pub(crate) fn during<T>(done: io::Result<T>, what: impl FnOnce() -> String) -> Result<T> {
    done.map_err(|cause| Error::Io {
        what: what(),
        cause,
    })
}
