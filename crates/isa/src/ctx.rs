//! The context block of a thread: memory that translated code reaches as `gs:[negative]`.
//!
//! While a thread runs translated code, its GS base is [`APART`] bytes above the first cell of its
//! window. The context block lies below the window: it begins [`CTX_SIZE`] bytes below the first
//! cell.

use crate::ibl::LookupTable;
use crate::state::High;
use core::mem::offset_of;

/// Bytes reserved for [`Ctx`] below the window.
pub const CTX_SIZE: usize = 7 << 20;

/// How much translated code has executed, where the translator counts it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Executed {
    /// Memory operands that were read. String instructions are not counted.
    pub reads: u64,
    /// Memory operands that were written. String instructions are not counted.
    pub writes: u64,
    /// Segments: straight runs of instructions, each up to and including a branch.
    pub segments: u64,
    /// Indirect jumps, indirect calls and returns.
    pub indirect: u64,
}

/// Hardware number of the register that holds the instruction counter in translated code: r11. The
/// guest's own r11 is in [`Ctx::gpr`].
pub const CNT_REG: usize = 11;

/// Hardware number of the scratch register of translated code: r10. The guest's own r10 is in
/// [`Ctx::gpr`].
pub const SCR_REG: usize = 10;

/// The context block of one thread.
///
/// Registers are in hardware order: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
#[repr(C, align(64))]
pub struct Ctx {
    /// The guest's general purpose registers. While translated code runs, only the entries of
    /// [`CNT_REG`] and [`SCR_REG`] are current.
    pub gpr: [u64; 16],
    /// The guest's instruction pointer. Some kinds of exit set it.
    pub rip: u64,
    /// The guest's RFLAGS. They are current outside translated code.
    pub rflags: u64,
    /// The guest's FS base.
    pub fs_base: u64,
    /// The GS base that the guest believes to have. The real one points to the window.
    pub gs_base: u64,
    /// The instruction counter, outside translated code.
    ///
    /// - Recording: the instructions that were begun, in whole segments.
    /// - Replay: position minus limit minus one. So it is negative until the limit is reached.
    pub count: u64,
    /// Host address at which to enter translated code.
    pub resume: u64,
    /// The last exit's [`crate::Desc`], as an offset from the code cache's base.
    /// [`crate::Desc::NOT_FOUND`] stands for an indirect branch.
    pub desc: u64,
    /// An effective address that a stub hands to the runtime.
    pub ea: u64,
    /// Address of the lock word (32 bits) that an atomic operation holds, or 0. Storing 0 there
    /// releases the lock.
    pub stripe: u64,
    /// Bytes of the atomic operation at `ea`.
    pub size: u64,
    /// Address of the trampoline that gives an atomic operation its order number.
    pub sequence_ptr: u64,
    /// For that trampoline: address of the first lock word.
    pub stripes: u64,
    /// For that trampoline: what a lock word holds while this thread has the lock.
    pub owner: u64,
    /// For that trampoline: address of the counter of order numbers.
    pub sequence: u64,
    /// For that trampoline: address of the thread's `hindsight_events::Pen`.
    pub pen: u64,
    /// Guest registers inside that trampoline: rax, status flags, rcx, rdx.
    pub sequence_save: [u64; 4],
    /// A value that a stub hands to the runtime.
    pub value: u64,
    /// The host's stack pointer while translated code runs, otherwise 0.
    pub host_rsp: u64,
    /// Address of the exit trampoline.
    pub exit_ptr: u64,
    /// The number of cells minus one. Translated code masks addresses with it, unless the predictor
    /// has 2^32 or 2^16 cells.
    pub cell_mask: u64,
    /// How much has been executed, where the translator counts it.
    pub executed: Executed,
    /// The runtime's own data of this thread. In a replay: the FS base outside translated code.
    pub runtime: u64,
    /// Guest registers that the current instruction's code has saved. `hindsight_translate` defines
    /// the slots.
    pub spill: [u64; 16],
    /// Room for one operand of up to 64 bytes.
    pub scratch: [u8; 64],
    /// Vector registers that the current instruction's code has saved, their low 32 bytes.
    pub lent: [[u8; 32]; 3],
    /// Replay: the guest's registers that only AVX-512 has, while translated code runs on a machine without it.
    pub high: High,
    /// The guest's zmm31, where the recorder uses that register itself.
    pub zmm31: [u8; 64],
    /// The guest's k7, where the recorder uses that register itself.
    pub k7: u64,
    /// The low 128 bits of the guest's xmm0 to xmm15, outside translated code.
    pub xmm: [[u8; 16]; 16],
    /// The guest's lazy status flags: see [`crate::lazy_flags`].
    pub flags: u64,
    /// Addresses of the shared code that searches the other entries of an indirect-branch lookup
    /// table.
    ///
    /// - The first two search the table of the same number in `ibl`.
    /// - The third ([`SEARCH_LAZY`]) searches the first table, and restores the guest's flags from
    ///   `flags` before.
    pub search_ptr: [u64; 3],
    /// The indirect-branch lookup tables. [`table`] has their numbers.
    pub ibl: [LookupTable; 2],
}

const _: () = assert!(size_of::<Ctx>() <= CTX_SIZE);

/// Index in [`Ctx::search_ptr`] of the search that restores lazy flags.
pub const SEARCH_LAZY: usize = 2;

/// Displacement from the GS base of the byte at `offset` in [`Ctx`].
pub const fn disp(offset: usize) -> i32 {
    offset as i32 - CTX_SIZE as i32 - APART
}

