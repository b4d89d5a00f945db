//! Translates one block: decoding, segments, and what surrounds each instruction.

use crate::asm::{self, Asm, BlockOffset};
use crate::fuse::FusedReads;
use crate::plan::{Plan, plan};
use crate::redo::Redo;
use crate::regs::{self, RCX, RegisterSet, SCR, number};
use crate::together::Together;
use crate::{Block, Error, Input, MapEntry, Mode, Policy, flags, watch};
use alloc::vec::Vec;
use hindsight_isa::ctx::d;
use hindsight_isa::{Desc, DescKind, LazyFlags, desc::raise};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// Most instructions of one block.
const MAX_INSTRS: usize = 64;
/// Most branches of one block.
const MAX_BRANCHES: usize = 6;

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
    /// Guest addresses, ascending. A block may begin at one, but does not go past it: the runtime
    /// wants to be asked there.
    pub breaks: Vec<u64>,
    /// Guest addresses of instructions whose translation the code check refused. When execution
    /// reaches one, the runtime is told that it is not supported.
    pub refused: Vec<u64>,
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
            breaks: Vec::new(),
            refused: Vec::new(),
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

    /// Translates one block into [`Translator::block`].
    ///
    /// `peek` returns the code bytes at a guest address to which the block may jump, or none if
    /// they are not known. They serve only to find out which flags are needed there.
    pub fn translate<'a>(
        &mut self,
        input: &Input,
        peek: &mut dyn FnMut(u64) -> &'a [u8],
    ) -> Result<(), Error> {
        self.alone = self.replay() && input.max_instrs == 1;
        self.decode(input)?;
        self.liveness(input, peek);
        self.a.clear();
        self.cur = Cur::default();
        self.redo = None;
        self.together = Together::default();
        self.block.map.clear();
        if input.self_check {
            self.self_check(input);
        }
        let instrs = core::mem::take(&mut self.instrs);
        self.fused_reads = match self.checked() {
            true => self.find_fused_reads(input.pc, &instrs),
            false => FusedReads::default(),
        };
        let mut start = 0;
        self.covered = 0;
        while start < instrs.len() {
            let end = instrs[start..]
                .iter()
                .position(ends_segment)
                .map_or(instrs.len(), |n| start + n + 1);
            self.segment(input, &instrs, start, end);
            start = end;
        }
        let last = instrs[instrs.len() - 1];
        self.block.instrs = instrs.len() as u32;
        self.block.src_len = (last.next_ip() - input.pc) as u32;
        if !ends_block(&last) || sets_segment_base(&last) {
            self.exit_to(&[0xe9], last.next_ip());
        }
        self.early_exits();
        self.instrs = instrs;
        core::mem::swap(&mut self.block.hot, &mut self.a.hot);
        core::mem::swap(&mut self.block.cold, &mut self.a.cold);
        core::mem::swap(&mut self.block.fixups, &mut self.a.fixups);
        core::mem::swap(&mut self.block.moving, &mut self.a.moving);
        self.block.bound = self.a.bound;
        Ok(())
    }

    /// Resolves the references inside the block. `hot` and `cold` are the host addresses to which
    /// [`Block::hot`] and [`Block::cold`] will be copied. `base` is the code cache's base: below
    /// both, all within 2 GiB.
    pub fn relocate(&mut self, hot: u64, cold: u64, base: u64) {
        let b = &mut self.block;
        asm::resolve(&mut b.hot, &mut b.cold, &b.fixups, hot, cold, base);
    }

    fn decode(&mut self, input: &Input) -> Result<(), Error> {
        self.instrs.clear();
        let mut decoder = Decoder::with_ip(64, input.code, input.pc, DecoderOptions::NONE);
        let limit = (input.max_instrs as usize).clamp(1, MAX_INSTRS);
        let mut branches = 0;
        while self.instrs.len() < limit && decoder.can_decode() {
            if !self.instrs.is_empty() && self.breaks.binary_search(&decoder.ip()).is_ok() {
                break;
            }
            let i = decoder.decode();
            if i.is_invalid() && decoder.last_error() == iced_x86::DecoderError::NoMoreBytes {
                break;
            }
            let special =
                self.atomics && watch::is_atomic(&i) || self.watch.is_some() && self.is_opaque(&i);
            if special {
                if let Err(at) = self.breaks.binary_search(&i.ip()) {
                    self.breaks.insert(at, i.ip());
                }
                if !self.instrs.is_empty() {
                    break;
                }
            }
            self.instrs.push(i);
            branches += ends_segment(&i) as usize;
            if ends_block(&i) || branches == MAX_BRANCHES {
                break;
            }
            if input.self_check && self.writes_memory(&i) {
                break;
            }
        }
        if self.instrs.is_empty() {
            Err(Error::Truncated)
        } else {
            Ok(())
        }
    }

    fn writes_memory(&mut self, i: &Instruction) -> bool {
        let info = self.info.info(i);
        let p = plan(i, info);
        matches!(p, Plan::Slow | Plan::PreStore(_) | Plan::Branch)
            || info.used_memory().iter().any(|m| {
                !matches!(
                    m.access(),
                    OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
                )
            })
    }

    fn segment(&mut self, input: &Input, instrs: &[Instruction], start: usize, end: usize) {
        let n = (end - start) as u16;
        let first = &instrs[start];
        let live = match self.changing {
            true => flags::ALL,
            false => flags::before(first, self.needed[start]),
        };
        if self.want_map {
            self.map_entry(first.ip(), 0);
        }
        match self.policy.mode {
            Mode::Replay => {
                if start == self.covered {
                    self.cover(instrs, end);
                    if self.observe && self.watch.is_none() {
                        self.marks_together(instrs, start, self.covered);
                    }
                    self.budget(first.ip(), (self.covered - start) as u16, live);
                }
                if self.count {
                    self.add_counts(&instrs[start..end]);
                }
            }
            // The runtime makes a block unreachable by writing a jump over this first instruction.
            _ if start == 0 => asm::count_wide(&mut self.a, n as i32),
            _ => asm::count(&mut self.a, n as i32),
        }
        for (k, i) in instrs.iter().enumerate().take(end).skip(start) {
            let ahead = (end.max(self.covered) - k) as u16;
            if k == self.lazy_from {
                if self.want_map {
                    self.map_entry(i.ip(), ahead);
                }
                self.store_flags();
            }
            let mut bytes = [0; 15];
            let off = (i.ip() - input.pc) as usize;
            bytes[..i.len()].copy_from_slice(&input.code[off..off + i.len()]);
            let after = self.needed[k];
            self.cur = Cur {
                lazy_flags: (k >= self.lazy_from).then_some(self.lazy_flags),
                pc: i.ip(),
                index: k,
                len: i.len() as u8,
                ahead,
                bytes,
                before: flags::before(i, after),
                after,
                ..Cur::default()
            };
            if self.want_map {
                self.map_entry(i.ip(), ahead);
                if let Some(e) = self.block.map.last_mut() {
                    e.fused = self.fused_reads.leads(k);
                }
            }
            self.instr(i);
        }
    }

    fn map_entry(&mut self, pc: u64, ahead: u16) {
        self.block.map.push(MapEntry {
            hot: self.a.hot.len() as u32,
            cold: self.a.cold.len() as u32,
            pc,
            begins: true,
            ahead,
            lazy_flags: self.cur.lazy_flags,
            fused: false,
            spilled: [0xff; 9],
        });
    }

    /// Adds a map entry: from here on, the guest's registers are where [`Cur`] says.
    pub(crate) fn map_spills(&mut self) {
        if !self.want_map || self.a.here().cold {
            return;
        }
        self.map_entry(self.cur.pc, self.cur.ahead);
        let n = self.cur.nvictims;
        if let Some(e) = self.block.map.last_mut() {
            e.begins = false;
            e.fused = self.fused_reads.leads(self.cur.index);
            e.spilled[..n].copy_from_slice(&self.cur.victims[..n]);
            if self.cur.rcx_checks {
                // This slot follows those of the temporaries. It is `slot::CHECK`.
                e.spilled[8] = RCX;
            }
        }
    }

    /// Chooses and applies the template of one instruction.
    fn instr(&mut self, i: &Instruction) {
        let i = &Self::plain_form(i);
        let (p, used, written) = {
            let info = self.info.info(i);
            let (mut used, mut written) = (RegisterSet::default(), RegisterSet::default());
            for r in info.used_registers() {
                if let Some(n) = number(r.register()) {
                    used.add(n);
                    if !matches!(
                        r.access(),
                        OpAccess::Read
                            | OpAccess::CondRead
                            | OpAccess::None
                            | OpAccess::NoMemAccess
                    ) {
                        written.add(n);
                    }
                }
            }
            (plan(i, info), used, written)
        };
        self.cur.used = used;
        self.cur.written = written;
        self.cur.low_only = (0..i.op_count())
            .any(|n| i.op_kind(n) == OpKind::Register && regs::is_high_byte(i.op_register(n)));
        if self.refused.contains(&i.ip()) {
            self.unsupported();
            return self.redo_after(i, written);
        }
        let savepoint = self.a.savepoint();
        if self.observe && self.replay() {
            self.observe(i);
        }
        if let Some(table) = self.watch {
            self.watch_stores(i, table);
        }
        if self.policy.wide_checks && names_wide(i) {
            // Loads the guest's zmm31 and k7 for this instruction. Its own checks do without these
            // registers.
            self.load_wide();
            self.policy.wide_checks = false;
            self.template(p, i, written);
            self.policy.wide_checks = true;
            self.store_wide();
        } else {
            self.template(p, i, written);
        }
        if self.a.failed {
            // Some form of the instruction has no encoding. The runtime is told only if execution
            // reaches it.
            self.a.rewind(savepoint);
            while self.block.map.pop_if(|e| !e.begins).is_some() {}
            self.unsupported();
            return;
        }
        self.release();
        self.redo_after(i, written);
    }

    /// Emits `opcode rel32` to the translation of `pc`. Until it is linked, the jump leads to a
    /// stub that asks the runtime.
    pub(crate) fn exit_to(&mut self, opcode: &[u8], pc: u64) {
        // The displacement is patched while other threads may execute the jump. So it must not
        // cross a multiple of eight bytes. Blocks are placed at such multiples.
        let at = self.a.hot.len() + opcode.len();
        match at % 8 {
            5 => self.a.bytes(&[0x0f, 0x1f, 0x00]),
            6 => self.a.bytes(&[0x66, 0x90]),
            7 => self.a.bytes(&[0x90]),
            _ => {}
        }
        let jump = self.a.jump_later(opcode);
        self.exit_stub(jump, pc);
    }

    /// Emits the stub of a direct exit whose jump has been emitted.
    pub(crate) fn exit_stub(&mut self, jump: usize, pc: u64) {
        let patch = self.a.fixups[jump].at;
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(jump, here);
        let exit = self.a.exit();
        self.a
            .desc(exit, &Desc::new(DescKind::Exit, pc, 0), None, Some(patch));
        self.a.cold(false);
    }

    /// Leaves for the runtime. With `resume`, execution can continue behind this.
    pub(crate) fn runtime(&mut self, kind: DescKind, size: u8, resume: bool) {
        let jump = self.a.jump_later(&[0xe9]);
        let back = self.a.here();
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(jump, here);
        let exit = self.a.exit();
        let mut desc = Desc::new(kind, self.cur.pc, self.cur.ahead);
        desc.size = size;
        desc.ilen = self.cur.len;
        desc.bytes = self.cur.bytes;
        self.a.desc(exit, &desc, resume.then_some(back), None);
        self.a.cold(false);
    }

    /// Asks the runtime to look at the whole instruction while some registers are borrowed. Only in
    /// the cold half.
    ///
    /// The runtime sees the guest's values. When execution continues at `back`, the borrowed
    /// registers have their present values again.
    pub(crate) fn around_runtime(&mut self, kind: DescKind, back: BlockOffset) {
        let (n, scr_live) = (self.cur.nvictims, self.cur.scr_live || self.cur.scr_taken);
        if scr_live {
            self.a.spill(slot::STUB, SCR);
        }
        for k in 0..n {
            let v = self.cur.victims[k];
            self.a.spill(slot::LENT + 8 * k as i32, v);
            self.a.unspill(v, d::SPILL + 8 * k as i32);
        }
        let exit = self.a.exit();
        let mut desc = Desc::new(kind, self.cur.pc, self.cur.ahead);
        desc.ilen = self.cur.len;
        desc.bytes = self.cur.bytes;
        let at = self.a.here();
        self.a.desc(exit, &desc, None, None);
        let resume = self.a.here();
        self.a.desc_resume(at, resume);
        for k in 0..n {
            let v = self.cur.victims[k];
            self.a.unspill(v, slot::LENT + 8 * k as i32);
        }
        if scr_live {
            self.a.unspill(SCR, slot::STUB);
        }
        self.a.jump(&[0xe9], back);
    }

    /// Tells the runtime that the instruction cannot be translated in this form.
    pub(crate) fn unsupported(&mut self) {
        self.runtime(DescKind::Raise, raise::UNSUPPORTED, false);
    }
}

/// Whether `i` ends a segment: conditional branches, and everything that ends a block.
pub(crate) fn ends_segment(i: &Instruction) -> bool {
    i.flow_control() == FlowControl::ConditionalBranch || ends_block(i)
}

/// Whether nothing behind `i` belongs to its block.
fn ends_block(i: &Instruction) -> bool {
    !matches!(
        i.flow_control(),
        FlowControl::Next | FlowControl::ConditionalBranch
    ) || i.is_invalid()
        || i.is_privileged()
        || sets_segment_base(i)
}

/// Whether `i` changes a segment's base. Operands behind it are then elsewhere, so the block ends.
fn sets_segment_base(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Wrfsbase | Mnemonic::Wrgsbase)
}

/// Whether `i` uses zmm31, a part of it, or k7.
pub(crate) fn names_wide(i: &Instruction) -> bool {
    use iced_x86::Mnemonic::*;
    if matches!(i.mnemonic(), Xrstor | Xrstor64) {
        return true;
    }
    let wide = |r: Register| {
        matches!(
            r,
            Register::XMM31 | Register::YMM31 | Register::ZMM31 | Register::K7
        )
    };
    wide(i.op_mask())
        || wide(i.memory_index())
        || (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && wide(i.op_register(n)))
}
