//! What is said of how a program or a process is recorded.

use crate::destination::Destination;
use crate::notice::Listener;
use hindsight_isa::Predictor;
use std::sync::Arc;

/// Instructions between key frames if nothing is said.
const KEYFRAME_INTERVAL: u64 = 1_000_000_000;

/// Instructions between digests if nothing is said.
const DIGEST_INTERVAL: u64 = 1_000_000;

/// Of a checked thread, the most bytes that the kernel wrote in a call that are recorded if nothing is said. Programs read
/// from sockets and pipes with less at a time.
const DATA_LIMIT: u64 = 128 << 10;

/// The same with a bounded predictor, where most of it is forgotten before it is read, and in a ring, which then holds less
/// of the time.
const LOW_DATA_LIMIT: u64 = 4 << 10;

/// Recordings of one program that the store keeps if nothing is said.
const KEEP: usize = 5;

/// How reads are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Regime {
    /// Not checked as long as nobody but the kernel can change the program's memory, and all that it changes is known.
    Quiet,
    /// Checked from the beginning.
    Checked,
}

/// What becomes of processes that the program makes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub enum Children {
    /// They are recorded too.
    #[default]
    Follow,
    /// They run unrecorded.
    None,
    /// Those are recorded whose program's name matches this pattern, with `*` and `?`; or its path, if the pattern has a
    /// slash.
    Matching(String),
}

/// Changes that tests of the recorder make.
#[doc(hidden)]
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Trials {
    /// Every program image ends its quiet regime when it has come to the runtime so often; 0: not for that reason.
    pub leave_quiet_after: u64,
    /// Every quiet thread restates its memory each so many instructions, if it can; 0: as it would.
    pub restate_every: u64,
    /// What this system call wrote is left out, as if the table of calls were wrong.
    pub untold: Option<u64>,
    /// An invariant of the recorder does not hold when a program image has translated so many blocks of code; 0: it holds.
    pub violate_after: u64,
    /// Whether memory that is only read shares its pages with what it is compared with; else by the processor.
    pub joint: Option<bool>,
}

/// What both ways of recording have.
#[derive(Clone)]
pub(crate) struct Common {
    pub destination: Destination,
    pub keep: usize,
    pub predictor: Predictor,
    pub keyframe_interval: Option<u64>,
    pub digest_interval: u64,
    pub data_limit: Option<u64>,
    pub children: Children,
    pub tell: Listener,
}

impl Common {
    pub fn new() -> Common {
        Common {
            destination: Destination::Store { contained: false },
            keep: KEEP,
            predictor: Predictor::WINDOW,
            keyframe_interval: None,
            digest_interval: DIGEST_INTERVAL,
            data_limit: None,
            children: Children::default(),
            tell: Arc::new(|_| ()),
        }
    }

    pub fn data_limit(&self, ring: bool) -> u64 {
        let usual = match self.predictor == Predictor::WINDOW && !ring {
            true => DATA_LIMIT,
            false => LOW_DATA_LIMIT,
        };
        self.data_limit.unwrap_or(usual)
    }

    pub fn keyframe_interval(&self) -> u64 {
        self.keyframe_interval.unwrap_or(KEYFRAME_INTERVAL)
    }
}

/// The setters that both builders have.
macro_rules! common_setters {
    () => {
        /// Where the recording goes. Default: a new file in the [store](hindsight_store), which shares copies of files with
        /// others.
        pub fn destination(mut self, to: $crate::Destination) -> Self {
            self.common.destination = to;
            self
        }

        /// How many recordings of this program the store keeps, this one included. The oldest of the others are deleted
        /// when it is finished. Default: 5.
        pub fn keep_in_store(mut self, recordings: usize) -> Self {
            self.common.keep = recordings;
            self
        }

        /// What predicts the values that the program reads. Default: [`Predictor::WINDOW`], a full shadow of its memory.
        pub fn predictor(mut self, predictor: Predictor) -> Self {
            self.common.predictor = predictor;
            self
        }

        /// Instructions between points from which replay can start, of what is checked; 0: only from the beginning.
        /// They are at least 64 instructions apart for each byte of memory that the process has had. Default: 1,000,000,000.
        pub fn keyframe_interval(mut self, instructions: u64) -> Self {
            self.common.keyframe_interval = Some(instructions);
            self
        }

        /// Instructions between digests of all registers, which replay compares; 0: none. Default: 1,000,000.
        pub fn digest_interval(mut self, instructions: u64) -> Self {
            self.common.digest_interval = instructions;
            self
        }

        /// Of threads that are checked: the most bytes that the kernel wrote in a system call that are recorded. What is
        /// behind them is recorded where the program reads it. Default: 131,072; in a ring, or with a smaller predictor than the
        /// window, 4096.
        pub fn data_limit(mut self, bytes: u64) -> Self {
            self.common.data_limit = Some(bytes);
            self
        }

        /// What becomes of processes that the program makes. Default: they are recorded.
        pub fn children(mut self, which: $crate::Children) -> Self {
            self.common.children = which;
            self
        }

        /// Has `tell` called when something happens that a user may want to know, from threads and processes of this
        /// library. Default: nobody is told.
        pub fn on_notice(mut self, tell: impl Fn(&$crate::Notice) + Send + Sync + 'static) -> Self {
            self.common.tell = std::sync::Arc::new(tell);
            self
        }
    };
}
pub(crate) use common_setters;
