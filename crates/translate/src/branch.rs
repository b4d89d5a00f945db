//! Templates of branches.

use crate::Mode;
use crate::asm::based;
use crate::plan::mem_op;
use crate::regs::{RCX, RSP, RegisterSet, SCR, gpr, number};
use crate::translator::{Translator, slot};
use hindsight_isa::Desc;
use hindsight_isa::ctx::{d, table};
use hindsight_isa::ibl;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind};

/// `movzx ecx, r10w; lea ecx, [rcx + rcx]`. r10 holds an address. Eight times the result is the
/// offset of its first entry in a lookup table.
const INDEX: [u8; 7] = [0x41, 0x0f, 0xb7, 0xca, 0x8d, 0x0c, 0x09];

impl Translator {
    pub(crate) fn branch(&mut self, i: &Instruction, written: RegisterSet) {
        match i.flow_control() {
            FlowControl::ConditionalBranch => self.conditional(i),
            FlowControl::UnconditionalBranch => self.exit_to(&[0xe9], i.near_branch64()),
            FlowControl::Call => {
                self.push_return(i.next_ip());
                self.release();
                self.expect(i.next_ip());
                self.exit_to(&[0xe9], i.near_branch64());
            }
            FlowControl::IndirectBranch => self.renamed(i, written, true, |t, i| {
                t.target(i);
                t.release();
                t.find();
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
                return self.leave_to(&[0x0f, 0x80 + cc - 1], target);
            }
        };
        // These have only short forms. So they jump over a jump around a long one.
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
        self.leave_to(&[0xe9], target);
        self.a.land(over);
    }

    /// Emits an exit to `target`. It may be in the middle of what a budget check covers.
    fn leave_to(&mut self, opcode: &[u8], target: u64) {
        match self.cur.ahead - 1 {
            0 => self.exit_to(opcode, target),
            rest => {
                let jump = self.a.jump_later(opcode);
                self.early.push((jump, rest, target));
            }
        }
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

    /// Loads the target of an indirect branch into the scratch register.
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

    /// Calls the address in the scratch register.
    fn call_indirect(&mut self, return_to: u64) {
        self.a.spill(d::RIP, SCR);
        (self.cur.scr_taken, self.cur.scr_live) = (false, false);
        self.push_return(return_to);
        self.release();
        self.expect(return_to);
        self.a.unspill(SCR, d::RIP);
        self.find();
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
            }
            Mode::Plain | Mode::Record => {
                self.a.r(Code::Pop_r64, gpr(SCR, 8));
                if self.checked() {
                    let m = self.stack(-8);
                    let mut c = self.check_before();
                    self.check_word(&mut c, SCR, 8, &m);
                    self.check_end(c, &m, 8, |t| t.a.load(SCR, 8, m.cell));
                    self.release();
                }
                if extra != 0 {
                    self.a.lea(RSP, based(RSP, extra));
                }
            }
        }
        self.find();
    }

    /// Number of the lookup table that indirect branches of this code use.
    fn table(&self) -> usize {
        match self.policy.mode {
            Mode::Plain => table::PLAIN,
            Mode::Record | Mode::Replay => table::CHECKED,
        }
    }

    /// Prefetches the lookup table's entry for the return to `pc`. That helps programs whose code
    /// does not fit the processor's caches.
    fn expect(&mut self, pc: u64) {
        // prefetcht0 gs:[at]
        let at = d::ibl(self.table()) + ibl::first_entry(pc) as i32;
        self.a.lookup_entry(&[0x65, 0x0f, 0x18, 0x0c, 0x25], at);
    }

    /// Jumps to the translation of the address in the scratch register.
    fn find(&mut self) {
        let table = self.table();
        let at = d::ibl(table);
        if self.alone {
            // mov gs:[RIP], r10; mov dword gs:[DESC], not found; jmp gs:[EXIT_PTR]
            self.a.spill(d::RIP, SCR);
            self.a.at(&[0x65, 0xc7, 0x04, 0x25], d::DESC);
            self.a.bytes(&(Desc::NOT_FOUND as u32).to_le_bytes());
            return self.a.at(&[0x65, 0xff, 0x24, 0x25], d::EXIT_PTR);
        }
        if self.cur.lazy_flags.is_some() {
            return self.find_lazily(at);
        }
        self.a.spill(slot::CHECK, RCX);
        self.a.bytes(&INDEX);
        // mov rcx, gs:[rcx * 8 + at]; lea rcx, [rcx + r10]
        self.a.at(&[0x65, 0x48, 0x8b, 0x0c, 0xcd], at);
        self.a.bytes(&[0x4a, 0x8d, 0x0c, 0x11]);
        let found = self.a.short(&[0xe3]);
        let miss = self.a.jump_later(&[0xe9]);
        self.a.land(found);
        self.a.bytes(&INDEX);
        // mov r10, gs:[rcx * 8 + at + 8]
        self.a.at(&[0x65, 0x4c, 0x8b, 0x14, 0xcd], at + 8);
        self.a.unspill(RCX, slot::CHECK);
        // jmp r10
        self.a.bytes(&[0x41, 0xff, 0xe2]);
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(miss, here);
        self.search(table);
        self.a.cold(false);
    }

    /// Continues the search in the other entries of a lookup table.
    pub(crate) fn search(&mut self, which: usize) {
        // jmp gs:[SEARCH_PTR + ...]
        let at = d::SEARCH_PTR + 8 * which as i32;
        self.a.at(&[0x65, 0xff, 0x24, 0x25], at);
    }
}
