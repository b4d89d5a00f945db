//! Translates blocks of guest code to host code, under a policy.
//!
//! The guest's registers stay in the same host registers, except two. r11 counts instructions, r10
//! is scratch. The guest's values of both are in the context block ([`hindsight_isa::Ctx::gpr`]).
//! Each segment of a block begins by adding its length to the counter. A segment goes up to and
//! including a branch.
//!
//! - [`Mode::Record`]: guest memory is real. Every read is compared with its cell, and every write
//!   is repeated to its cell.
//! - [`Mode::Replay`]: every memory operand is its cell. The counter runs up from a negative
//!   budget. A segment that would reach zero is not begun.
//! - [`Mode::Plain`]: guest memory is real, and nothing is recorded.
#![no_std]
extern crate alloc;

mod addresses;
mod asm;
mod atomic;
mod block;
mod borrow;
mod branch;
mod check;
pub mod effective;
mod emit_instead;
mod familiar;
mod file_translation;
mod flags;
mod forms;
mod fuse;
mod fused_reads;
mod instead;
mod kinds;
mod lazy_flags;
mod liveness;
mod mark_groups;
mod masked;
mod observe;
mod operand;
mod operand_reuse;
mod plan;
mod portable;
mod recompute;
mod redo;
mod regs;
mod segment;
mod simple;
mod stack;
mod string;
mod together;
mod translator;
mod vector;
pub mod vsib;
mod watch;

use alloc::vec::Vec;
use asm::{Fixup, Moving};
use hindsight_isa::{LazyFlags, Predictor};

pub use familiar::familiar;
pub use file_translation::{FileBlock, FileTranslation, FileTranslationBuilder};
pub use instead::{keeps_registers, lacks};
pub use plan::{Fate, fate};
pub use portable::Saved;
pub use string::completed;
pub use translator::Translator;
pub use watch::{WATCH_TABLE, is_atomic, watch_indices};

/// What translated code does beside what the guest asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It checks reads and repeats writes to the cells.
    Record,
    /// It uses only the cells, and counts instructions against a budget.
    Replay,
    /// It only counts instructions.
    Plain,
}

/// How to translate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// What translated code does beside what the guest asked for.
    pub mode: Mode,
    /// The geometry of the shadow memory.
    pub predictor: Predictor,
    /// zmm31 and k7 are the translator's, for comparisons of whole vectors. The guest's values of
    /// both are in the context block. Only in recordings, on a host with AVX-512 F, BW, DQ and VL.
    pub wide_checks: bool,
}

/// One block to translate.
pub struct Input<'a> {
    /// Guest address of the block.
    pub pc: u64,
    /// The bytes at `pc`, as many as can be read. If possible, at least 15 more than the block will
    /// need.
    pub code: &'a [u8],
    /// Most instructions to translate, at least 1.
    pub max_instrs: u32,
    /// For code in memory that the program may write. The block compares its source with `code` on
    /// each entry, and ends behind each store.
    pub self_check: bool,
    /// [`Block::peeked`] from an earlier translation of the same block. The result is then the
    /// same, whatever code is at the block's exits now. Empty: look at that code.
    pub peeked: &'a [u8],
}

/// Why a block was not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// `code` has no whole instruction.
    Truncated,
    /// The machine at hand cannot execute the first instruction ([`Translator::lacking`]).
    Lacking,
}

/// A translated block, before it is placed.
#[derive(Default)]
pub struct Block {
    /// Host code of what runs usually. Execution enters at its start.
    pub hot: Vec<u8>,
    /// Stubs and descriptors.
    pub cold: Vec<u8>,
    /// Number of guest instructions.
    pub instrs: u32,
    /// Number of guest bytes that were translated, from `pc` on.
    pub src_len: u32,
    /// The flags found to be needed at the block's exits, in the order in which they were looked
    /// up.
    pub peeked: Vec<u8>,
    /// Where the translator looked to find them, outside the block's own code.
    pub looks: Vec<Lookahead>,
    /// The bytes that it saw there, one look's after the other's.
    pub looked: Vec<u8>,
    /// The block's code may need some flags on entry.
    pub takes_flags: bool,
    fixups: Vec<Fixup>,
    moving: Vec<Moving>,
    /// The block serves only at the address where it was translated.
    bound: bool,
    /// Where guest instructions begin in the host code. Filled if [`Translator::want_map`] is set.
    pub map: Vec<MapEntry>,
}

/// A look at the code behind an exit of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookahead {
    /// Where it looked, in bytes from the block's start.
    pub distance: i64,
    /// Number of bytes it looked at.
    pub len: u8,
}

/// One guest instruction, or the rest of one, in the hot half of a block.
#[derive(Clone, Copy, Debug)]
pub struct MapEntry {
    /// Offset in `hot` where its host code begins.
    pub hot: u32,
    /// Offset in `cold` where its stubs begin.
    pub cold: u32,
    /// Guest address of the instruction.
    pub pc: u64,
    /// Whether the instruction begins here. If not, this is a later point of the same instruction,
    /// from which on more of its registers are in the context block.
    pub begins: bool,
    /// Counter minus position while it executes (see [`hindsight_isa::Desc::ahead`]).
    pub ahead: u16,
    /// If the guest's flags are lazy here: how to compute them from `Ctx::flags`.
    pub lazy_flags: Option<LazyFlags>,
    /// The instruction reads more than the guest's ([`Translator::fuse`]). So it may fault where it
    /// must not.
    pub fused: bool,
    /// Guest registers (hardware numbers) whose values are in `Ctx::spill[i]` from here on. 0xff:
    /// none.
    pub spilled: [u8; 9],
}
