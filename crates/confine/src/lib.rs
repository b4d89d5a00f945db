//! Reads translated code before it may run, and refuses whatever it must not do.
//!
//! The translator is meant to emit nothing that reaches beyond its bounds. This crate does not rely on that: it knows
//! nothing of how code is emitted, has a decoder of its own, and reads each block as it is placed, whether it was
//! translated just now or comes from a shared cache, a file or a library. What it does not know, it refuses:
//!
//! * Instructions are on a list ([`allowed`]). System calls, privileged and far instructions, those that ask the
//!   processor or change segments, and whatever nobody has documented are not.
//! * A memory operand has one of few forms. In replay: a cell of the window, or a named place of the context block,
//!   where each field says whether translated code may read or write it. Marks of an observing replay, and the one
//!   look into a table of watched places, have exact forms of their own.
//! * A jump leads to an instruction of the block that may be entered, or leaves through the context block's
//!   pointers. Where an instruction relies on what those before it have done to a register, none of them but the
//!   first may be entered.
//! * Descriptors lie where execution does not come, and name such instructions, and jumps, of their block.
//!
//! In a recording the program's own memory operands are allowed, as they have to be; the rest holds.
#![no_std]
extern crate alloc;

mod allowed;
mod context;
mod decode;
mod facts;
mod operand;
mod quick;
mod shapes;
mod sweep;

pub use decode::{Instr, Map, decode, prefix};
pub use sweep::Checker;

use core::fmt;

/// What kind of code it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Replay,
    Record,
    Plain,
}

/// Where an observing replay marks writes ([`hindsight_isa::observe`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marks {
    None,
    /// Beside the window.
    Beside,
    /// At an absolute address.
    Near,
}

/// What code may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub kind: Kind,
    /// Of the predictor: the window has 2^bits cells.
    pub bits: u8,
    pub marks: Marks,
    /// Replay: address of the table of watched places, of 2^32 bytes, which may be read.
    pub watch: Option<u64>,
}

/// Code as it will be executed.
#[derive(Clone, Copy)]
pub struct Code<'a> {
    /// Entered at its start.
    pub hot: &'a [u8],
    /// With the descriptors.
    pub cold: &'a [u8],
    /// Where the two parts will be, from the code cache's base.
    pub hot_at: u32,
    pub cold_at: u32,
}

/// What is wrong with an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// It is not on the list, or not written in the usual way.
    Instruction,
    /// Its memory operand is none of the allowed ones.
    Operand,
    /// It jumps to where it must not.
    Jump,
    /// Execution would go past it to what is not code.
    End,
    /// It is a descriptor, or names one, that says what it must not say.
    Descriptor,
}

/// A block that must not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub what: Wrong,
    /// In the cold part.
    pub cold: bool,
    /// Offset in its part.
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
