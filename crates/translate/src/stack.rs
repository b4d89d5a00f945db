//! Templates of instructions that use the stack, and of `xlat`.

use crate::Mode;
use crate::asm::{based, ctx};
use crate::operand::Mem;
use crate::plan::{Plan, mem_op};
use crate::regs::{RAX, RBP, RSP, RegisterSet, SCR, gpr, number};
use crate::translator::{Translator, slot};
use hindsight_isa::ctx::d;
use hindsight_isa::{Desc, DescKind, desc::raise};
use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

impl Translator {
    pub(crate) fn stack_op(&mut self, p: Plan, i: &Instruction, written: RegisterSet) {
        let size = match p {
            Plan::Push | Plan::Pop | Plan::Pushf | Plan::Popf => {
                i.stack_pointer_increment().unsigned_abs() as usize
            }
            Plan::Enter if i.code() == Code::Enterw_imm16_imm8 => 2,
            Plan::Leave if i.code() == Code::Leavew => 2,
            _ => 8,
        };
        match p {
            Plan::Push => self.renamed(i, written, true, |t, i| t.push(i, size)),
            Plan::Pop if size != 8 || mem_op(i).is_some() || i.op_register(0) == Register::RSP => {
                self.renamed(i, written, true, |t, i| t.pop_other(i, size))
            }
            Plan::Pop => self.renamed(i, written, false, |t, i| t.pop_reg(i)),
            Plan::Pushf => self.pushf(size),
            Plan::Popf => self.popf(size),
            Plan::Enter => self.enter(i, size),
            Plan::Leave => {
                self.cur.scr_taken = true;
                let real = based(RBP, 0);
                let Some(cell) = self.cell_of(&real) else {
                    return self.unsupported();
                };
                self.fetch(
                    SCR,
                    size,
                    &Mem {
                        real,
                        cell,
                        fixed: None,
                    },
                );
                self.a.lea(RSP, based(RBP, size as i32));
                self.mov_low(RBP, SCR, size);
            }
            _ => self.xlat(i),
        }
    }

    /// Copies the low 2 or all 8 bytes of a register.
    fn mov_low(&mut self, to: u8, from: u8, size: usize) {
        if size == 2 {
            self.a.rr(Code::Mov_r16_rm16, gpr(to, 2), gpr(from, 2));
        } else {
            self.a.mov(to, from);
        }
    }

    /// Reads `size` bytes into `s`: from memory, with a check when recording; from the cell in a
    /// replay.
    pub(crate) fn fetch(&mut self, s: u8, size: usize, m: &Mem) {
        match self.policy.mode {
            Mode::Replay => self.a.load(s, size, m.cell),
            Mode::Plain => self.a.load(s, size, m.real),
            Mode::Record => self.checked_read(s, size, m),
        }
    }

