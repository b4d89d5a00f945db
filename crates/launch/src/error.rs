//! What can go wrong.

use crate::program::Refusal;
use crate::recorder_log::LogError;
use crate::selection::SelectionError;
use hindsight_events::config::PATTERN_LEN;
use std::io;
use std::path::PathBuf;

/// Why something was not recorded, found, written or left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program cannot be found, or cannot be recorded.
    #[error(transparent)]
    Program(#[from] Refusal),
    /// The process cannot be attached to.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The process cannot be detached from.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// The recording of a process cannot be reached.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// A mark cannot be set from outside.
    #[error(transparent)]
    Mark(#[from] MarkError),
    /// The memory that the program shares with the collector cannot be made.
    #[error(
        "cannot make the memory shared with the program (does `ulimit -f` allow {mebibytes} MiB?): {cause}"
    )]
    SharedMemory {
        /// What a limit on file sizes must allow at least, in MiB.
        mebibytes: usize,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The chosen modules and functions cannot be used.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// What the recorder is to log about itself cannot be logged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The pattern for the names of child programs cannot be used.
    #[error("expected a pattern that is shorter than {PATTERN_LEN} bytes, and not empty")]
    Pattern,
    /// A recording that is sent as it is made cannot be taken back if it is not to be kept.
    #[error(
        "a recording that is sent while it is made cannot be dropped later: record to a file or a ring"
    )]
    CannotTakeBack,
    /// Only in the quiet regime, all memory can be recorded.
    #[error("state points are made in the quiet regime only")]
    NoStatePoints,
    /// State points are to be dropped from a recording that keeps all.
    #[error("a recording keeps all state points, unless it is a ring (--ring)")]
    KeepsAll,
    /// Recordings go to files and programs.
    #[error("a recording is not for a terminal: redirect standard output, or name a file")]
    Terminal,
    /// A process that stands for a program may have one thread only.
    #[error(
        "this process has several threads; the one that stands for the program must have only one"
    )]
    SeveralThreads,
    /// The calling process ignores SIGCHLD, so the kernel would not tell how the program ends.
    #[error("this process ignores SIGCHLD, so it would not learn how the program ends")]
    ChildrenIgnored,
    /// The store has it not, or cannot take it.
    #[error(transparent)]
    Store(#[from] hindsight_store::Error),
    /// Nobody holds a ring with events of this process.
    #[error("process {0} is not recorded into a ring (`record --ring`)")]
    NoRing(i32),
    /// Others than this user may change the folder.
    #[error("{}: other users can write to this folder", .0.display())]
    NotPrivate(PathBuf),
    /// The translations of earlier recordings cannot be used.
    #[error("{0}")]
    Cache(String),
    /// The program was not started.
    #[error("the program could not be started")]
    NotStarted,
    /// Where the recording goes takes nothing any more.
    #[error("the end of the recording cannot be written; what was written stays readable")]
    EndNotWritten,
    /// The collector panicked, which is a fault of this library.
    #[error("the collector failed")]
    CollectorFailed,
    /// The process that collects was killed.
    #[error("the collector is gone; the recording ends where it was")]
    CollectorGone,
    /// What the process that collects could not do.
    #[error("{0}")]
    Collector(String),
    /// The recording cannot be read.
    #[error("{}: {cause}", .path.display())]
    Trace {
        /// The recording.
        path: PathBuf,
        /// What is wrong with it.
        cause: hindsight_trace::Error,
    },
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

/// Why a process that runs cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// A process cannot stop itself.
    #[error("process {0} is this one")]
    ThisOne(i32),
    /// The number is that of a thread.
    #[error("{tid} is a thread of process {pid}: all threads of a process are recorded together")]
    Thread {
        /// The number that was given.
        tid: i32,
        /// The process that it belongs to.
        pid: i32,
    },
    /// The process runs, but cannot be recorded.
    #[error("process {pid} ({name}){why}")]
    Unfit {
        /// The process.
        pid: i32,
        /// The name that the kernel shows of it.
        name: String,
        /// Why.
        why: Unfit,
    },
    /// The memory that it is to share with the collector cannot be made.
    #[error("cannot make the memory shared with the program: {0}")]
    SharedMemory(String),
    /// The recorder in the process could not begin.
    #[error("{0}")]
    Recorder(String),
}

