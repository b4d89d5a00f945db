//! The translator: its options, its buffers, and what is known while one instruction is translated.

use crate::asm::Asm;
use crate::fused_reads::FusedReads;
use crate::mark_groups::Together;
use crate::redo::Redo;
use crate::regs::RegisterSet;
use crate::{Block, Mode, Policy, regs};
use alloc::vec::Vec;
use hindsight_isa::ctx::d;
use hindsight_isa::{Lacking, LazyFlags};
use iced_x86::{Instruction, InstructionInfoFactory};

/// Slots of [`hindsight_isa::Ctx::spill`]. The first eight hold the guest's values of borrowed
/// registers.
pub(crate) mod slot {
    use super::d;
    /// The guest's rcx, during a check.
    pub const CHECK: i32 = d::SAVED;
    /// A value that must survive an instruction.
    pub const VALUE: i32 = d::SPILL + 9 * 8;
    /// The scratch register, inside a stub.
    pub const STUB: i32 = d::SPILL + 11 * 8;
    /// Four slots for the present contents of borrowed registers, while the runtime sees the
    /// guest's.
    pub const LENT: i32 = d::SPILL + 12 * 8;
    /// Number of a slot in [`hindsight_isa::Ctx::spill`].
    pub const fn index(slot: i32) -> usize {
        ((slot - d::SPILL) / 8) as usize
    }
}

/// What is known while one instruction is translated.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cur {
    /// Guest address of the instruction.
    pub pc: u64,
    /// Its number in the block.
    pub index: usize,
    /// Its length in bytes.
    pub len: u8,
    /// Instructions counted but not executed before it (see [`hindsight_isa::Desc::ahead`]).
    pub ahead: u16,
    /// Its bytes.
    pub bytes: [u8; 15],
    /// Status flags needed before the instruction.
    pub before: u32,
    /// Status flags needed behind it.
    pub after: u32,
    /// Registers that the instruction uses or that are borrowed.
    pub used: RegisterSet,
    /// Registers that it writes.
    pub written: RegisterSet,
    /// The current check changes flags. They are computed again in this way.
    pub redo: Option<Redo>,
    /// The scratch register is in use.
    pub scr_taken: bool,
    /// The scratch register holds something that a stub must preserve.
    pub scr_live: bool,
    /// The instruction names a high-byte register. So no temporary may need a REX prefix.
    pub low_only: bool,
    /// The guest's flags are in the context block, in this form.
    pub lazy_flags: Option<LazyFlags>,
    /// A check has overwritten rcx. The guest's is in `slot::CHECK`.
    pub rcx_checks: bool,
    /// Registers that are borrowed, in the order of their slots.
    pub victims: [u8; 8],
    /// Number of borrowed registers.
    pub nvictims: usize,
    /// How many of them have been given back already.
    pub released: usize,
}

