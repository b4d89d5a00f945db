use crate::{Position, ThreadId};

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] hindsight_trace::Error),
    /// A thread of the trace cannot be replayed up to the instant in question.
    #[error("thread {thread}: {cause}")]
    Replay {
        /// The thread that was replayed.
        thread: ThreadId,
        /// What went wrong.
        cause: hindsight_replay::Error,
    },
    /// No thread has such a segment, or the segment is shorter.
    #[error("the recording has no position {0}")]
    NoPosition(Position),
    /// The recording has no such place.
    #[error("the recording has no {0}")]
    NoPlace(String),
    /// There is no thread of this number.
    #[error("the recording has no thread {0}; `hindsight info` lists them")]
    NoThread(ThreadId),
    /// There is no program image of this number.
    #[error("the recording has no program image {0}; `hindsight info` lists them")]
    NoImage(u32),
    /// The recording has no thread at all that ran.
    #[error("the recording holds no instructions")]
    Empty,
    /// The recording was made in a way that does not allow the question.
    #[error("{0}")]
    Unsupported(String),
    /// An index beside the trace cannot be used or written.
    #[error("index {}: {what}", hindsight_text::Shown(path))]
    Index {
        /// Path of the index file.
        path: String,
        /// What is wrong, in words.
        what: String,
    },
    /// It was cancelled ([`crate::Cancel`]).
    #[error("cancelled")]
    Cancelled,
}

/// The result of a question.
pub type Result<T> = std::result::Result<T, Error>;

/// The error for a failed replay of a thread.
pub(crate) fn replay(thread: ThreadId, cause: hindsight_replay::Error) -> Error {
    match cause {
        hindsight_replay::Error::Trace(e) => Error::Trace(e),
        cause => Error::Replay { thread, cause },
    }
}
