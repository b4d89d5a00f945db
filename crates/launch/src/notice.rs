//! What happens while something is recorded.

use crate::error::Error;
use crate::outcome::Outcome;
use hindsight_store::Untidy;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Something that whoever records may want to know. None of it ends the recording.
///
/// As text, each is a sentence for a person.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The process that was attached to is being recorded.
    Attached {
        /// The process.
        pid: i32,
        /// Its program's name.
        name: &'a str,
        /// Number of its threads.
        threads: usize,
        /// How long it stood still.
        stood_still: Duration,
    },
    /// What the collector says: what the recording lacks, and why.
    Collector(&'a str),
    /// The collector panicked. The program goes on, unrecorded.
    CollectorFailed,
    /// The program has ended, but processes that it started are still recorded.
    OthersGoOn,
    /// The program was killed, because it did not take a signal to end.
    Killed,
    /// The end of the recording could not be written.
    EndNotWritten(&'a io::Error),
    /// Nobody takes what is written, so the recording has no end.
    NobodyReads,
    /// The recording could not be written to what is called `name`.
    NotWritten {
        /// Where the recording goes, for people.
        name: &'a str,
        /// What the kernel said.
        cause: &'a io::Error,
    },
    /// The recorder could not go on with a process other than the program's.
    Refused {
        /// The process.
        pid: i32,
        /// Why.
        message: &'a str,
    },
    /// A process could not be left.
    NotDetached {
        /// The process.
        pid: i32,
        /// Why.
        why: &'a Error,
    },
    /// A process is left when its threads come out of system calls.
    WaitsForThreads(i32),
    /// A process was left, but the recorder's memory stays in it.
    StaysIn(i32),
    /// The kernel does not know the heap of a process that was left.
    HeapUnknown {
        /// The process.
        pid: i32,
        /// Why.
        why: &'a Error,
    },
    /// Translations are neither used nor kept.
    CacheUnusable(&'a str),
    /// Something old could not be deleted from the store.
    Untidy(&'a Untidy),
    /// The recording is over. If it is in a file, the file is still there; it is deleted behind this if it is not kept.
    Finished(&'a Outcome),
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Notice::Attached {
                pid,
                name,
                threads,
                stood_still,
            } => {
                let plural = if *threads == 1 { "" } else { "s" };
                let ms = stood_still.as_secs_f64() * 1e3;
                write!(
                    f,
                    "recording process {pid} ({name}), {threads} thread{plural}, which stood still for {ms:.1} ms"
                )
            }
            Notice::Collector(text) => f.write_str(text),
            Notice::CollectorFailed => {
                f.write_str("the collector failed; the program goes on, unrecorded")
            }
            Notice::OthersGoOn => f.write_str(
                "the program has ended; waiting for other processes that are recorded with it",
            ),
            Notice::Killed => f.write_str(
                "the program does not end at the signal that asked it to, so it is killed",
            ),
            Notice::EndNotWritten(e) => write!(
                f,
                "the end of the trace could not be written: {e}; what was written stays readable"
            ),
            Notice::NobodyReads => write!(f, "{}", Error::EndNotWritten),
            Notice::NotWritten { name, cause } => write!(
                f,
                "the recording could not be written to {name}: {cause}; what was written stays readable"
            ),
            Notice::Refused { pid, message } => {
                write!(f, "process {pid}: {message}; its recording ends there")
            }
            Notice::NotDetached { pid, why } => {
                write!(f, "process {pid} could not be detached: {why}")
            }
            Notice::WaitsForThreads(pid) => write!(
                f,
                "process {pid}: waiting for threads in system calls that cannot be interrupted"
            ),
            Notice::StaysIn(pid) => write!(
                f,
                "process {pid} shares its memory with a process that is still recorded: the recorder stays in it"
            ),
            Notice::HeapUnknown { pid, why } => write!(f, "process {pid}: {why}"),
            Notice::CacheUnusable(why) => write!(
                f,
                "cannot keep translated code for the next recording: {why}"
            ),
            Notice::Untidy(what) => what.fmt(f),
            Notice::Finished(outcome) => outcome.fmt(f),
        }
    }
}

/// Who is told of it. Threads and processes of the library call it, some of them at the same time.
pub type Tell = dyn Fn(&Notice) + Send + Sync;

/// A [`Tell`] that lives as long as somebody needs it.
pub(crate) type Listener = Arc<Tell>;
