//! Templates of branches.

use crate::Mode;
use crate::asm::{based, ctx};
use crate::block::{Translator, slot};
use crate::plan::mem_op;
use crate::regs::{RCX, RSP, SCR, Set, gpr, number};
use hindsight_isa::ctx::d;
use hindsight_isa::{Desc, DescKind};
use iced_x86::{Code, FlowControl, Instruction, MemoryOperand, Mnemonic, OpKind, Register};

impl Translator {
    pub(crate) fn branch(&mut self, i: &Instruction, written: Set) {
        match i.flow_control() {
            FlowControl::ConditionalBranch => self.conditional(i),
            FlowControl::UnconditionalBranch => self.exit_to(&[0xe9], i.near_branch64()),
            FlowControl::Call => {
                self.push_return(i.next_ip());
                self.release();
                self.exit_to(&[0xe9], i.near_branch64());
            }
            FlowControl::IndirectBranch => self.renamed(i, written, true, |t, i| {
                t.target(i);
                t.release();
                t.a.spill(slot::CHECK, RCX);
                t.lookup(slot::CHECK);
            }),
            FlowControl::IndirectCall => self.renamed(i, written, true, |t, i| {
                t.target(i);
                t.release();
                t.call_indirect(i.next_ip());
            }),
            FlowControl::Return => self.ret(i),
            _ => self.unsupported(),
        }
    }

    fn conditional(&mut self, i: &Instruction) {
        let target = i.near_branch64();
        let opcode = match i.mnemonic() {
            Mnemonic::Loopne => 0xe0,
            Mnemonic::Loope => 0xe1,
            Mnemonic::Loop => 0xe2,
            Mnemonic::Jcxz | Mnemonic::Jecxz | Mnemonic::Jrcxz => 0xe3,
            _ => {
                let cc = i.condition_code() as u8;
                return self.exit_to(&[0x0f, 0x80 + cc - 1], target);
            }
        };
        // These only jump short: over a jump around a long one.
        let narrow = !matches!(
            i.code(),
            Code::Loopne_rel8_64_RCX
                | Code::Loope_rel8_64_RCX
                | Code::Loop_rel8_64_RCX
                | Code::Jrcxz_rel8_64
        );
        if narrow {
            self.a.bytes(&[0x67]);
        }
        let taken = self.a.short(&[opcode]);
        let over = self.a.short(&[0xeb]);
        self.a.land(taken);
        self.exit_to(&[0xe9], target);
        self.a.land(over);
    }

    fn push_return(&mut self, pc: u64) {
        match i32::try_from(pc as i64) {
            Ok(v) => {
                self.a.bound = true;
                self.push_imm(v);
            }
            Err(_) => {
                self.a.guest_address(SCR, pc);
                self.push_reg(SCR, 8);
            }
        }
    }

    /// Brings the target of an indirect branch into the scratch register.
    fn target(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        match i.op_kind(0) {
            OpKind::Register => match number(i.op_register(0)) {
                Some(r) if i.op_register(0).size() == 8 => self.a.mov(SCR, r),
                _ => self.unsupported(),
            },
            _ if mem_op(i).is_some() && i.memory_size().size() == 8 => match self.mem(i) {
                Some(m) => self.fetch(SCR, 8, &m),
                None => self.unsupported(),
            },
            _ => self.unsupported(),
        }
    }

    fn call_indirect(&mut self, return_to: u64) {
        let saved = self.borrow_this(RCX);
        match i32::try_from(return_to as i64) {
            Ok(v) => {
                self.a.bound = true;
                self.push_imm(v);
            }
            Err(_) => {
                self.a.guest_address(RCX, return_to);
                self.push_reg(RCX, 8);
            }
        }
        // Whatever the push borrowed comes back; rcx itself comes back in the lookup.
        self.release();
        self.lookup(saved);
        self.forget_borrowed();
    }

    fn ret(&mut self, i: &Instruction) {
        let extra = if i.op_count() == 1 {
            i.immediate16() as i32
        } else {
            0
        };
        self.cur.scr_taken = true;
        if i.code() == Code::Retnw || i.code() == Code::Retnw_imm16 {
            return self.unsupported();
        }
        match self.policy.mode {
            Mode::Replay => {
                let m = self.stack(0);
                self.a.load(SCR, 8, m.cell);
                self.a.lea(RSP, based(RSP, 8 + extra));
                self.release();
                self.a.spill(slot::CHECK, RCX);
            }
            Mode::Plain | Mode::Record => {
                self.a.r(Code::Pop_r64, gpr(SCR, 8));
                if self.checked() {
                    let m = self.stack(-8);
                    let mut c = self.check_begin(self.cur.before);
                    self.check_word(&mut c, SCR, 8, &m);
                    self.check_end(c, &m, 8, |t| t.a.load(SCR, 8, m.cell));
                    self.release();
                }
                if extra != 0 {
                    self.a.lea(RSP, based(RSP, extra));
                }
                self.a.spill(slot::CHECK, RCX);
            }
        }
        self.lookup(slot::CHECK);
    }

    /// Jumps to the translation of the address in the scratch register. rcx is in `saved`.
    fn lookup(&mut self, saved: i32) {
        let table = match self.policy.mode {
            Mode::Plain => d::PLAIN_LOOKUP,
            Mode::Record | Mode::Replay => d::LOOKUP,
        };
        let entry = |offset: i32| {
            MemoryOperand::new(
                Register::None,
                gpr(RCX, 8),
                8,
                (table + offset) as i64,
                8,
                false,
                Register::GS,
            )
        };
        let index = |t: &mut Self| {
            t.a.rr(Code::Movzx_r32_rm16, gpr(RCX, 4), gpr(SCR, 2));
            t.a.lea(
                RCX,
                MemoryOperand::with_base_index(gpr(RCX, 8), gpr(RCX, 8)),
            );
        };
        index(self);
        self.a.load(RCX, 8, entry(0));
        self.a.lea(
            RCX,
            MemoryOperand::with_base_index(gpr(RCX, 8), gpr(SCR, 8)),
        );
        let hit = self.a.short(&[0xe3]);
        let miss = self.a.jump_later(&[0xe9]);
        self.a.land(hit);
        index(self);
        self.a.load(SCR, 8, entry(8));
        self.a.unspill(RCX, saved);
        self.a.r(Code::Jmp_rm64, gpr(SCR, 8));
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(miss, here);
        self.a.unspill(RCX, saved);
        self.a.store(ctx(d::RIP), SCR, 8);
        let exit = self.a.exit();
        self.a.desc(
            exit,
            &Desc::new(DescKind::Indirect, self.cur.pc, 0),
            None,
            None,
        );
        self.a.cold(false);
    }
}
