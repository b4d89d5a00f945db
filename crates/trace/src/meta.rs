//! What a trace says about its recording, as JSON. Later versions may add fields. Readers ignore unknown
//! fields and use defaults for missing ones.

use crate::few::{arguments, few};
use crate::machine::Machine;
use hindsight_text::Shown;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// A string of the operating system. In JSON it is a string if it is UTF-8, otherwise an array of bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(untagged)]
pub enum Text {
    /// A string in UTF-8.
    Utf8(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
}

/// Not derived: a derived implementation first builds a form that takes 32 bytes for each byte.
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
    /// The bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Utf8(s) => s.as_bytes(),
            Text::Bytes(b) => b,
        }
    }

    /// The string for the operating system.
    #[cfg(unix)]
    pub fn to_os(&self) -> OsString {
        std::os::unix::ffi::OsStringExt::from_vec(self.as_bytes().to_vec())
    }

    /// The string for this machine. Bytes that are not UTF-8 are replaced: elsewhere than on Unix there is no such string.
    #[cfg(not(unix))]
    pub fn to_os(&self) -> OsString {
        self.to_string().into()
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
        s.as_encoded_bytes().into()
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

/// The first chunk: what was recorded, and how.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of the Hindsight that recorded.
    pub hindsight: String,
    /// Short name of the program, for lists.
    pub name: String,
    /// The file that was loaded. For a script this is its interpreter.
    pub exe: Text,
    /// The path that was executed. For a script this is the script.
    pub execfn: Text,
    /// The program's arguments, of which the first is its name. At most 2^20.
    #[serde(deserialize_with = "arguments")]
    pub argv: Vec<Text>,
    /// The program's environment, as `NAME=value`. At most 2^20.
    #[serde(deserialize_with = "arguments")]
    pub env: Vec<Text>,
    /// The working directory.
    pub cwd: Text,
    /// When the recording began, in milliseconds since 1970.
    pub started_ms: u64,
    /// The machine on which it was recorded.
    pub machine: Machine,
    /// Name of the processor baseline that the program saw.
    pub baseline: String,
    /// `log2` of the number of cells.
    pub predictor_bits: u8,
    /// Smallest number of instructions between key frames. 0: only the first key frame.
    pub keyframe_interval: u64,
    /// Smallest number of instructions between digests. 0: no digests.
    pub digest_interval: u64,
    /// Of checked threads: the most bytes that the kernel wrote in a call that were recorded. The maximum: all. `None`: it is a
    /// recording of an older version, which took 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_limit: Option<u64>,
    /// Which part of the program was recorded, as options of the command line. Empty: all of it.
    #[serde(deserialize_with = "few")]
    pub part: Vec<String>,
    /// Seed with which the timing of threads was disturbed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chaos: Option<u64>,
    /// For so many nanoseconds, answers about the time were repeated. `None`: they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_throttle: Option<u64>,
    /// Seed of what stood in memory that the program got. `None`: what stood there by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_fresh: Option<u32>,
    /// The recording has what transcendental instructions of the x87 gave. An older one does not.
    pub transcendental: bool,
    /// Of a recording that keeps only its latest part: its limit, and what was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<Circular>,
    /// Of a part of a recording: which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Part>,
}

/// The part of a recording that was cut out of it.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// The position from which on it was wanted. Threads begin before that, at key frames.
    pub from: String,
    /// The position until which it was wanted.
    pub until: String,
    /// Number of threads of which nothing was kept.
    pub threads: u64,
    /// Instructions of all threads that were not kept.
    pub instructions: u64,
    /// Bytes that these had in the trace.
    pub bytes: u64,
}

/// How a recording was limited that keeps only its latest part.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Circular {
    /// The limit, as text for people.
    pub limit: String,
    /// Whether the recording continued when this trace was written.
    pub running: bool,
    /// Number of threads of which nothing was kept.
    pub threads: u64,
    /// Instructions of all threads that were not kept. Includes the dropped beginnings of threads that were
    /// kept in part.
    pub instructions: u64,
    /// Bytes that these would have had in the trace.
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

/// Name of a content: its XXH3-128, in JSON as 32 hexadecimal digits.
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

/// A file that the program mapped. Its content follows in pieces, once for all modules with the same hash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModuleInfo {
    /// Path of the file.
    pub path: Text,
    /// Name of the content.
    pub hash: ModuleHash,
    /// Size of the content in bytes.
    pub size: u64,
    /// The content is not in the trace but in a file beside it (see [`crate::files`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// How the program ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Exit status.
    Exit(i32),
    /// Number of the signal that killed the program.
    Signal(i32),
    /// The recorder could not continue. The text says why.
    Unsupported(String),
    /// The recorder left the program, which continued without it.
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

/// Description of a stream. It comes before the stream's events.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamInfo {
    /// Number of the stream, from 1.
    pub stream: u32,
    /// What the stream carries.
    pub kind: StreamKind,
    /// Number of the program image that the events belong to; the first is 1.
    pub image: u32,
    /// The image from which this one came by `fork` or `execve`; 0 for the first.
    pub parent: u32,
    /// Process id on the recording machine.
    pub pid: i32,
    /// Thread id on the recording machine.
    pub tid: i32,
    /// Of an image: its argument vector, if the recorder could see it.
    #[serde(deserialize_with = "few")]
    pub command: Vec<Text>,
    /// Of an image: it came by `execve`, not by `fork`.
    pub executed: bool,
    /// What is missing from the beginning of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
}