/// Bytes from the first cell up to the GS base.
///
/// A cell's displacement is smaller by this than that of the memory that the cell stands for. With
/// equal displacements, some processors (AMD's since Zen 2) would be slow. They guess which earlier
/// store a load takes its value from, by base, index and displacement. They leave out the segment.
/// A load of memory would be given the value that was just stored to its cell. The guess is wrong,
/// and the load is repeated. Two accesses by the same register are seldom 21 bytes apart.
///
/// The first cells are thus reached behind the last ones, where they are mapped again
/// ([`crate::predictor::ALIAS`]).
pub const APART: i32 = 21;

/// Displacements from the GS base of the fields of [`Ctx`], for code generators. Each name is that
/// of its field.
pub mod d {
    use super::*;
    /// [`Ctx::gpr`].
    pub const GPR: i32 = disp(offset_of!(Ctx, gpr));
    /// [`Ctx::rip`].
    pub const RIP: i32 = disp(offset_of!(Ctx, rip));
    /// [`Ctx::rflags`].
    pub const RFLAGS: i32 = disp(offset_of!(Ctx, rflags));
    /// [`Ctx::fs_base`].
    pub const FS_BASE: i32 = disp(offset_of!(Ctx, fs_base));
    /// [`Ctx::gs_base`].
    pub const GS_BASE: i32 = disp(offset_of!(Ctx, gs_base));
    /// [`Ctx::count`].
    pub const COUNT: i32 = disp(offset_of!(Ctx, count));
    /// [`Ctx::resume`].
    pub const RESUME: i32 = disp(offset_of!(Ctx, resume));
    /// [`Ctx::desc`].
    pub const DESC: i32 = disp(offset_of!(Ctx, desc));
    /// [`Ctx::ea`].
    pub const EA: i32 = disp(offset_of!(Ctx, ea));
    /// [`Ctx::stripe`].
    pub const STRIPE: i32 = disp(offset_of!(Ctx, stripe));
    /// [`Ctx::size`].
    pub const SIZE: i32 = disp(offset_of!(Ctx, size));
    /// [`Ctx::sequence_ptr`].
    pub const SEQUENCE_PTR: i32 = disp(offset_of!(Ctx, sequence_ptr));
    /// [`Ctx::stripes`].
    pub const STRIPES: i32 = disp(offset_of!(Ctx, stripes));
    /// [`Ctx::owner`].
    pub const OWNER: i32 = disp(offset_of!(Ctx, owner));
    /// [`Ctx::sequence`].
    pub const SEQUENCE: i32 = disp(offset_of!(Ctx, sequence));
    /// [`Ctx::pen`].
    pub const PEN: i32 = disp(offset_of!(Ctx, pen));
    /// [`Ctx::sequence_save`].
    pub const SEQUENCE_SAVE: i32 = disp(offset_of!(Ctx, sequence_save));
    /// [`Ctx::value`].
    pub const VALUE: i32 = disp(offset_of!(Ctx, value));
    /// [`Ctx::host_rsp`].
    pub const HOST_RSP: i32 = disp(offset_of!(Ctx, host_rsp));
    /// [`Ctx::exit_ptr`].
    pub const EXIT_PTR: i32 = disp(offset_of!(Ctx, exit_ptr));
    /// [`Ctx::cell_mask`].
    pub const CELL_MASK: i32 = disp(offset_of!(Ctx, cell_mask));
    /// [`Executed::reads`].
    pub const READS: i32 = disp(offset_of!(Ctx, executed.reads));
    /// [`Executed::writes`].
    pub const WRITES: i32 = disp(offset_of!(Ctx, executed.writes));
    /// [`Executed::segments`].
    pub const SEGMENTS: i32 = disp(offset_of!(Ctx, executed.segments));
    /// [`Executed::indirect`].
    pub const INDIRECT: i32 = disp(offset_of!(Ctx, executed.indirect));
    /// [`Ctx::runtime`].
    pub const RUNTIME: i32 = disp(offset_of!(Ctx, runtime));
    /// [`Ctx::spill`].
    pub const SPILL: i32 = disp(offset_of!(Ctx, spill));
    /// The slot of [`Ctx::spill`] that holds the guest's rcx during checks and searches.
    pub const SAVED: i32 = SPILL + 8 * 8;
    /// [`Ctx::scratch`].
    pub const SCRATCH: i32 = disp(offset_of!(Ctx, scratch));
    /// [`Ctx::lent`].
    pub const LENT: i32 = disp(offset_of!(Ctx, lent));
    /// [`High::zmm`] in [`Ctx::high`].
    pub const HIGH: i32 = disp(offset_of!(Ctx, high.zmm));
    /// [`High::k`] in [`Ctx::high`].
    pub const MASKS: i32 = disp(offset_of!(Ctx, high.k));
    /// [`Ctx::zmm31`].
    pub const ZMM31: i32 = disp(offset_of!(Ctx, zmm31));
    /// [`Ctx::k7`].
    pub const K7: i32 = disp(offset_of!(Ctx, k7));
    /// [`Ctx::xmm`].
    pub const XMM: i32 = disp(offset_of!(Ctx, xmm));
    /// [`Ctx::flags`].
    pub const FLAGS: i32 = disp(offset_of!(Ctx, flags));
    /// [`Ctx::search_ptr`].
    pub const SEARCH_PTR: i32 = disp(offset_of!(Ctx, search_ptr));
    /// [`Ctx::ibl`]: the lookup table of this number (see [`table`]).
    pub const fn ibl(table: usize) -> i32 {
        disp(offset_of!(Ctx, ibl)) + (table * size_of::<LookupTable>()) as i32
    }
}

/// Numbers of the lookup tables in [`Ctx::ibl`].
pub mod table {
    /// Of code that records or replays.
    pub const CHECKED: usize = 0;
    /// Of plain code.
    pub const PLAIN: usize = 1;
}
