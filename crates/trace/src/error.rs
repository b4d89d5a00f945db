use crate::chunk::{OLDEST, VERSION};
use hindsight_text::Shown;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read at all.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file does not begin as a trace does.
    #[error("this is not a Hindsight trace")]
    NotATrace,
    /// A program made it that writes another version of the format.
    #[error(
        "the trace has format version {found}; this program reads versions {OLDEST} to {VERSION}"
    )]
    Version {
        /// Version of the file.
        found: u8,
    },
    /// The trace ends before the end of its first chunk, which describes the recording.
    #[error("the trace is cut within its header: nothing of the recording is in it")]
    NoHeader,
    /// Bytes that no writer can have written.
    #[error("the trace is damaged at byte {offset}: {what}")]
    Damaged {
        /// Offset of the damaged chunk in the file.
        offset: u64,
        /// What is wrong, as text for people.
        what: &'static str,
    },
    /// The file beside the trace that holds a module's content cannot be used.
    #[error(
        "the content of {}, which recordings share in {}: {what}",
        Shown(module),
        Shown(file.display())
    )]
    Shared {
        /// Path of the module.
        module: String,
        /// Path of the file with its content.
        file: std::path::PathBuf,
        /// What is wrong, as text for people.
        what: String,
    },
    /// The recording claims more instructions than any processor executes in the time that it took.
    #[error(
        "the trace says that {} executed {instructions} instructions in {:.3} s, which no processor can: \
         it was not made by recording a program",
        thread(*stream), time.as_secs_f64()
    )]
    TooFast {
        /// The thread's stream; 0 stands for all threads together.
        stream: u32,
        /// Number of instructions that the trace claims.
        instructions: u64,
        /// Time that the trace claims.
        time: std::time::Duration,
    },
    /// A module is far larger than its data in the trace, so it is not unpacked as a whole.
    #[error("the content of {0} would take too much memory compared with its data in the trace")]
    Inflated(String),
    /// The trace has no module with this content.
    #[error("the trace holds no module {0}")]
    NoModule(crate::ModuleHash),
}

fn thread(stream: u32) -> String {
    match stream {
        0 => "its threads".into(),
        n => format!("the thread of stream {n}"),
    }
}

impl Error {
    /// Something is wrong with the file in `folder` that holds a module's content.
    pub(crate) fn of_shared(
        info: &crate::ModuleInfo,
        folder: &std::path::Path,
        what: String,
    ) -> Error {
        Error::Shared {
            module: info.path.to_string(),
            file: folder.join(info.hash.to_string()),
            what,
        }
    }
}
