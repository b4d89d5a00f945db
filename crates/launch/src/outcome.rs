//! What became of a recording.

use crate::selection::Unmatched;
use hindsight_trace::meta::Ending;
use hindsight_trace::{Summary, Text};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Status {
    /// With this exit status, from 0 to 255.
    Exited(i32),
    /// By the signal of this number.
    Killed(i32),
}

/// What became of a recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How the recording ended. `None`: a process was attached to, and its threads have not said how it ended.
    pub ending: Option<Ending>,
    /// How the program's process ended, as its parent saw it. `None`: this process is not its parent, or somebody else
    /// in this process has waited for it.
    pub status: Option<Status>,
    /// The program took longer than it was given, and was killed.
    pub hung: bool,
    /// The recording is one of those that are to be kept (see [`crate::KeepOn`]).
    pub kept: bool,
    /// It holds something: the program was loaded, and a ring had instructions.
    pub begun: bool,
    /// Where the recording is, for people. `None`: nothing was written.
    pub name: Option<String>,
    /// The file that holds it, if it is a file. It is deleted if the recording is not [kept](Outcome::is_kept) and could
    /// be taken back.
    #[serde(serialize_with = "write_path", deserialize_with = "read_path")]
    pub file: Option<PathBuf>,
    /// Figures, as they stand at the end of the trace.
    pub summary: Summary,
    /// Choices of modules and functions that chose nothing.
    pub unmatched: Vec<Unmatched>,
    /// Of a recording with filled memory ([`crate::Builder::fill_fresh`]): programs in which no function was found by which they
    /// get memory. In these only stacks were filled.
    pub unfilled: u32,
}

impl Outcome {
    /// Whether there is a recording.
    pub fn is_kept(&self) -> bool {
        self.kept && self.begun
    }
}

/// How it ended, in a few words.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.ending {
            Some(ending) => ending.fmt(f),
            None => f.write_str("ended"),
        }
    }
}

fn write_path<S: Serializer>(path: &Option<PathBuf>, s: S) -> Result<S::Ok, S::Error> {
    let text = path.as_ref().map(|p| Text::from(p.as_os_str()));
    text.serialize(s)
}

fn read_path<'de, D: Deserializer<'de>>(d: D) -> Result<Option<PathBuf>, D::Error> {
    let text = Option::<Text>::deserialize(d)?;
    Ok(text.map(|t| PathBuf::from(t.to_os())))
}