    /// Pushes the low 2 or all 8 bytes of a register other than rsp.
    pub(crate) fn push_reg(&mut self, r: u8, size: usize) {
        let had = self.cur.scr_taken;
        self.cur.scr_taken |= r == SCR;
        if self.replay() {
            self.a.lea(RSP, based(RSP, -(size as i32)));
        } else if size == 2 {
            self.a.r(Code::Push_r16, gpr(r, 2));
        } else {
            self.a.r(Code::Push_r64, gpr(r, 8));
        }
        if self.policy.mode != Mode::Plain {
            let m = self.stack(0);
            self.a.store(m.cell, r, size);
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

    fn push(&mut self, i: &Instruction, size: usize) {
        match i.op_kind(0) {
            OpKind::Register => match number(i.op_register(0)) {
                Some(RSP) => {
                    self.a.mov(SCR, RSP);
                    self.push_reg(SCR, size);
                }
                Some(r) => self.push_reg(r, size),
                None => self.unsupported(),
            },
            OpKind::Memory => {
                self.cur.scr_taken = true;
                let Some(m) = self.mem(i) else {
                    return self.unsupported();
                };
                self.fetch(SCR, size, &m);
                self.push_reg(SCR, size);
            }
            _ if size == 2 => {
                self.a.imm(SCR, i.immediate(0) as u16 as u64);
                self.push_reg(SCR, size);
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
            let mut c = self.check_before();
            self.check_word(&mut c, r, 8, &m);
            self.check_end(c, &m, 8, |t| t.a.load(r, 8, m.cell));
        }
    }

    /// `pop rsp`, `pop [m]`, and all pops of 16 bits.
    fn pop_other(&mut self, i: &Instruction, size: usize) {
        self.cur.scr_taken = true;
        let top = self.stack(0);
        self.fetch(SCR, size, &top);
        if mem_op(i).is_none() {
            let Some(r) = number(i.op_register(0)) else {
                return self.unsupported();
            };
            // Before the destination changes: that may be the stack pointer.
            self.a.lea(RSP, based(RSP, size as i32));
            return self.mov_low(r, SCR, size);
        }
        // The address counts from the stack pointer after the pop.
        let mut i = *i;
        if i.memory_base() == Register::RSP {
            let after = i.memory_displacement64().wrapping_add(size as u64);
            i.set_memory_displacement64(after);
            i.set_memory_displ_size(8);
        }
        let Some(m) = self.mem(&i) else {
            return self.unsupported();
        };
        if !self.replay() {
            self.a.store(m.real, SCR, size);
        }
        if self.policy.mode != Mode::Plain {
            self.a.store(m.cell, SCR, size);
        }
        self.a.lea(RSP, based(RSP, size as i32));
    }

    fn pushf(&mut self, size: usize) {
        self.cur.scr_taken = true;
        if !self.replay() {
            self.short_prefix(size);
            self.a.bytes(&[0x9c]);
            self.a.load(SCR, size, based(RSP, 0));
        } else {
            // Only a stack can hold all flags: the host's is used.
            self.a.spill(slot::VALUE, RSP);
            self.a.load(RSP, 8, ctx(d::HOST_RSP));
            self.a.bytes(&[0x9c]);
            self.a.r(Code::Pop_r64, gpr(SCR, 8));
            self.a.unspill(RSP, slot::VALUE);
            self.a.lea(RSP, based(RSP, -(size as i32)));
        }
        if self.policy.mode != Mode::Plain {
            let m = self.stack(0);
            self.a.store(m.cell, SCR, size);
        }
    }

    fn popf(&mut self, size: usize) {
        self.cur.scr_taken = true;
        let m = self.stack(0);
        self.fetch(SCR, size, &m);
        if !self.replay() {
            self.leave_trap_flag();
        } else {
            self.a.lea(RSP, based(RSP, size as i32));
            self.a.spill(slot::VALUE, RSP);
            self.a.load(RSP, 8, ctx(d::HOST_RSP));
            if size == 2 {
                self.a.r(Code::Push_r16, gpr(SCR, 2));
            } else {
                self.a.r(Code::Push_r64, gpr(SCR, 8));
            }
        }
        self.short_prefix(size);
        self.a.bytes(&[0x9d]);
        if self.replay() {
            self.a.unspill(RSP, slot::VALUE);
        }
    }

    /// Leaves for the runtime if the trap flag is among the flags to load: the processor would
    /// single-step the host code. The test may change flags, since they are about to be set.
    fn leave_trap_flag(&mut self) {
        if let Ok(i) = Instruction::with2(Code::Test_rm16_imm16, gpr(SCR, 2), 0x100u32) {
            self.a.put(&i);
        }
        let traps = self.a.jump_later(&[0x0f, 0x85]);
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(traps, here);
        // The runtime continues with the guest's registers. The code that follows here has yet to
        // give borrowed ones back.
        let released = self.cur.released;
        self.release();
        self.cur.released = released;
        let exit = self.a.exit();
        let mut desc = Desc::new(DescKind::Raise, self.cur.pc, self.cur.ahead);
        desc.size = raise::UNSUPPORTED;
        self.a.desc(exit, &desc, None, None);
        self.a.cold(false);
    }

    fn short_prefix(&mut self, size: usize) {
        if size == 2 {
            self.a.bytes(&[0x66]);
        }
    }

    /// Builds a stack frame. Both registers change last, so that a fault on the way finds the state
    /// from before the instruction.
    fn enter(&mut self, i: &Instruction, size: usize) {
        self.cur.scr_taken = true;
        let level = (i.immediate8_2nd() & 31) as i32;
        let step = size as i32;
        if level > 1 && self.policy.predictor.bits != 32 {
            // What it reads may share cells with what it writes.
            return self.unsupported();
        }
        let operand = |t: &mut Self, base, disp| {
            let real = based(base, disp);
            // An operand with a base register always has a cell form.
            let cell = t.cell_of(&real).unwrap_or(real);
            Mem {
                real,
                cell,
                fixed: None,
            }
        };
        let put = |t: &mut Self, disp, r| {
            let m = operand(t, RSP, disp);
            if !t.replay() {
                t.a.store(m.real, r, size);
            }
            if t.policy.mode != Mode::Plain {
                t.a.store(m.cell, r, size);
            }
        };
        let used = step * (level + 1);
        if self.checked() {
            // A replay patches all that is read before anything is written. So all reads are
            // checked first here too. Cells may change only if nothing faults later. So the memory
            // to be written is probed.
            for k in 1..level {
                let outer = operand(self, RBP, -step * k);
                self.fetch(SCR, size, &outer);
            }
            if level > 0 {
                for disp in [-step, -used] {
                    self.a.load(SCR, size, based(RSP, disp));
                    self.a.store(based(RSP, disp), SCR, size);
                }
            }
        }
        put(self, -step, RBP);
        for k in 1..level {
            let outer = operand(self, RBP, -step * k);
            let from = if self.replay() {
                outer.cell
            } else {
                outer.real
            };
            self.a.load(SCR, size, from);
            put(self, -step * (k + 1), SCR);
        }
        self.a.lea(SCR, based(RSP, -step));
        if level > 0 {
            put(self, -used, SCR);
        }
        self.mov_low(RBP, SCR, size);
        self.a.lea(RSP, based(RSP, -used - i.immediate16() as i32));
    }

    /// `al = [rbx + al]`.
    fn xlat(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        let at = self.borrow_reg();
        self.a.rr(Code::Movzx_r32_rm8, gpr(at, 4), Register::AL);
        let sum = MemoryOperand::with_base_index(gpr(at, 8), Register::RBX);
        if i.memory_base() == Register::EBX {
            self.a.rm(Code::Lea_r32_m, gpr(at, 4), sum);
        } else {
            self.a.lea(at, sum);
        }
        let segment = match i.segment_prefix() {
            Register::FS => Some(d::FS_BASE),
            Register::GS => Some(d::GS_BASE),
            _ => None,
        };
        if let Some(segment) = segment {
            self.a.unspill(SCR, segment);
            let sum = MemoryOperand::with_base_index(gpr(at, 8), gpr(SCR, 8));
            self.a.lea(at, sum);
        }
        let real = based(at, 0);
        let Some(cell) = self.cell_of(&real) else {
            return self.unsupported();
        };
        let m = Mem {
            real,
            cell,
            fixed: None,
        };
        self.fetch(SCR, 1, &m);
        self.a.rr(Code::Mov_r8_rm8, gpr(RAX, 1), gpr(SCR, 1));
    }
}
