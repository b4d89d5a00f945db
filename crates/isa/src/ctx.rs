//! The per-thread context block: memory that translated code reaches as `gs:[negative]`.
//!
//! The GS base of a thread that runs translated code is the first byte of its predictor window.
//! [`Ctx`] lies directly below it, in the [`CTX_SIZE`] bytes that end where the window begins.

use crate::targets::Targets;
use core::mem::offset_of;

/// Bytes reserved for [`Ctx`] below the window.
pub const CTX_SIZE: usize = 7 << 20;

/// What translated code has executed, where it counts.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Executed {
    /// Memory operands that were read; string instructions not counted.
    pub reads: u64,
    /// The same written.
    pub writes: u64,
    /// Segments: instructions up to and including a branch.
    pub segments: u64,
    /// Indirect jumps and calls, and returns.
    pub indirect: u64,
}

/// Hardware number of the general purpose register that holds the instruction counter in
/// translated code (r11). The guest's own value lives in [`Ctx::gpr`].
pub const CNT_REG: usize = 11;

/// Hardware number of the register translated code uses as scratch (r10). The guest's own value
/// lives in [`Ctx::gpr`].
pub const SCR_REG: usize = 10;

/// Context block of one thread. Registers are in hardware order: rax, rcx, rdx, rbx, rsp, rbp,
/// rsi, rdi, r8 to r15.
#[repr(C, align(64))]
pub struct Ctx {
    /// Guest general purpose registers. While translated code runs only the entries of
    /// [`CNT_REG`] and [`SCR_REG`] are current.
    pub gpr: [u64; 16],
    /// Guest instruction pointer, where an exit defines one.
    pub rip: u64,
    /// Guest RFLAGS, current outside translated code.
    pub rflags: u64,
    /// Guest FS base.
    pub fs_base: u64,
    /// Guest GS base as the guest believes it to be (the real one is the window's).
    pub gs_base: u64,
    /// Instruction counter outside translated code. Recording: number of instructions begun,
    /// in whole segments. Replay: position minus limit minus one.
    pub count: u64,
    /// Host address at which to enter translated code.
    pub resume: u64,
    /// Offset from the code cache's base of the [`crate::Desc`] of the last exit.
    pub desc: u64,
    /// Effective address handed to the runtime by a stub.
    pub ea: u64,
    /// Address of the 32-bit lock word that an atomic operation in progress holds (it is stored 0 to
    /// release it), or 0.
    pub stripe: u64,
    /// Bytes that it covers.
    pub size: u64,
    /// Address of the trampoline that finds an atomic operation its place in the order.
    pub order_ptr: u64,
    /// What that trampoline needs: address of the first lock word, what a held one says, address of
    /// the counter of sequence numbers, address of the thread's pen (`hindsight_events::Pen`).
    pub stripes: u64,
    pub owner: u64,
    pub sequence: u64,
    pub pen: u64,
    /// Guest registers in that trampoline: rax, status flags, rcx, rdx.
    pub order_save: [u64; 4],
    /// Value handed to the runtime by a stub.
    pub value: u64,
    /// Host stack pointer while translated code runs; 0 otherwise.
    pub host_rsp: u64,
    /// Address of the exit trampoline.
    pub exit_ptr: u64,
    /// Predictor cells minus one (used when the predictor is not a power of 2^16).
    pub cell_mask: u64,
    /// What has been executed so far, where the translator counts it.
    pub executed: Executed,
    /// The runtime's own per-thread data; in replay the FS base that it has outside translated code.
    pub runtime: u64,
    /// Saved guest registers of the instruction being executed (see the translator).
    pub spill: [u64; 16],
    /// Room for one operand of up to 64 bytes.
    pub scratch: [u8; 64],
    /// The guest's zmm31 and k7 where those registers are the recorder's (see the translator).
    pub zmm31: [u8; 64],
    pub k7: u64,
    /// Guest xmm0 to xmm15 outside translated code (low 128 bits only).
    pub xmm: [[u8; 16]; 16],
    /// Guest status flags that translated code has put away: see [`crate::kept`].
    pub flags: u64,
    /// Addresses of the code that looks into the other places of a target, for each of `targets`, and
    /// ([`SEARCH_KEPT`]) for the first of them with the guest's flags in `flags`.
    pub search_ptr: [u64; 3],
    /// Targets of indirect branches: of code that records or replays, and of plain code.
    pub targets: [Targets; 2],
}

