//! Computes flags again that a check has changed.

use crate::redo::Redo;
use crate::regs::RegisterSet;
use crate::regs::gpr;
use crate::translator::Translator;
use iced_x86::{Code, Instruction};

impl Translator {
    /// Notes the flags behind `i`, which writes the registers `written`.
    pub(crate) fn redo_after(&mut self, i: &Instruction, written: RegisterSet) {
        self.redo = match i.rflags_modified() {
            0 => self.redo.filter(|r| r.survives(written)),
            _ => Redo::of(i),
        };
    }

    /// How a check inside the current instruction can have the flags before it computed again. The
    /// registers that they are computed from must not be written by the instruction, nor be
    /// borrowed.
    pub(crate) fn redo_at_hand(&self) -> Option<Redo> {
        let mut taken = self.cur.written;
        let lent = &self.cur.victims[..self.cur.nvictims];
        lent.iter().for_each(|v| taken.add(*v));
        self.redo.filter(|r| r.survives(taken))
    }

    /// Computes the flags again.
    pub(crate) fn make_again(&mut self, redo: Redo) {
        match redo {
            Redo::Same(i) => self.a.put(&i),
            Redo::Result(r, size) => {
                let code = match size {
                    1 => Code::Test_rm8_r8,
                    2 => Code::Test_rm16_r16,
                    4 => Code::Test_rm32_r32,
                    _ => Code::Test_rm64_r64,
                };
                self.a
                    .rr(code, gpr(r, size as usize), gpr(r, size as usize));
            }
            Redo::Back(i, inverse) => {
                let mut back = i;
                back.set_code(inverse);
                self.a.put(&back);
                self.a.put(&i);
            }
        }
    }
}
