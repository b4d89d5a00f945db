//! Places, and where values come from.

use crate::place::Place;
use hindsight_inspect::Line;
use hindsight_inspect::symbols::{CodeLocation, InlineFrame};
use hindsight_timeline::{Position, ThreadId};
use std::ops::Range;

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
    /// An instruction computed it.
    Computed {
        /// Where.
        point: Box<Point>,
        /// What it took in.
        from: Vec<Operand>,
    },
    /// An instruction has it in itself, or makes it of nothing.
    Constant {
        /// Where.
        point: Box<Point>,
    },
    /// The thread began with it in a register.
    ThreadStart,
    /// It comes from further back. That was not looked through.
    Further {
        /// Up to where it was followed.
        point: Box<Point>,
    },
    /// This instruction left it, and nobody knows from what.
    Untold {
        /// Where.
        point: Box<Point>,
        /// Why.
        why: String,
    },
    /// It was not found.
    Unknown,
}

impl Origin {
    /// What kind it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Origin::Read { .. } => "read",
            Origin::Result { .. } => "result",
            Origin::Signal { .. } => "signal",
            Origin::Argument { .. } => "argument",
            Origin::Variable { .. } => "variable",
            Origin::Start => "start",
            Origin::StartRandom => "start-random",
            Origin::File { .. } => "file",
            Origin::Fresh => "fresh",
            Origin::Processor { .. } => "processor",
            Origin::Written { .. } => "written",
            Origin::Address => "address",
            Origin::Computed { .. } => "computed",
            Origin::Constant { .. } => "constant",
            Origin::ThreadStart => "thread-start",
            Origin::Further { .. } => "further",
            Origin::Untold { .. } => "untold",
            Origin::Unknown => "unknown",
        }
    }

    /// The instruction or call that made the value, if it is one.
    pub fn point(&self) -> Option<&Point> {
        match self {
            Origin::Read { point, .. }
            | Origin::Result { point, .. }
            | Origin::Signal { point }
            | Origin::Processor { point }
            | Origin::Written { point }
            | Origin::Computed { point, .. }
            | Origin::Constant { point }
            | Origin::Further { point }
            | Origin::Untold { point, .. } => Some(point),
            _ => None,
        }
    }
}

/// Something that an instruction took in.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Operand {
    /// A register, or a place in memory.
    pub name: String,
    /// Its bytes, least significant first. Empty: they are not known.
    pub bytes: Vec<u8>,
}

/// How a value got from one place to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum How {
    /// An instruction copied it.
    Instruction,
    /// A system call took it in, which another one had given out.
    Channel {
        /// The thread that gave it out.
        thread: ThreadId,
        /// The instructions that this thread had completed.
        count: u64,
    },
    /// The kernel saved registers for a signal's handler, or restored them behind it.
    Signal,
    /// The kernel moved the memory (`mremap`).
    Moved,
}

/// An instruction or a call that only handed a value on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Hop {
    /// The thread.
    pub thread: ThreadId,
    /// The instructions that the thread had completed before.
    pub count: u64,
    /// The address of the instruction, or of the one that makes the call.
    pub pc: u64,
    /// How.
    pub how: How,
    /// Where the value was before.
    pub from: Place,
    /// Where it was then.
    pub to: Place,
}

/// Bytes that came the same way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Piece {
    /// Which of the bytes that were asked for.
    pub bytes: Range<usize>,
    /// What they are, as far as that is known.
    pub value: Vec<Option<u8>>,
    /// Where they were at first.
    pub place: Place,
    /// Their way, from the last instruction or call back to the first one.
    pub hops: Vec<Hop>,
    /// Where they came from.
    pub origin: Origin,
}
