//! Places, and where values come from.

use hindsight_inspect::Line;
use hindsight_inspect::symbols::{CodeLocation, InlineFrame};
use hindsight_timeline::{Position, ThreadId};

/// A place in one recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Point {
    /// Its position.
    pub position: Position,
    /// The thread.
    pub thread: ThreadId,
    /// The instructions that the thread has completed.
    pub count: u64,
    /// The program image.
    pub image: u32,
    /// The address of the instruction.
    pub pc: u64,
    /// What lies there.
    pub location: Option<CodeLocation>,
    /// Functions and source lines there, innermost first.
    pub frames: Vec<InlineFrame>,
    /// The instruction.
    pub instruction: Option<Line>,
}

/// Where a value came from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// A system call wrote it.
    Read {
        /// The call.
        call: String,
        /// Where it was made.
        point: Box<Point>,
        /// What the descriptor leads to.
        file: Option<String>,
        /// Where in the file the value is.
        offset: Option<u64>,
        /// Where it is among the bytes of the call.
        within: Option<u64>,
    },
    /// A system call returned it.
    Result {
        /// The call.
        call: String,
        /// Where it was made.
        point: Box<Point>,
    },
    /// The kernel wrote it for a signal.
    Signal {
        /// Where.
        point: Box<Point>,
    },
    /// An argument of the program.
    Argument {
        /// Its index; 0 is the program's name.
        index: usize,
        /// The argument.
        text: String,
    },
    /// A variable of the environment.
    Variable {
        /// Its name and value.
        text: String,
    },
    /// What the kernel tells a program at its beginning (`argc`, pointers to arguments, the auxiliary vector).
    Start,
    /// Random bytes that the kernel gives a program at its beginning.
    StartRandom,
    /// The content of a mapped file.
    File {
        /// Its path.
        path: String,
        /// Where in the file.
        offset: u64,
    },
    /// Memory that nobody had written to.
    Fresh,
    /// An instruction that asks the processor.
    Processor {
        /// Where.
        point: Box<Point>,
    },
    /// This instruction made it.
    Written {
        /// Where.
        point: Box<Point>,
    },
    /// It is an address: another one in each run.
    Address,
    /// It was not found.
    Unknown,
}