/// The part of a stream that was not kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Number of chunks.
    pub chunks: u64,
    /// Number of events.
    pub events: u64,
    /// Number of instructions.
    pub instructions: u64,
    /// Bytes that the part would have had in the trace.
    pub bytes: u64,
    /// The order number in whose wake the rest begins, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opener: Option<Opener>,
}

/// An order number of a thread, or its beginning.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Opener {
    /// The number. 0: the beginning of what is known of the thread.
    pub number: u64,
    /// The position at which the thread got it.
    pub at: u64,
}

/// The end of a stream, as the recorder reported it.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamEnd {
    /// `exit`, `signal`, `unsupported`, `exec` or `detached`.
    pub kind: String,
    /// Exit status, or number of the signal.
    pub code: u32,
    /// Why the recorder could not continue.
    pub message: String,
}

/// The unrecorded stretches of a thread.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Gaps {
    /// Number of small gaps, as calls into modules that are not recorded.
    pub small: u64,
    /// Number of big gaps: recording was off for an unknown time.
    pub big: u64,
    /// Instructions in all gaps.
    pub instructions: u64,
}

/// Counts of one stream. No chunk of the stream follows.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamSummary {
    /// Number of the stream, from 1.
    pub stream: u32,
    /// Process id on the recording machine.
    pub pid: i32,
    /// Thread id on the recording machine.
    pub tid: i32,
    /// Number of recorded instructions.
    pub instructions: u64,
    /// The unrecorded stretches.
    pub gaps: Gaps,
    /// The last regime that the stream reports. `None`: checked from the beginning.
    pub regime: Option<Regime>,
    /// How often the program mapped a file whose content could not be read.
    pub lost_files: u64,
    /// How often each mark was set, by its name.
    pub marks: BTreeMap<String, u64>,
    /// Number of mispredictions.
    pub unpredicted_reads: u64,
    /// Number of events.
    pub events: u64,
    /// Number of chunks of events.
    pub chunks: u64,
    /// Bytes of the events before compression.
    pub raw_bytes: u64,
    /// Bytes of the chunks in the file.
    pub stored_bytes: u64,
    /// Bytes that came through the ring. 0: not known.
    pub ring_bytes: u64,
    /// Number of guest instructions that were translated.
    pub translated: u64,
    /// How often the translation cache was emptied.
    pub cache_flushes: u64,
    /// How often translated code was left, by cause.
    #[serde(deserialize_with = "few")]
    pub exits: Vec<u64>,
    /// How the thread ended, if the recorder reported it.
    pub end: Option<StreamEnd>,
    /// The thread's last order number.
    pub last_sequence: Option<u64>,
    /// The thread disappeared before it could report the end of its stream.
    pub lost: bool,
}

/// How reads were recorded from a position on.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Regime {
    /// Reads were not checked: all changes of memory by others are recorded.
    pub quiet: bool,
    /// The position, in instructions completed.
    pub position: u64,
    /// Why the quiet regime ended.
    pub reason: String,
}

/// The last chunk of a finished recording.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// How the program ended. `None`: unknown.
    pub ending: Option<Ending>,
    /// Time that the recording took, in milliseconds.
    pub wall_ms: u64,
    /// Processor time of the recorded program, in microseconds.
    pub program_cpu_us: u64,
    /// Processor time of the collector, in microseconds.
    pub collector_cpu_us: u64,
    /// Peak resident memory of the recorded program with its shadow memory, in KiB.
    pub peak_memory_kib: u64,
    /// Counts of all streams together.
    pub totals: Totals,
    /// Translated blocks of earlier recordings that this one used. Counts blocks that can be shared.
    pub blocks_found: u64,
    /// Translated blocks that this recording made. Counts blocks that can be shared.
    pub blocks_made: u64,
    /// Bytes of the modules in the trace.
    pub module_bytes: u64,
    /// Bytes of the files beside the trace to which it refers.
    pub shared_bytes: u64,
    /// Bytes of the trace before this chunk.
    pub trace_bytes: u64,
}

/// A lock for atomic operations was taken from its thread for the first time. The thread had stopped in the
/// middle of an operation while others waited. Its operation takes effect later than its order number says.
/// It also releases a lock that it no longer has. So from here on, the order of operations under this lock is
/// not exact.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Taken {
    /// Number of the lock: it covers the bytes at these offsets in a page
    /// (`hindsight_events::ring::stripe_of`).
    pub lock: u32,
    /// The next order number at that moment.
    pub number: u64,
}

/// Counts of several streams together.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Number of streams.
    pub streams: u64,
    /// Number of recorded instructions.
    pub instructions: u64,
    /// Number of instructions that were not recorded.
    pub gap_instructions: u64,
    /// Number of mispredictions.
    pub unpredicted_reads: u64,
}

impl Totals {
    /// Adds the counts of a stream.
    pub fn add(&mut self, s: &StreamSummary) {
        // The counts may be nonsense, so the sum must not overflow.
        let add = |n: &mut u64, more| *n = n.saturating_add(more);
        add(&mut self.streams, 1);
        add(&mut self.instructions, s.instructions);
        add(&mut self.gap_instructions, s.gaps.instructions);
        add(&mut self.unpredicted_reads, s.unpredicted_reads);
    }
}
