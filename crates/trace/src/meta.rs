//! What a trace says about its recording, as JSON. Fields may be added; readers ignore what they
//! do not know and take defaults for what is missing.

use crate::few::{arguments, few};
use hindsight_text::Shown;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A string of the operating system: JSON string if it is UTF-8, otherwise an array of bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(untagged)]
pub enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

/// Not derived: that would first keep what it reads in a form that takes 32 bytes for each byte.
impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Text, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string or an array of bytes")
            }

            fn visit_str<E>(self, s: &str) -> Result<Text, E> {
                Ok(Text::Utf8(s.into()))
            }

            fn visit_string<E>(self, s: String) -> Result<Text, E> {
                Ok(Text::Utf8(s))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Text, A::Error> {
                let mut bytes = Vec::new();
                while let Some(b) = seq.next_element()? {
                    bytes.push(b);
                }
                Ok(Text::Bytes(bytes))
            }
        }
        d.deserialize_any(Either)
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::Utf8(String::new())
    }
}

impl Text {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Utf8(s) => s.as_bytes(),
            Text::Bytes(b) => b,
        }
    }

    pub fn to_os(&self) -> OsString {
        OsString::from_vec(self.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Text {
    fn from(b: &[u8]) -> Self {
        match std::str::from_utf8(b) {
            Ok(s) => Text::Utf8(s.into()),
            Err(_) => Text::Bytes(b.into()),
        }
    }
}

impl From<&OsStr> for Text {
    fn from(s: &OsStr) -> Self {
        s.as_bytes().into()
    }
}

impl From<&str> for Text {
    fn from(s: &str) -> Self {
        Text::Utf8(s.into())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

/// The machine of a recording.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// `x86_64`.
    pub arch: String,
    /// `little`.
    pub byte_order: String,
    pub kernel: String,
    pub processor: String,
    pub page_size: u32,
}

/// First chunk: what was recorded, and how.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of the program that recorded.
    pub hindsight: String,
    /// Short name of the program, for lists.
    pub name: String,
    /// The file that was loaded (for a script: its interpreter).
    pub exe: Text,
    /// The path that was executed (for a script: the script).
    pub execfn: Text,
    #[serde(deserialize_with = "arguments")]
    pub argv: Vec<Text>,
    #[serde(deserialize_with = "arguments")]
    pub env: Vec<Text>,
    pub cwd: Text,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    pub machine: Machine,
    /// Name of the processor baseline the program was shown.
    pub baseline: String,
    /// `log2` of the predictor's cells.
    pub predictor_bits: u8,
    pub keyframe_interval: u64,
    pub digest_interval: u64,
    /// The part of the program that is recorded, as options of the command line; empty: all of it.
    #[serde(deserialize_with = "few")]
    pub part: Vec<String>,
    /// Seed of what disturbed the timing of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chaos: Option<u64>,
    /// Of a circular recording: what it was limited to, and what became of the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<Circular>,
}

/// A recording of which only the latest part was kept.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Circular {
    /// The limit, for people.
    pub limit: String,
    /// The recording went on when this trace was written.
    pub running: bool,
    /// Threads of which nothing was kept.
    pub threads: u64,
    /// Instructions of all threads that were not kept, those of threads of which something was kept
    /// included.
    pub instructions: u64,
    /// The same of bytes in the trace.
    pub bytes: u64,
}

impl Header {
    /// The command line, quoted where a shell would need it.
    pub fn command(&self) -> String {
        command_line(&self.argv)
    }
}

/// Arguments as one line, quoted where a shell would need it.
pub fn command_line(argv: &[Text]) -> String {
    let words = argv.iter().map(|a| {
        let a = a.to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
        if !a.is_empty() && a.chars().all(plain) {
            a
        } else {
            format!("'{}'", a.replace('\'', "'\\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Name of a content: XXH3-128, 32 hexadecimal digits in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModuleHash(pub [u8; 16]);

impl ModuleHash {
    /// The name of `content`.
    pub fn of(content: &[u8]) -> ModuleHash {
        ModuleHash(xxhash_rust::xxh3::xxh3_128(content).to_be_bytes())
    }
}

impl fmt::Display for ModuleHash {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl From<ModuleHash> for String {
    fn from(h: ModuleHash) -> String {
        h.to_string()
    }
}

impl TryFrom<String> for ModuleHash {
    type Error = &'static str;
    fn try_from(s: String) -> Result<Self, Self::Error> {
        if s.len() != 32 {
            return Err("a module's name has 32 digits");
        }
        u128::from_str_radix(&s, 16)
            .map(|v| ModuleHash(v.to_be_bytes()))
            .map_err(|_| "a module's name has hexadecimal digits")
    }
}

/// A file that the program mapped executable. Its content follows in pieces, once for all
/// modules of the same hash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModuleInfo {
    pub path: Text,
    pub hash: ModuleHash,
    pub size: u64,
    /// The content is not in the trace but in a file beside it; see [`crate::files`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// How the program ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Exit status.
    Exit(i32),
    /// Number of the deadly signal.
    Signal(i32),
    /// The recorder could not go on.
    Unsupported(String),
    /// The recorder has left the program, which went on by itself.
    Detached,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Ending::Exit(n) => write!(f, "exit status {n}"),
            Ending::Signal(n) => write!(f, "signal {n}"),
            Ending::Detached => write!(f, "detached"),
            Ending::Unsupported(why) => write!(f, "not recorded further: {}", Shown(why)),
        }
    }
}

/// What a stream carries.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// The events of one thread.
    #[default]
    Thread,
    /// Mappings and code of one program image: what `execve` or `fork` made.
    Image,
}

/// Description of a stream, before its first events.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamInfo {
    pub stream: u32,
    pub kind: StreamKind,
    /// Number of the program image that the events belong to; 1 is the first.
    pub image: u32,
    /// The image from which this one came by `fork` or `execve`; 0 for the first.
    pub parent: u32,
    pub pid: i32,
    pub tid: i32,
    /// Of an image: its argument vector, if it could be seen.
    #[serde(deserialize_with = "few")]
    pub command: Vec<Text>,
    /// Of an image: it came by `execve`, not `fork`.
    pub executed: bool,
    /// What was not kept from the beginning of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
}

/// What was not kept of a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    pub chunks: u64,
    pub events: u64,
    pub instructions: u64,
    /// Bytes in the trace.
    pub bytes: u64,
}

/// The end that the recorder reported of a stream.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamEnd {
    /// `exit`, `signal`, `unsupported` or `exec`.
    pub kind: String,
    /// Exit status or number of the signal.
    pub code: u32,
    /// Why the recorder could not go on.
    pub message: String,
}

/// Stretches of a thread that were not recorded.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Gaps {
    /// Calls into modules that are not recorded, and the like.
    pub small: u64,
    /// Recording was off for an unknown time.
    pub big: u64,
    /// Instructions in all of them.
    pub instructions: u64,
}

