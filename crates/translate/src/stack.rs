//! Templates of instructions that use the stack, and `xlat`.

use crate::Mode;
use crate::asm::{based, ctx};
use crate::block::{Translator, slot};
use crate::operand::Mem;
use crate::plan::{Plan, mem_op};
use crate::regs::{RAX, RBP, RSP, SCR, Set, gpr, number};
use hindsight_isa::ctx::d;
use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

impl Translator {
    pub(crate) fn stack_op(&mut self, p: Plan, i: &Instruction, written: Set) {
        let wide = match p {
            Plan::Push | Plan::Pop | Plan::Pushf | Plan::Popf => {
                i.stack_pointer_increment().abs() == 8
            }
            Plan::Enter => i.code() == Code::Enterq_imm16_imm8 && i.immediate8_2nd() == 0,
            Plan::Leave => i.code() == Code::Leaveq,
            _ => {
                i.memory_base() == Register::RBX
                    && !matches!(i.segment_prefix(), Register::FS | Register::GS)
            }
        };
        if !wide {
            // 16-bit stack operations, nested frames, 32-bit xlat: no compiler emits them.
            return self.unsupported();
        }
        match p {
            Plan::Push => self.renamed(i, written, true, |t, i| t.push(i)),
            Plan::Pop if mem_op(i).is_some() || i.op_register(0) == Register::RSP => {
                self.renamed(i, written, true, |t, i| t.pop_other(i))
            }
            Plan::Pop => self.renamed(i, written, false, |t, i| t.pop_reg(i)),
            Plan::Pushf => self.pushf(),
            Plan::Popf => self.popf(),
            Plan::Enter => {
                self.push_reg(RBP);
                self.a.mov(RBP, RSP);
                self.a.lea(RSP, based(RSP, -(i.immediate16() as i32)));
            }
            Plan::Leave => {
                self.cur.scr_taken = true;
                let real = based(RBP, 0);
                let Some(cell) = self.cell_of(&real) else {
                    return self.unsupported();
                };
                self.fetch(
                    SCR,
                    &Mem {
                        real,
                        cell,
                        fixed: None,
                    },
                );
                self.a.lea(RSP, based(RBP, 8));
                self.a.mov(RBP, SCR);
            }
            _ => self.xlat(),
        }
    }

    /// Reads 8 bytes into `s`: from memory, checked, or from the cell in replay.
    pub(crate) fn fetch(&mut self, s: u8, m: &Mem) {
        match self.policy.mode {
            Mode::Replay => self.a.load(s, 8, m.cell),
            Mode::Plain => self.a.load(s, 8, m.real),
            Mode::Record => self.checked_read(s, 8, m, self.cur.before),
        }
    }

    /// Pushes a register other than rsp.
    pub(crate) fn push_reg(&mut self, r: u8) {
        let had = self.cur.scr_taken;
        self.cur.scr_taken |= r == SCR;
        if self.replay() {
            self.a.lea(RSP, based(RSP, -8));
        } else {
            self.a.r(Code::Push_r64, gpr(r, 8));
        }
        if self.policy.mode != Mode::Plain {
            let m = self.stack(0);
            self.a.store(m.cell, r, 8);
        }
        self.cur.scr_taken = had;
    }

    /// Pushes a sign-extended constant.
    pub(crate) fn push_imm(&mut self, v: i32) {
        if self.replay() {
            self.a.lea(RSP, based(RSP, -8));
        } else if let Ok(i) = Instruction::with1(Code::Pushq_imm32, v) {
            self.a.put(&i);
        }
        if self.policy.mode != Mode::Plain {
            let m = self.stack(0);
            if let Ok(i) = Instruction::with2(Code::Mov_rm64_imm32, m.cell, v) {
                self.a.put(&i);
            }
        }
    }

