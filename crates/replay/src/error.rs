use hindsight_text::Shown;
use std::fmt;

/// The first point at which replay and recording differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Number of instructions completed before it.
    pub position: u64,
    /// The guest's instruction pointer there.
    pub pc: u64,
    /// What the recording says.
    pub expected: String,
    /// What replay found.
    pub found: String,
    /// It concerns memory at a key frame that the program may never have read.
    pub unread: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Difference {
            position,
            pc,
            expected,
            found,
            ..
        } = self;
        write!(
            f,
            "at position {position}, address {pc:#x}: expected {}, found {}",
            Shown(expected),
            Shown(found)
        )
    }
}

/// Why a replay stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Replay and recording differ.
    #[error("{0}")]
    Difference(Box<Difference>),
    /// The program continues at code that the trace does not have.
    #[error("at position {position}: the code at {pc:#x} is not in the trace")]
    MissingCode { position: u64, pc: u64 },
    /// The program used a mapped file whose content could not be recorded.
    #[error(
        "at position {position}: the content of {} is not in the trace",
        Shown(path)
    )]
    MissingFile { position: u64, path: String },
    /// The events make no sense.
    #[error("corrupt events near position {position}: {what}")]
    Corrupt { position: u64, what: &'static str },
    /// A key frame restates only what has changed since another one, which the trace does not have.
    #[error(
        "the key frame at position {position} builds on the one that is {back} key frames before it, which is not in the trace"
    )]
    MissingBase { position: u64, back: u64 },
    /// This build or this machine cannot replay the instruction.
    #[error(
        "cannot replay the instruction at position {position}, address {pc:#x}: {}",
        Shown(what)
    )]
    Unsupported {
        position: u64,
        pc: u64,
        what: String,
    },
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] hindsight_trace::Error),
    /// The system refused to map address space.
    #[error("cannot map {} of address space for replay: {cause}{}", size(*bytes), allowed(*limit))]
    AddressSpace {
        bytes: u64,
        /// The process's limit on address space in bytes, if there is one.
        limit: Option<u64>,
        cause: std::io::Error,
    },
    /// What memory holds where the replay begins was to be unpacked when it was needed, and could not be.
    #[error("what memory holds where the replay begins cannot be unpacked; delete the index")]
    Damaged,
    /// The system refused memory, or another service.
    #[error("{what}: {cause}")]
    System {
        what: &'static str,
        cause: std::io::Error,
    },
}

fn size(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}

fn allowed(limit: Option<u64>) -> String {
    let Some(limit) = limit else {
        return String::new();
    };
    format!(
        "; the limit is {} (ulimit -v). Replay reserves up to 13 GiB for each thread that it plays at the same time, \
         and uses little of it: lift the limit",
        size(limit)
    )
}

impl Error {
    /// The error of a window that needed more memory than it may have.
    pub(crate) fn full() -> Error {
        Error::System {
            what: "the program needs more memory than a replay may have here",
            cause: std::io::ErrorKind::OutOfMemory.into(),
        }
    }
}

#[cfg(unix)]
impl Error {
    /// The error of a failed mapping of `bytes` bytes, from the system's last error.
    pub(crate) fn address_space(bytes: usize) -> Error {
        let cause = std::io::Error::last_os_error();
        let mut limit = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the call fills the structure.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
        Error::AddressSpace {
            bytes: bytes as u64,
            limit: (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur),
            cause,
        }
    }

    /// The C library's last error while doing `what`.
    pub(crate) fn last_os(what: &'static str) -> Error {
        Error::System {
            what,
            cause: std::io::Error::last_os_error(),
        }
    }
}
