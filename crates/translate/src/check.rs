//! Checks: the comparison of a value that was read with its cell, and the stub for a misprediction.

use crate::asm::BlockOffset;
use crate::flags;
use crate::operand::Mem;
use crate::regs::{RCX, SCR, gpr};
use crate::translator::{Translator, slot};
use alloc::vec::Vec;
use hindsight_isa::{Desc, DescKind};
use iced_x86::{Code, MemoryOperand};

/// A check that is being emitted.
pub(crate) struct Check {
    /// No flags need to survive the check.
    pub dead: bool,
    /// rcx has been overwritten.
    pub rcx_gone: bool,
    /// Fixups of the jumps that are taken on a misprediction.
    pub misses: Vec<usize>,
}

impl Translator {
    /// Begins a check. `needed` are the flags that must survive it.
    pub(crate) fn check_begin(&mut self, needed: u32) -> Check {
        let dead = needed & flags::ALL == 0;
        if !dead {
            self.a.spill(slot::CHECK, RCX);
        }
        Check {
            dead,
            rcx_gone: false,
            misses: Vec::new(),
        }
    }

    /// Begins a check at which all flags still are as before the current instruction. They survive,
    /// if they are needed. So far the translation may have changed only registers that the
    /// instruction itself changes.
    pub(crate) fn check_before(&mut self) -> Check {
        let needed = self.cur.before;
        if needed & flags::ALL == 0 {
            return self.check_begin(needed);
        }
        self.cur.redo = self.redo_at_hand();
        match self.cur.redo {
            Some(_) => self.check_begin(0),
            None => self.check_begin(needed),
        }
    }

    /// Compares `size` bytes of register `s` with a cell. If flags must survive, `s` must be
    /// zero-extended to 64 bits.
    pub(crate) fn check_word(&mut self, c: &mut Check, s: u8, size: usize, m: &Mem) {
        if c.dead {
            self.a.cmp(s, size, m.cell);
            c.misses.push(self.a.jump_later(&[0x0f, 0x85]));
            return;
        }
        if c.rcx_gone && m.uses(RCX) {
            self.a.unspill(RCX, slot::CHECK);
        }
        // rcx := not cell. Then rcx + s + 1 is zero exactly if both are equal.
        if s == RCX {
            let t = if m.uses(SCR) || self.cur.scr_live {
                self.borrow_reg()
            } else {
                SCR
            };
            self.a.load(t, size, m.cell);
            self.a.r(Code::Not_rm64, gpr(t, 8));
            self.a.lea(
                RCX,
                MemoryOperand::with_base_index_scale_displ_size(gpr(RCX, 8), gpr(t, 8), 1, 1, 1),
            );
        } else {
            self.a.load(RCX, size, m.cell);
            self.a.r(Code::Not_rm64, gpr(RCX, 8));
            self.a.lea(
                RCX,
                MemoryOperand::with_base_index_scale_displ_size(gpr(RCX, 8), gpr(s, 8), 1, 1, 1),
            );
        }
        self.rcx_overwritten(c);
        let same = self.a.short(&[0xe3]);
        c.misses.push(self.a.jump_later(&[0xe9]));
        self.a.land(same);
    }

    /// Ends a check of `size` bytes at `m`. After a misprediction the runtime brings the cells up
    /// to date. Then `reload` loads the value again from them. Execution continues here in both
    /// cases.
    pub(crate) fn check_end(
        &mut self,
        c: Check,
        m: &Mem,
        size: usize,
        reload: impl FnOnce(&mut Self),
    ) {
        if !c.dead {
            self.a.unspill(RCX, slot::CHECK);
            if core::mem::take(&mut self.cur.rcx_checks) {
                self.map_spills();
            }
        }
        let done = self.a.here();
        self.stub(c, m, size, DescKind::Mispredicted, done, |_| {}, reload);
        if let Some(redo) = self.cur.redo.take() {
            self.make_again(redo);
        }
    }

    /// Like [`Translator::check_end`], for a value in register `value` that is no longer in memory.
    pub(crate) fn check_end_value(&mut self, c: Check, m: &Mem, size: usize, value: u8) {
        if !c.dead {
            self.a.unspill(RCX, slot::CHECK);
            if core::mem::take(&mut self.cur.rcx_checks) {
                self.map_spills();
            }
        }
        let done = self.a.here();
        self.stub(
            c,
            m,
            size,
            DescKind::MispredictedValue,
            done,
            |t| t.a.spill(hindsight_isa::ctx::d::VALUE, value),
            |_| {},
        );
    }

    #[allow(clippy::too_many_arguments)]
    fn stub(
        &mut self,
        c: Check,
        m: &Mem,
        size: usize,
        kind: DescKind,
        done: BlockOffset,
        before: impl FnOnce(&mut Self),
        reload: impl FnOnce(&mut Self),
    ) {
        self.a.cold(true);
        let here = self.a.here();
        for f in &c.misses {
            self.a.aim(*f, here);
        }
        if c.rcx_gone {
            self.a.unspill(RCX, slot::CHECK);
        }
        let keep = self.cur.scr_live || m.uses(SCR) || kind == DescKind::MispredictedValue;
        if keep {
            self.a.spill(slot::STUB, SCR);
        }
        before(self);
        match m.fixed {
            Some(at) => self.a.guest_address(SCR, at),
            None => self.a.lea(SCR, m.real),
        }
        self.a.spill(hindsight_isa::ctx::d::EA, SCR);
        let exit = self.a.exit();
        let mut desc = Desc::new(kind, self.cur.pc, self.cur.ahead);
        desc.size = size as u8;
        let at = self.a.here();
        self.a.desc(exit, &desc, None, None);
        let back = self.a.here();
        self.a.desc_resume(at, back);
        if keep {
            self.a.unspill(SCR, slot::STUB);
        }
        reload(self);
        self.a.jump(&[0xe9], done);
        self.a.cold(false);
    }

    /// Reads the first `size` bytes at `m` into `s` and checks them.
    pub(crate) fn checked_read(&mut self, s: u8, size: usize, m: &Mem) {
        self.a.load(s, size, m.real);
        let mut c = self.check_before();
        self.check_word(&mut c, s, size, m);
        let cell = m.cell;
        self.check_end(c, m, size, |t| t.a.load(s, size, cell));
    }

    /// Reads the byte at `m`. Without this, a misprediction in one part of an operand would be
    /// recorded before a later part faults.
    pub(crate) fn emit_probe(&mut self, c: &mut Check, m: &Mem) {
        if c.dead {
            return self.a.cmp(SCR, 1, m.real);
        }
        self.a.load(RCX, 1, m.real);
        self.rcx_overwritten(c);
    }

    fn rcx_overwritten(&mut self, c: &mut Check) {
        c.rcx_gone = true;
        if !self.cur.rcx_checks {
            self.cur.rcx_checks = true;
            self.map_spills();
        }
    }
}
