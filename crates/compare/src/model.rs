//! What a comparison finds.

use crate::Both;
use hindsight_inspect::symbols::CallFrame;
pub use hindsight_origin::{Origin, Point};
use hindsight_timeline::{Position, ThreadId};

/// What a comparison found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// How many pairs of threads were compared.
    pub threads: usize,
    /// How many instructions of the first recording were compared, and how many it has in those threads.
    pub compared: [u64; 2],
    /// Where the recordings part, in the order of the first recording. No more than were asked for.
    pub differences: Vec<Difference>,
    /// There are, or may be, more differences.
    pub more: bool,
    /// Where system calls gave the programs something else, or differ because of their arguments or environments: before the first difference or, if there is none, anywhere.
    pub inputs: Vec<Input>,
    /// There are more of them than are listed.
    pub more_inputs: bool,
    /// Threads that only one of the recordings has.
    pub alone: Both<Vec<ThreadId>>,
    /// How many handlers ran, in each recording, of signals that no instruction raised. What they did is not compared: such
    /// signals come whenever they come.
    pub handlers: Both<usize>,
    /// How often the runs took other ways for a short while for a reason that does not count.
    pub passed_over: Vec<(Reason, u64)>,
}

impl Report {
    /// Whether the recordings agree to the end.
    pub fn is_same(&self) -> bool {
        self.differences.is_empty()
            && self.inputs.is_empty()
            && self.alone.iter().all(Vec::is_empty)
    }
}

/// Where two recordings part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Difference {
    /// What differs.
    pub kind: Kind,
    /// The last instruction that both executed. `None`: they have nothing in common before.
    pub last: Option<Both<Point>>,
    /// What each does next. `None`: the thread does nothing more.
    pub first: Both<Option<Point>>,
    /// The call stacks there.
    pub stacks: Both<Vec<CallFrame>>,
    /// The first value that differs, and where it came from.
    pub cause: Option<Cause>,
    /// Where they do the same again, if that was found.
    pub again: Option<Both<Position>>,
}

/// What differs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A conditional branch was taken in one recording only. Says in which ones.
    Branch {
        /// Whether it was taken.
        taken: Both<bool>,
    },
    /// A jump, call or return led elsewhere.
    Target,
    /// In files that were built anew: they go on in other functions.
    Function {
        /// Their names.
        names: Both<Option<String>>,
    },
    /// They make other system calls, or only one makes one.
    Call {
        /// The calls.
        calls: Both<Option<String>>,
    },
    /// An argument of the same system call differs.
    Argument {
        /// Its index, from 0.
        index: usize,
        /// The calls.
        calls: Both<String>,
    },
    /// The bytes that the same system call gave out differ.
    Bytes {
        /// Where the first one that differs is among the bytes of the call.
        at: u64,
        /// That byte and some behind it.
        bytes: Both<Vec<u8>>,
        /// The calls.
        calls: Both<String>,
    },
    /// A signal came in one recording only, or another one did.
    Signal {
        /// The names of the signals.
        signals: Both<Option<String>>,
    },
    /// Threads ended in other ways.
    End {
        /// How.
        endings: Both<String>,
    },
    /// They part, and no instruction decided that.
    Other,
}

impl Kind {
    /// The calls that differ, if each recording has one.
    pub fn calls(&self) -> Option<Both<String>> {
        match self {
            Kind::Argument { calls, .. } | Kind::Bytes { calls, .. } => Some(calls.clone()),
            _ => None,
        }
    }
}

/// The same system call differs because of what the programs were given, or gave them something else.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Input {
    /// Where the calls were made.
    pub positions: Both<Position>,
    /// The threads that made them.
    pub threads: Both<ThreadId>,
    /// The calls.
    pub calls: Both<String>,
    /// What descriptors lead to, if the calls read from one.
    pub files: Both<Option<String>>,
    /// The first byte that differs: where it is among the bytes of the call, and where in the file.
    pub byte: Option<Byte>,
}

/// The first byte that differs in what calls read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Byte {
    /// Where it is among the bytes of the call.
    pub at: u64,
    /// Where in the file, if that is known.
    pub offsets: Both<Option<u64>>,
    /// That byte and some behind it.
    pub bytes: Both<Vec<u8>>,
}

/// A value that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Datum {
    /// What it is called: a register, or memory, in each recording.
    pub names: Both<String>,
    /// The bytes, least significant first. Empty: they are not known.
    pub bytes: Both<Vec<u8>>,
}

/// An instruction or a system call that handed a value that differs on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hop {
    /// Where.
    pub points: Both<Point>,
    /// What it took in that differs.
    pub datum: Datum,
}

/// Why the recordings part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Cause {
    /// The way of the value, from the instruction that decided back to where it came from. The first has the value that
    /// decided.
    pub hops: Vec<Hop>,
    /// So many in the middle of the way are left out.
    pub left_out: usize,
    /// Where it came from.
    pub origins: Both<Origin>,
    /// What kind of a reason that is.
    pub reason: Reason,
}

/// What made two recordings part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// Data that the program read or was given.
    Data,
    /// Only where things are in memory.
    Address,
    /// A clock.
    Time,
    /// A number that the system gives processes, files and the like.
    Id,
    /// Random numbers.
    Random,
    /// How many variables the environment has, which ones and in which order; but not their values.
    Environment,
    /// Which thread came first.
    Schedule,
    /// What the loader does to put a program together.
    Loader,
    /// A file that is another build.
    Build,
    /// It could not be followed to its source.
    Unknown,
}

impl Reason {
    /// Whether it counts, even if both runs do the same again after a short while.
    pub fn counts(self) -> bool {
        matches!(self, Reason::Data | Reason::Unknown)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Reason::Data => "data",
            Reason::Address => "addresses",
            Reason::Time => "clocks",
            Reason::Id => "numbers of processes and files",
            Reason::Random => "random numbers",
            Reason::Environment => "the size of the environment",
            Reason::Schedule => "the order of threads",
            Reason::Loader => "the loader",
            Reason::Build => "another build of a file",
            Reason::Unknown => "unknown",
        })
    }
}