/// Counts of one stream, when nothing of it follows.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamSummary {
    pub stream: u32,
    /// Process and thread id on the recording machine.
    pub pid: i32,
    pub tid: i32,
    /// Instructions recorded.
    pub instructions: u64,
    pub gaps: Gaps,
    /// The last regime that the stream says; `None`: checked from the beginning.
    pub regime: Option<Regime>,
    /// Times that a file was in memory whose content could not be had.
    pub lost_files: u64,
    /// How often each mark was made, by its name.
    pub marks: BTreeMap<String, u64>,
    pub unpredicted_reads: u64,
    pub events: u64,
    pub chunks: u64,
    /// Bytes of events before compression.
    pub raw_bytes: u64,
    /// Bytes of chunks in the file.
    pub stored_bytes: u64,
    /// Guest instructions translated.
    pub translated: u64,
    /// Times the code cache was emptied.
    pub cache_flushes: u64,
    /// Times translated code was left, by cause.
    #[serde(deserialize_with = "few")]
    pub exits: Vec<u64>,
    /// How the thread ended, if it said so.
    pub end: Option<StreamEnd>,
    /// The last number in the order of all threads.
    pub last_sequence: Option<u64>,
    /// The thread was gone before it could say that its stream ends.
    pub lost: bool,
}

/// How reads were recorded from a position on.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Regime {
    /// Not checked, since all changes of memory by others are recorded.
    pub quiet: bool,
    pub position: u64,
    /// Why it is no longer quiet.
    pub reason: String,
}

/// Last chunk of a recording that was finished.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    pub ending: Option<Ending>,
    pub wall_ms: u64,
    /// Processor time of the recorded program, microseconds.
    pub program_cpu_us: u64,
    /// Processor time of the collector, microseconds.
    pub collector_cpu_us: u64,
    /// Most resident memory of the recorded program, its predictor included, KiB.
    pub peak_memory_kib: u64,
    /// Of all streams together.
    pub totals: Totals,
    /// Blocks of translated code that earlier recordings had left and that served, and those that were
    /// made, as far as they can be shared.
    pub blocks_found: u64,
    pub blocks_made: u64,
    /// Bytes of modules in the trace.
    pub module_bytes: u64,
    /// Bytes of the files beside the trace that it refers to.
    pub shared_bytes: u64,
    /// Bytes of the trace before this chunk.
    pub trace_bytes: u64,
}

/// A lock of atomic operations was taken away for the first time from a thread that was stopped amid one
/// while others waited. That operation takes effect later than its number says and gives back what is no longer
/// its lock: from there on, the places of operations under this lock are not exact.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Taken {
    /// Which: of the bytes at these offsets in a page (`hindsight_events::ring::stripe_of`).
    pub lock: u32,
    /// The next number of the order at that moment.
    pub number: u64,
}

/// Counts of streams together.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    pub streams: u64,
    /// Instructions recorded.
    pub instructions: u64,
    /// Instructions that were not recorded.
    pub gap_instructions: u64,
    pub unpredicted_reads: u64,
}

impl Totals {
    /// Counts one more stream.
    pub fn add(&mut self, s: &StreamSummary) {
        // Whoever wrote them may have counted nonsense.
        let add = |n: &mut u64, more| *n = n.saturating_add(more);
        add(&mut self.streams, 1);
        add(&mut self.instructions, s.instructions);
        add(&mut self.gap_instructions, s.gaps.instructions);
        add(&mut self.unpredicted_reads, s.unpredicted_reads);
    }
}
