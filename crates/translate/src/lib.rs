//! Translates blocks of guest code to host code under a policy.
//!
//! The guest's registers live in the same host registers, except r10 and r11, which live in the
//! context block ([`hindsight_isa::Ctx::gpr`]): r11 counts instructions, r10 is scratch. Each
//! segment of a block (up to and including a branch) adds its length to the counter first.
//!
//! * [`Mode::Record`]: guest memory is real; every read is compared with the predictor and every
//!   write is repeated to it.
//! * [`Mode::Replay`]: every memory operand is the predictor's cell; the counter runs from a
//!   negative budget and a segment that would pass zero is not begun.
//! * [`Mode::Plain`]: guest memory is real and nothing is recorded.
#![no_std]
extern crate alloc;

mod addresses;
mod asm;
mod atomic;
mod block;
mod borrow;
mod branch;
mod check;
mod familiar;
mod flags;
mod forms;
mod held;
mod join;
mod keep;
mod liveness;
mod masked;
mod observe;
mod operand;
mod plan;
mod portable;
mod redo;
mod regs;
mod segment;
mod set;
mod simple;
mod stack;
mod string;
mod together;
mod vector;
pub mod vsib;
mod watch;

use alloc::vec::Vec;
use asm::{Fixup, Moving};
use hindsight_isa::{Kept, Predictor};

pub use block::Translator;
pub use familiar::familiar;
pub use portable::Saved;
pub use set::{Gathered, Member, Set};
pub use string::completed;
pub use watch::{WATCH_TABLE, is_atomic, watch_indices};

/// What translated code does besides what the guest asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Record,
    Replay,
    Plain,
}

/// How to translate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    pub mode: Mode,
    pub predictor: Predictor,
    /// Recording on a host with AVX-512 (F, BW, DQ, VL): zmm31 and k7 are the translator's, for wide
    /// compares; the guest's live in the context block.
    pub wide_checks: bool,
}

/// One block to translate.
pub struct Input<'a> {
    /// Guest address of the block.
    pub pc: u64,
    /// Bytes at `pc`, as many as are readable, at least 15 more than will be needed if possible.
    pub code: &'a [u8],
    /// At most this many instructions (at least 1).
    pub max_instrs: u32,
    /// Compare the code with `code` on each entry, and end the block at each store: for code in
    /// memory that the program may write.
    pub self_check: bool,
    /// What [`Block::peeked`] was when the same block was translated before: makes the result the same
    /// whatever lies at its exits now. Empty: look.
    pub peeked: &'a [u8],
}

/// Why a block was not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// No whole instruction within `code`.
    Truncated,
}

/// A translated block, before placement.
#[derive(Default)]
pub struct Block {
    /// Host code that runs in the usual case; entered at its start.
    pub hot: Vec<u8>,
    /// Stubs and descriptors.
    pub cold: Vec<u8>,
    /// Guest instructions.
    pub instrs: u32,
    /// Guest bytes `pc..pc + src_len` that were translated.
    pub src_len: u32,
    /// Flags found to be needed at the block's exits, in the order in which they were looked at.
    pub peeked: Vec<u8>,
    /// What was looked at to find them, outside the block's own code.
    pub looks: Vec<Look>,
    /// The bytes that were seen there, one look's after the other's.
    pub looked: Vec<u8>,
    /// Some flags may be needed at the block's beginning.
    pub takes_flags: bool,
    fixups: Vec<Fixup>,
    moving: Vec<Moving>,
    /// The block serves only where it was translated.
    bound: bool,
    /// Guest instruction boundaries, filled when [`Translator::want_map`] is set.
    pub map: Vec<MapEntry>,
}

/// Code at an exit of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// From the block's start.
    pub distance: i64,
    /// Bytes that were looked at.
    pub len: u8,
}

/// One guest instruction, or the rest of one, in the hot part of a block.
#[derive(Clone, Copy, Debug)]
pub struct MapEntry {
    /// Offset in `hot` where its host code begins.
    pub hot: u32,
    /// Offset in `cold` where its stubs begin.
    pub cold: u32,
    pub pc: u64,
    /// Whether the instruction begins here; else more of its registers are in the context block
    /// from here on.
    pub begins: bool,
    /// Counter minus position while it executes (see [`hindsight_isa::Desc::ahead`]).
    pub ahead: u16,
    /// Where the guest's flags are in `Ctx::flags`: what stands there.
    pub kept: Option<Kept>,
    /// The instruction reads more than it has to ([`Translator::join`]): it may fault where it must not.
    pub joined: bool,
    /// Guest registers (hardware numbers) whose value is in `Ctx::spill[i]` from here on; 0xff: none.
    pub spilled: [u8; 9],
}
