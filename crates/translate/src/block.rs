//! Translates one block: decoding, segments, and what surrounds each instruction.

use crate::asm::{self, BlockOffset};
use crate::fused_reads::FusedReads;
use crate::instead::{lacks, way};
use crate::kinds::ends_block;
use crate::kinds::ends_segment;
use crate::kinds::names_wide;
use crate::kinds::sets_segment_base;
use crate::mark_groups::Together;
use crate::plan::{Plan, plan};
use crate::regs::{self, RCX, RegisterSet, SCR, number};
use crate::translator::Cur;
use crate::translator::Translator;
use crate::translator::slot;
use crate::{Error, Input, MapEntry, Mode, flags, watch};
use hindsight_isa::ctx::d;
use hindsight_isa::{Desc, DescKind, desc::raise};
use iced_x86::{Decoder, DecoderOptions, Instruction, OpAccess, OpKind};

/// Most instructions of one block.
const MAX_INSTRS: usize = 64;
/// Most branches of one block.
const MAX_BRANCHES: usize = 6;

impl Translator {
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
            if lacks(&self.lacking, &i) {
                if self.instrs.is_empty() {
                    return Err(Error::Lacking);
                }
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
                if self.runs {
                    self.log_run(first.ip(), n, (self.covered - start) as i32);
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
        if let Some(way) = way(&self.lacking, i) {
            self.renamed(i, written, false, |t, i| t.instead(way, i));
        } else if self.policy.wide_checks && names_wide(i) {
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
    pub(crate) fn around_runtime(&mut self, kind: DescKind, size: u8, back: BlockOffset) {
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
        desc.size = size;
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
