//! Reads translated code before it may run. It refuses code that does what it must not do.
//!
//! The translator is meant to emit nothing that reaches beyond its bounds. This crate does not rely on that. It does
//! not know how code is emitted, and has a decoder of its own. It reads each block where it is placed. The block may
//! have been translated just now, or come from a shared cache, a file or a library. What the crate does not know, it
//! refuses:
//!
//! * Every instruction must be on a list ([`allowed`]). Not on it are system calls, privileged and far instructions,
//!   instructions that identify the processor or change segments, and undocumented ones.
//! * A memory operand must have one of a few forms. In a replay it is a cell of the window, or a field of the context
//!   block; each field says whether code may read or write it. An observing replay also has marks, and one look into a
//!   table of watched places. These have exact forms of their own.
//! * A jump leads to an instruction of the block that may be entered, or leaves through a pointer of the context block.
//!   Some instructions rely on what earlier ones did to a register. Then only the first of the sequence may be entered.
//! * Descriptors lie where execution does not come. They name instructions that may be entered, and jumps, of their
//!   block.
//!
//! In a recording the program's own memory operands must be allowed as well. The rest holds there, too.
#![no_std]
#![deny(missing_docs)]
extern crate alloc;

mod allowed;
mod context;
mod decode;
mod facts;
mod operand;
mod part;
mod quick;
mod shapes;
mod sweep;

pub use decode::{Instr, Map, decode, prefix};
pub use sweep::Checker;

use core::fmt;

/// The kind of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Code of a replay.
    Replay,
    /// Code of a recording, with checks.
    Record,
    /// Code of a recording without checks, for what is not recorded.
    Plain,
}

/// What code of a replay notes outside the window. Where that is access marks, it says where marks of writes are
/// ([`hindsight_isa::observe`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marks {
    /// Nothing.
    None,
    /// Beside the window.
    Beside,
    /// At an absolute address.
    Near,
    /// It marks no accesses, but logs which instructions it executes ([`hindsight_isa::runs`]).
    Runs,
}

/// The rules for code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The kind of code.
    pub kind: Kind,
    /// The size of the predictor: the window has 2^bits cells.
    pub bits: u8,
    /// What it notes. For code of a replay only.
    pub marks: Marks,
    /// In a replay: the address of the table of watched places, which code may read. It has 2^32 bytes.
    pub watch: Option<u64>,
}

/// The code of a block, as it will be executed.
#[derive(Clone, Copy)]
pub struct Code<'a> {
    /// The hot half. It is entered at its start.
    pub hot: &'a [u8],
    /// The cold half, with the descriptors.
    pub cold: &'a [u8],
    /// Where the hot half will be, relative to the base of the code cache.
    pub hot_at: u32,
    /// The same for the cold half.
    pub cold_at: u32,
}

/// What is wrong with an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// It is not on the list, or has an unusual encoding.
    Instruction,
    /// It has a memory operand that is not allowed.
    Operand,
    /// It jumps to a place where it must not.
    Jump,
    /// Execution would continue after it, in bytes that are not code.
    End,
    /// It is a descriptor that says what it must not say, or names one.
    Descriptor,
}

/// Why a block must not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What is wrong.
    pub what: Wrong,
    /// The instruction is in the cold half.
    pub cold: bool,
    /// Its offset in that half.
    pub at: u32,
    bytes: [u8; 15],
    len: u8,
}

impl Refusal {
    pub(crate) fn new(what: Wrong, cold: bool, at: usize, part: &[u8]) -> Refusal {
        let rest = part.get(at..).unwrap_or_default();
        let len = decode::decode(rest).map_or(rest.len().min(15), |i| i.len as usize);
        let mut bytes = [0; 15];
        bytes[..len].copy_from_slice(&rest[..len]);
        Refusal {
            what,
            cold,
            at: at as u32,
            bytes,
            len: len as u8,
        }
    }

    /// The instruction's bytes, as far as they are known.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let what = match self.what {
            Wrong::Instruction => "is not an allowed instruction",
            Wrong::Operand => "has a memory operand that is not allowed",
            Wrong::Jump => "leads to where it must not",
            Wrong::End => "has nothing behind it",
            Wrong::Descriptor => "has a descriptor that is not allowed",
        };
        f.write_str("translated code")?;
        for b in self.bytes() {
            write!(f, " {b:02x}")?;
        }
        write!(f, " {what}")
    }
}