const _: () = assert!(size_of::<Ctx>() <= CTX_SIZE);

/// Index in [`Ctx::search_ptr`].
pub const SEARCH_KEPT: usize = 2;

/// Displacement from the GS base of byte `offset` of [`Ctx`].
pub const fn disp(offset: usize) -> i32 {
    offset as i32 - CTX_SIZE as i32 - APART
}

/// How far the GS base is above the first cell; displacements of cells make up for it, so that they are others than those of
/// what the cells stand for. A processor that guesses by base, index and displacement, without the segment, that a load
/// takes what a store before it has written (AMD's since Zen 2) would otherwise take what was written to the cell just after the
/// memory, and be wrong. Few accesses have a distance of 21 from another by the same register.
///
/// The first cells are so found behind the last ones, where they are mapped again ([`crate::predictor::ALIAS`]).
pub const APART: i32 = 21;

/// Displacements of the fields, for code generators.
pub mod d {
    use super::*;
    pub const GPR: i32 = disp(offset_of!(Ctx, gpr));
    pub const RIP: i32 = disp(offset_of!(Ctx, rip));
    pub const RFLAGS: i32 = disp(offset_of!(Ctx, rflags));
    pub const FS_BASE: i32 = disp(offset_of!(Ctx, fs_base));
    pub const GS_BASE: i32 = disp(offset_of!(Ctx, gs_base));
    pub const COUNT: i32 = disp(offset_of!(Ctx, count));
    pub const RESUME: i32 = disp(offset_of!(Ctx, resume));
    pub const DESC: i32 = disp(offset_of!(Ctx, desc));
    pub const EA: i32 = disp(offset_of!(Ctx, ea));
    pub const STRIPE: i32 = disp(offset_of!(Ctx, stripe));
    pub const SIZE: i32 = disp(offset_of!(Ctx, size));
    pub const ORDER_PTR: i32 = disp(offset_of!(Ctx, order_ptr));
    pub const STRIPES: i32 = disp(offset_of!(Ctx, stripes));
    pub const OWNER: i32 = disp(offset_of!(Ctx, owner));
    pub const SEQUENCE: i32 = disp(offset_of!(Ctx, sequence));
    pub const PEN: i32 = disp(offset_of!(Ctx, pen));
    pub const ORDER_SAVE: i32 = disp(offset_of!(Ctx, order_save));
    pub const VALUE: i32 = disp(offset_of!(Ctx, value));
    pub const HOST_RSP: i32 = disp(offset_of!(Ctx, host_rsp));
    pub const EXIT_PTR: i32 = disp(offset_of!(Ctx, exit_ptr));
    pub const CELL_MASK: i32 = disp(offset_of!(Ctx, cell_mask));
    pub const READS: i32 = disp(offset_of!(Ctx, executed.reads));
    pub const WRITES: i32 = disp(offset_of!(Ctx, executed.writes));
    pub const SEGMENTS: i32 = disp(offset_of!(Ctx, executed.segments));
    pub const INDIRECT: i32 = disp(offset_of!(Ctx, executed.indirect));
    pub const RUNTIME: i32 = disp(offset_of!(Ctx, runtime));
    pub const SPILL: i32 = disp(offset_of!(Ctx, spill));
    /// Where rcx waits during checks and searches.
    pub const SAVED: i32 = SPILL + 8 * 8;
    pub const SCRATCH: i32 = disp(offset_of!(Ctx, scratch));
    pub const ZMM31: i32 = disp(offset_of!(Ctx, zmm31));
    pub const K7: i32 = disp(offset_of!(Ctx, k7));
    pub const XMM: i32 = disp(offset_of!(Ctx, xmm));
    pub const FLAGS: i32 = disp(offset_of!(Ctx, flags));
    pub const SEARCH_PTR: i32 = disp(offset_of!(Ctx, search_ptr));
    /// Of one of the two tables of targets.
    pub const fn targets(table: usize) -> i32 {
        disp(offset_of!(Ctx, targets)) + (table * size_of::<Targets>()) as i32
    }
}

/// Numbers of the tables in [`Ctx::targets`].
pub mod table {
    /// Of code that records or replays.
    pub const CHECKED: usize = 0;
    /// Of plain code.
    pub const PLAIN: usize = 1;
}