/// What keeps a process from being recorded. The texts follow the process's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// Its first thread has ended, but others go on.
    #[error(
        ": its first thread has ended while others go on. Such a process can only be recorded \
         from its start (hindsight record)"
    )]
    FirstThreadEnded,
    /// It is a zombie.
    #[error(" has ended, and its parent has not waited for it yet")]
    Ended,
    /// It has no memory of its own.
    #[error(" is a thread of the kernel")]
    Kernel,
    /// The recorder is in it.
    #[error(" is recorded already")]
    Recorded,
    /// A debugger has it.
    #[error(" is already traced, by process {tracer} ({name}): only one at a time can")]
    Traced {
        /// The process that traces it.
        tracer: i32,
        /// That process's name.
        name: String,
    },
    /// Its system calls are filtered.
    #[error(" has a filter for system calls (seccomp) that may refuse the recorder's own calls")]
    Filtered,
    /// Its system calls become signals.
    #[error(
        " gets system calls as signals (PR_SET_SYSCALL_USER_DISPATCH); it would get the recorder's own calls, too"
    )]
    Dispatched,
    /// The processor checks its returns.
    #[error(" has a shadow stack, which the recorder does not support")]
    ShadowStack,
    /// It is a 32-bit program.
    #[error(" runs a 32-bit program: only 64-bit ones can be recorded")]
    Program32,
    /// It runs 32-bit code at the moment.
    #[error(" runs 32-bit code: only 64-bit code can be recorded")]
    Code32,
    /// The kernel does not let it be traced. The text says why, and what can be done.
    #[error(" {0}")]
    Untraceable(String),
    /// A thread does not stop.
    #[error(
        ": {0}: it is in a system call that cannot be interrupted (waiting for a \
         child of vfork, or for a device)"
    )]
    DoesNotStop(io::Error),
    /// The registers of a thread cannot be read.
    #[error(": thread {tid}: {cause}")]
    Registers {
        /// The thread.
        tid: i32,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// Why the recording of a process cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// Nobody records it.
    #[error("process {0} is not recorded")]
    NotRecorded(i32),
    /// It is recorded, but not by a process whose files can be seen.
    #[error("the process that records {0} cannot be found: does it belong to another user?")]
    NoRecorder(i32),
    /// The shared memory of the recording is none that this version knows.
    #[error("cannot map the memory shared with the recorder: {0}")]
    Foreign(String),
    /// Nobody is there who could.
    #[error("process {0}, which recorded it, is gone")]
    RecorderGone(i32),
}

/// Why a recorded process does not go on by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// The process that records it could not, and says why where its own messages go.
    #[error("process {pid} could not be detached; process {recorder}, which records it, says why")]
    Refused {
        /// The process.
        pid: i32,
        /// The process that records it.
        recorder: i32,
    },
    /// It would lose what keeps it from some system calls.
    #[error("it has set filters for system calls (seccomp), which it would lose")]
    Filtered,
    /// It would lose signals that stand for system calls.
    #[error(
        "it has asked for system calls as signals (PR_SET_SYSCALL_USER_DISPATCH), which it would lose"
    )]
    Dispatched,
    /// A thread of it waits for what the recording process may itself wait for.
    #[error(
        "{0} waits in a system call that cannot be interrupted, such as vfork; it stays recorded, and its \
         tracer sees the recorder in it"
    )]
    NeverRests(String),
    /// Its threads cannot be stopped, and somebody wants an end.
    #[error("its threads cannot be stopped")]
    Restless,
}

/// Why a mark cannot be set from outside.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The name is too long, or there is none.
    #[error("a mark has a name of 1 to {most} bytes; this one has {0}", most = hindsight_isa::mark::NAME_MAX)]
    Name(usize),
    /// Somebody else is setting one.
    #[error("process {0} is setting a mark in this recording; try again when it has done so")]
    Busy(i32),
    /// The process that records says why not.
    #[error("process {pid}: {why}")]
    Refused {
        /// The process.
        pid: i32,
        /// Why.
        why: String,
    },
    /// The process that records has not answered.
    #[error("process {0}, which records, does not answer: is it stopped?")]
    Silent(i32),
}

/// The result of what may fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Says of a refusal of the system what was to be done.
pub(crate) trait During<T> {
    /// With these words.
    fn during(self, what: impl Into<String>) -> Result<T>;
    /// With words that are only made if it failed.
    fn during_with(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl Into<String>) -> Result<T> {
        self.during_with(|| what.into())
    }

    fn during_with(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::Io {
            what: what(),
            cause,
        })
    }
}

impl Error {
    /// An error of this library's own making, in words.
    pub(crate) fn other(what: &str) -> Error {
        Error::System(io::Error::other(what.to_owned()))
    }
}
