//! Registers that the translation of an instruction borrows from the guest.

use crate::regs::{self, CNT, RSP, RegisterSet, SCR};
use crate::translator::Translator;
use hindsight_isa::ctx::d;
use iced_x86::Instruction;

/// Order in which registers are borrowed. Registers that can stand beside AH, BH, CH and DH come
/// first. rcx is last, because checks use it.
const VICTIMS: [u8; 13] = [3, 5, 6, 7, 0, 2, 8, 9, 12, 13, 14, 15, 1];

impl Translator {
    /// Gives borrowed registers back: behind an instruction, and before leaving the block.
    pub(crate) fn release(&mut self) {
        for k in self.cur.released..self.cur.nvictims {
            let v = self.cur.victims[k];
            self.a.unspill(v, d::SPILL + 8 * k as i32);
        }
        self.cur.released = self.cur.nvictims;
    }

    /// Runs `body` with the guest's r10 and r11, where `i` names them, in other registers.
    pub(crate) fn renamed(
        &mut self,
        i: &Instruction,
        written: RegisterSet,
        needs_scratch: bool,
        body: impl FnOnce(&mut Self, &Instruction),
    ) {
        let mut i = *i;
        let mut loans = [(0u8, 0u8); 2];
        let mut n = 0;
        if needs_scratch {
            self.cur.scr_taken = true;
        }
        for reg in [SCR, CNT] {
            if !self.cur.used.has(reg) {
                continue;
            }
            let to = self.scratch();
            if to == SCR {
                self.cur.scr_live = true;
            }
            self.a.unspill(to, d::GPR + 8 * reg as i32);
            loans[n] = (reg, to);
            n += 1;
        }
        // r10 may itself be a loan, but not the second of two.
        let clash = n == 2 && loans[1].1 == SCR;
        debug_assert!(!clash);
        for (from, to) in &loans[..n] {
            regs::rename(&mut i, *from, *to);
        }
        if needs_scratch {
            self.cur.scr_taken = false;
        }
        body(self, &i);
        for (reg, to) in &loans[..n] {
            if written.has(*reg) {
                self.a.spill(d::GPR + 8 * *reg as i32, *to);
            }
        }
    }

    /// A register for temporary use: the scratch register if it is free, else a borrowed one.
    pub(crate) fn scratch(&mut self) -> u8 {
        if !self.cur.scr_taken && !self.cur.low_only {
            self.cur.scr_taken = true;
            return SCR;
        }
        self.borrow_reg()
    }

    /// Borrows a register other than the scratch register.
    pub(crate) fn borrow_reg(&mut self) -> u8 {
        let taken = self.cur.used;
        let v = VICTIMS
            .into_iter()
            .find(|v| !taken.has(*v) && *v != RSP)
            .unwrap_or(15);
        debug_assert!(!taken.has(v));
        self.borrow_this(v);
        v
    }

    /// Borrows register `v` itself, even if the instruction uses it. Returns its slot.
    pub(crate) fn borrow_this(&mut self, v: u8) -> i32 {
        let k = self.cur.nvictims;
        let slot = d::SPILL + 8 * k as i32;
        self.a.spill(slot, v);
        self.cur.victims[k] = v;
        self.cur.nvictims = k + 1;
        self.cur.used.add(v);
        self.map_spills();
        slot
    }
}