/// Translates one block at a time. It reuses its buffers.
///
/// ```
/// use hindsight_isa::Predictor;
/// use hindsight_translate::{Input, Mode, Policy, Translator};
///
/// let mut translator = Translator::new(Policy {
///     mode: Mode::Record,
///     predictor: Predictor::WINDOW,
///     wide_checks: false,
/// });
/// // mov rax, [rbx+8]; ret
/// let input = Input {
///     pc: 0x1000,
///     code: &[0x48, 0x8b, 0x43, 0x08, 0xc3],
///     max_instrs: 64,
///     self_check: false,
///     peeked: &[],
/// };
/// translator.translate(&input, &mut |_| &[]).unwrap();
/// assert_eq!(translator.block.instrs, 2);
/// ```
pub struct Translator {
    /// How to translate.
    pub policy: Policy,
    /// Fill [`Block::map`].
    pub want_map: bool,
    /// Replay: the guest's code may change between two segments of a block. So all flags count as
    /// needed at each segment, whatever code is there now.
    pub changing: bool,
    /// Replay: add what each segment that is begun consists of to [`hindsight_isa::Ctx::executed`].
    pub count: bool,
    /// Recording several threads: each atomic operation takes an order number, and a lock that it
    /// holds until it is done ([`DescKind::Sequence`]).
    pub ordered: bool,
    /// Recording: fuse adjacent vector reads of a loop into one comparison (see [`crate::fuse`]). A
    /// fused read may fault where the program does not ([`MapEntry::fused`]). Then the block must
    /// be translated again without this.
    pub fuse: bool,
    /// Replay: mark all memory that is accessed (see [`hindsight_isa::observe`]). The runtime marks
    /// what a few instructions cannot mark ([`DescKind::PreCheck`]). Needs a predictor of 32 bits.
    pub observe: bool,
    /// With `observe`: the map of writes is at [`hindsight_isa::observe::NEAR`].
    pub near: bool,
    /// Replay: log each segment that is executed (see [`hindsight_isa::runs`]). Not together with `observe`.
    pub runs: bool,
    /// Guest addresses, ascending. A block may begin at one, but does not go past it: the runtime
    /// wants to be asked there.
    pub breaks: Vec<u64>,
    /// Guest addresses of instructions whose translation the code check refused. When execution
    /// reaches one, the runtime is told that it is not supported.
    pub refused: Vec<u64>,
    /// Replay: what the machine at hand lacks. Blocks end before an instruction that needs it.
    pub lacking: Lacking,
    /// Replay: every atomic operation begins a block, and is added to `breaks`.
    pub atomics: bool,
    /// Replay: host address of the table of watched memory ([`crate::watch_indices`]).
    ///
    /// - An instruction that may write to watched memory leaves for the runtime before
    ///   ([`DescKind::Watch`]).
    /// - An instruction whose operands do not tell where it writes is added to `breaks`.
    pub watch: Option<u64>,
    /// Replay: the block has one instruction, and leads only to the runtime.
    pub(crate) alone: bool,
    /// Recording: from this instruction on, the guest's flags are lazy (see [`crate::lazy_flags`]).
    pub(crate) lazy_from: usize,
    /// Their form.
    pub(crate) lazy_flags: LazyFlags,
    /// The register that holds their value at first.
    pub(crate) lazy_register: u8,
    /// Recording: how the flags before the current instruction can be computed again.
    pub(crate) redo: Option<Redo>,
    /// Replay: index behind the last instruction that the current budget check covers.
    pub(crate) covered: usize,
    /// Replay: exits in the middle of what a budget check covers. For each: its jump's fixup, the
    /// number of covered instructions that are not executed, and the guest address where it leads.
    pub(crate) early: Vec<(usize, u16, u64)>,
    /// The result of the last [`Translator::translate`].
    pub block: Block,
    pub(crate) a: Asm,
    pub(crate) info: InstructionInfoFactory,
    pub(crate) cur: Cur,
    pub(crate) instrs: Vec<Instruction>,
    pub(crate) needed: Vec<u32>,
    /// With `observe`: which access marks are made together.
    pub(crate) together: Together,
    /// Recording: which reads are fused.
    pub(crate) fused_reads: FusedReads,
}

impl Translator {
    /// A translator for this policy, with all options off but `fuse`.
    pub fn new(policy: Policy) -> Translator {
        Translator {
            policy,
            want_map: false,
            changing: false,
            count: false,
            ordered: false,
            fuse: true,
            observe: false,
            near: false,
            runs: false,
            breaks: Vec::new(),
            refused: Vec::new(),
            lacking: Lacking::default(),
            atomics: false,
            watch: None,
            alone: false,
            lazy_from: usize::MAX,
            lazy_flags: LazyFlags::AX,
            lazy_register: regs::RAX,
            redo: None,
            covered: 0,
            early: Vec::new(),
            block: Block::default(),
            a: Asm::new(),
            info: InstructionInfoFactory::new(),
            cur: Cur::default(),
            instrs: Vec::new(),
            needed: Vec::new(),
            together: Together::default(),
            fused_reads: FusedReads::default(),
        }
    }

    pub(crate) fn replay(&self) -> bool {
        self.policy.mode == Mode::Replay
    }

    pub(crate) fn checked(&self) -> bool {
        self.policy.mode == Mode::Record
    }

    /// The bytes of the current instruction.
    pub(crate) fn code(&self) -> &[u8] {
        &self.cur.bytes[..self.cur.len as usize]
    }
}