    fn push(&mut self, i: &Instruction) {
        match i.op_kind(0) {
            OpKind::Register => match number(i.op_register(0)) {
                Some(RSP) => {
                    self.a.mov(SCR, RSP);
                    self.push_reg(SCR);
                }
                Some(r) => self.push_reg(r),
                None => self.unsupported(),
            },
            OpKind::Memory => {
                self.cur.scr_taken = true;
                let Some(m) = self.mem(i) else {
                    return self.unsupported();
                };
                self.fetch(SCR, &m);
                self.push_reg(SCR);
            }
            _ => self.push_imm(i.immediate(0) as i32),
        }
    }

    fn pop_reg(&mut self, i: &Instruction) {
        let Some(r) = number(i.op_register(0)) else {
            return self.unsupported();
        };
        if self.replay() {
            let m = self.stack(0);
            self.a.load(r, 8, m.cell);
            self.a.lea(RSP, based(RSP, 8));
            return;
        }
        self.copy(i);
        if self.checked() {
            let m = self.stack(-8);
            let mut c = self.check_begin(self.cur.before);
            self.check_word(&mut c, r, 8, &m);
            self.check_end(c, &m, 8, |t| t.a.load(r, 8, m.cell));
        }
    }

    /// `pop rsp` and `pop [m]`.
    fn pop_other(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        let top = self.stack(0);
        self.fetch(SCR, &top);
        if mem_op(i).is_none() {
            return self.a.mov(RSP, SCR);
        }
        // The address counts from the stack pointer after the pop.
        let mut i = *i;
        if i.memory_base() == Register::RSP {
            i.set_memory_displacement64(i.memory_displacement64().wrapping_add(8));
            i.set_memory_displ_size(8);
        }
        let Some(m) = self.mem(&i) else {
            return self.unsupported();
        };
        if !self.replay() {
            self.a.store(m.real, SCR, 8);
        }
        if self.policy.mode != Mode::Plain {
            self.a.store(m.cell, SCR, 8);
        }
        self.a.lea(RSP, based(RSP, 8));
    }

    fn pushf(&mut self) {
        self.cur.scr_taken = true;
        if !self.replay() {
            self.a.bytes(&[0x9c]);
            self.a.load(SCR, 8, based(RSP, 0));
        } else {
            // The flags can only be had through a stack: the runtime's.
            self.a.spill(slot::VALUE, RSP);
            self.a.load(RSP, 8, ctx(d::HOST_RSP));
            self.a.bytes(&[0x9c]);
            self.a.r(Code::Pop_r64, gpr(SCR, 8));
            self.a.unspill(RSP, slot::VALUE);
            self.a.lea(RSP, based(RSP, -8));
        }
        if self.policy.mode != Mode::Plain {
            let m = self.stack(0);
            self.a.store(m.cell, SCR, 8);
        }
    }

    fn popf(&mut self) {
        self.cur.scr_taken = true;
        let m = self.stack(0);
        self.fetch(SCR, &m);
        if !self.replay() {
            self.a.bytes(&[0x9d]);
            return;
        }
        self.a.lea(RSP, based(RSP, 8));
        self.a.spill(slot::VALUE, RSP);
        self.a.load(RSP, 8, ctx(d::HOST_RSP));
        self.a.r(Code::Push_r64, gpr(SCR, 8));
        self.a.bytes(&[0x9d]);
        self.a.unspill(RSP, slot::VALUE);
    }

    /// `al = [rbx + al]`.
    fn xlat(&mut self) {
        self.cur.scr_taken = true;
        let at = self.borrow_reg();
        self.a.rr(Code::Movzx_r32_rm8, gpr(at, 4), Register::AL);
        self.a.lea(
            at,
            MemoryOperand::with_base_index(gpr(at, 8), Register::RBX),
        );
        let real = based(at, 0);
        let Some(cell) = self.cell_of(&real) else {
            return self.unsupported();
        };
        let m = Mem {
            real,
            cell,
            fixed: None,
        };
        match self.policy.mode {
            Mode::Replay => self.a.load(SCR, 1, cell),
            Mode::Plain => self.a.load(SCR, 1, real),
            Mode::Record => self.checked_read(SCR, 1, &m, self.cur.before),
        }
        self.a.rr(Code::Mov_r8_rm8, gpr(RAX, 1), gpr(SCR, 1));
    }
}
