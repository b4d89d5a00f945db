//! Read-modify-write instructions, which other threads must see as one step. So the value that was
//! read is compared after the instruction.

use crate::asm;
use crate::flags;
use crate::kinds::with_register;
use crate::operand::{Mem, apply};
use crate::plan::mem_op;
use crate::regs::{CNT, RAX, RDX, SCR, gpr, is_high_byte, number};
use crate::translator::{Translator, slot};
use hindsight_isa::ctx::d;
use hindsight_isa::{Desc, DescKind};
use iced_x86::{Code, Instruction, MemoryOperand, Mnemonic, OpKind, Register};

impl Translator {
    /// Emits the code before an atomic operation on `size` bytes at `m`. It takes the operand's
    /// lock and draws an order number (see the trampoline in `hindsight_glue`).
    fn order(&mut self, m: &Mem, size: usize) {
        if !self.ordered {
            return;
        }
        match m.fixed {
            Some(at) => self.a.guest_address(SCR, at),
            None => self.a.lea(SCR, m.real),
        }
        self.a.spill(d::EA, SCR);
        self.put2(asm::ctx(d::SIZE), Code::Mov_rm32_imm32, size as i32);
        let exit = self.a.exit_desc();
        let resume = self.a.address(SCR);
        self.a.spill(d::RESUME, SCR);
        self.a.lea(SCR, asm::based(CNT, -(self.cur.ahead as i32)));
        // jmp qword gs:[SEQUENCE_PTR]
        self.a.bytes(&[0x65, 0xff, 0x24, 0x25]);
        self.a.bytes(&d::SEQUENCE_PTR.to_le_bytes());
        let back = self.a.here();
        self.a.aim(resume, back);
        self.a.cold(true);
        let mut desc = Desc::new(DescKind::Sequence, self.cur.pc, self.cur.ahead);
        desc.size = size as u8;
        self.a.desc(exit, &desc, Some(back), None);
        self.a.cold(false);
    }

    fn put2(&mut self, mem: MemoryOperand, code: Code, value: i32) {
        match Instruction::with2(code, mem, value) {
            Ok(i) => self.a.put(&i),
            Err(_) => self.a.failed = true,
        }
    }

    /// Emits the code behind an atomic operation, which releases the lock.
    fn ordered(&mut self) {
        if !self.ordered {
            return;
        }
        self.a.unspill(SCR, d::STRIPE);
        self.put2(asm::based(SCR, 0), Code::Mov_rm32_imm32, 0);
        self.put2(asm::ctx(d::STRIPE), Code::Mov_rm64_imm32, 0);
    }

    fn put_with(&mut self, i: &Instruction, m: &MemoryOperand, lock: bool) {
        let mut i = *i;
        apply(&mut i, m);
        i.set_has_lock_prefix(lock);
        if !lock {
            i.set_has_xacquire_prefix(false);
            i.set_has_xrelease_prefix(false);
        }
        self.copy(&i);
    }

    /// Copies the low `size` bytes of register `from` to `to`, zero-extended to 64 bits.
    fn zero_extend(&mut self, to: u8, from: Register, size: usize) {
        match (size, number(from)) {
            (1, _) => self.a.rr(Code::Movzx_r32_rm8, gpr(to, 4), from),
            (2, _) => self.a.rr(Code::Movzx_r32_rm16, gpr(to, 4), from),
            (4, _) => self.a.rr(Code::Mov_r32_rm32, gpr(to, 4), from),
            (_, Some(n)) => self.a.mov(to, n),
            _ => self.unsupported(),
        }
    }

    /// Compares the value that was read, in the low bytes of `value`, with the cell. Preserves the
    /// flags in `needed`.
    fn check_value(&mut self, value: u8, size: usize, m: &Mem, needed: u32) {
        let mut c = self.check_begin(needed);
        self.check_word(&mut c, value, size, m);
        self.check_end_value(c, m, size, value);
    }

    /// A register with the value of `r` that an instruction can name beside any other register. AH,
    /// BH, CH and DH cannot stand beside r8 to r15.
    fn beside(&mut self, r: Register) -> Register {
        let Some(whole) = number(r).filter(|_| is_high_byte(r)) else {
            return r;
        };
        let copy = self.borrow_reg();
        self.a.spill(slot::VALUE, whole);
        self.a.load(copy, 1, asm::ctx(slot::VALUE + 1));
        gpr(copy, 1)
    }

    /// Sets AH, BH, CH or DH to the low byte of register `from`, without changing flags.
    fn set_high(&mut self, r: Register, from: u8) {
        let Some(whole) = number(r) else {
            return self.unsupported();
        };
        let low = gpr(whole, 1);
        self.a.rr(Code::Xchg_rm8_r8, low, r);
        self.a.rr(Code::Mov_r8_rm8, low, gpr(from, 1));
        self.a.rr(Code::Xchg_rm8_r8, low, r);
    }

    /// The register operand of a two-operand instruction, and its number among the operands.
    fn reg_operand(i: &Instruction) -> Option<(u32, Register)> {
        let op = (0..2).find(|n| i.op_kind(*n) == OpKind::Register)?;
        Some((op, i.op_register(op)))
    }

    /// `xchg [m], r`. The new value is saved and the old one checked. Then the cell gets the new
    /// value.
    pub(crate) fn xchg(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        let (Some(m), Some((op, r))) = (self.mem(i), Self::reg_operand(i)) else {
            return self.unsupported();
        };
        let size = r.size();
        let high = is_high_byte(r);
        let new = self.beside(r);
        self.order(&m, size);
        // The old value goes through the scratch register, so that the guest's register changes
        // last.
        self.zero_extend(SCR, new, size);
        let mut x = *i;
        x.set_op_register(op, gpr(SCR, size));
        self.put_with(&x, &m.real, false);
        if size < 4 {
            self.zero_extend(SCR, gpr(SCR, size), size);
        }
        self.check_value(SCR, size, &m, self.cur.after);
        let code = [
            Code::Mov_rm8_r8,
            Code::Mov_rm16_r16,
            Code::Mov_rm32_r32,
            Code::Mov_rm64_r64,
        ][size.trailing_zeros() as usize];
        self.a.mr(code, m.cell, new);
        if high {
            self.set_high(r, SCR);
            return self.ordered();
        }
        self.a.rr(
            [
                Code::Mov_r8_rm8,
                Code::Mov_r16_rm16,
                Code::Mov_r32_rm32,
                Code::Mov_r64_rm64,
            ][size.trailing_zeros() as usize],
            r,
            gpr(SCR, size),
        );
        self.ordered();
    }

    /// `xadd [m], r`.
    pub(crate) fn xadd(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        let (Some(m), Some((op, r))) = (self.mem(i), Self::reg_operand(i)) else {
            return self.unsupported();
        };
        let size = r.size();
        let named = self.beside(r);
        self.order(&m, size);
        self.zero_extend(SCR, named, size);
        let mut x = *i;
        x.set_op_register(op, gpr(SCR, size));
        self.put_with(&x, &m.real, i.has_lock_prefix());
        if size < 4 {
            self.zero_extend(SCR, gpr(SCR, size), size);
        }
        self.check_value(SCR, size, &m, 0);
        // The same `xadd` on the cell gives the same flags, and leaves the old value in the
        // register.
        x.set_op_register(op, named);
        self.put_with(&x, &m.cell, false);
        if named != r
            && let Some(n) = number(named)
        {
            self.set_high(r, n);
        }
        self.ordered();
    }

    /// `cmpxchg [m], r`. Afterwards the accumulator holds what was read, whether it was equal or
    /// not.
    pub(crate) fn cmpxchg(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        let (Some(m), Some((_, r))) = (self.mem(i), Self::reg_operand(i)) else {
            return self.unsupported();
        };
        let size = r.size();
        let mut i = *i;
        i.set_op_register(1, self.beside(r));
        let i = &i;
        if m.uses(RAX) {
            // The accumulator changes before the address is used for the last time.
            let at = self.borrow_reg();
            self.a.lea(at, m.real);
            let real = asm::based(at, 0);
            let Some(cell) = self.cell_of(&real) else {
                return self.unsupported();
            };
            return self.cmpxchg_at(
                i,
                &Mem {
                    real,
                    cell,
                    fixed: None,
                },
                size,
            );
        }
        self.cmpxchg_at(i, &m, size);
    }

    fn cmpxchg_at(&mut self, i: &Instruction, m: &Mem, size: usize) {
        self.order(m, size);
        self.a.spill(slot::VALUE, RAX);
        self.put_with(i, &m.real, i.has_lock_prefix());
        self.zero_extend(SCR, gpr(RAX, size), size);
        // The cell's own cmpxchg sets the flags again.
        self.cur.scr_live = false;
        self.check_value(SCR, size, m, 0);
        self.a.unspill(RAX, slot::VALUE);
        self.put_with(i, &m.cell, false);
        self.ordered();
    }

    /// `cmpxchg8b` and `cmpxchg16b`.
    pub(crate) fn cmpxchg_wide(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        let Some(mut m) = self.mem(i) else {
            return self.unsupported();
        };
        let size = if i.mnemonic() == Mnemonic::Cmpxchg16b {
            8
        } else {
            4
        };
        if m.uses(RAX) || m.uses(RDX) {
            let at = self.borrow_reg();
            self.a.lea(at, m.real);
            let real = asm::based(at, 0);
            let Some(cell) = self.cell_of(&real) else {
                return self.unsupported();
            };
            m = Mem {
                real,
                cell,
                fixed: None,
            };
        }
        self.order(&m, 2 * size);
        let high = self.borrow_reg();
        // Only ZF may change. So nothing here changes flags but the operation itself, which is done
        // twice with the same outcome.
        self.a.spill(slot::VALUE, RAX);
        self.a.mov(high, RDX);
        self.put_with(i, &m.real, i.has_lock_prefix());
        self.zero_extend(SCR, gpr(RAX, size), size);
        self.check_value(SCR, size, &m, flags::ALL);
        self.zero_extend(SCR, gpr(RDX, size), size);
        self.check_value(SCR, size, &m.plus(size as i64), flags::ALL);
        self.a.unspill(RAX, slot::VALUE);
        self.a.mov(RDX, high);
        self.put_with(i, &m.cell, false);
        self.ordered();
    }

    /// `lock op [m], …` without a result. A compare-exchange loop does it, so that the value that
    /// was read is known.
    pub(crate) fn locked_rmw(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        // rax is the accumulator of the exchange, so it must not hold an address.
        self.cur.used.add(RAX);
        let (Some(op), Some(m)) = (mem_op(i), self.mem(i)) else {
            return self.unsupported();
        };
        let size = i.memory_size().size();
        // The address is in `at`, the accumulator is rax.
        let at = self.borrow_reg();
        self.a.lea(at, m.real);
        let real = asm::based(at, 0);
        let Some(cell) = self.cell_of(&real) else {
            return self.unsupported();
        };
        let m = Mem {
            real,
            cell,
            fixed: None,
        };
        // If the source operand is rax, it is read from a copy, by renaming.
        let mut work_op = *i;
        let src_rax = (0..i.op_count())
            .any(|n| i.op_kind(n) == OpKind::Register && number(i.op_register(n)) == Some(RAX));
        // adc and sbb read the carry flag.
        let carry = flags::reads(i) != 0;
        let high = (0..i.op_count())
            .find(|n| i.op_kind(*n) == OpKind::Register && is_high_byte(i.op_register(*n)));
        if let Some(n) = high {
            work_op.set_op_register(n, self.beside(i.op_register(n)));
        }
        self.order(&m, size);
        self.borrow_this(RAX);
        if src_rax && high.is_none() {
            let copy = self.borrow_reg();
            self.a.mov(copy, RAX);
            crate::regs::rename(&mut work_op, RAX, copy);
        }
        // The exchange changes flags that the operation leaves alone. They survive in the context
        // block, in the form of lahf and seto.
        let keep = carry || self.cur.before & flags::ALL != 0;
        if keep {
            // lahf; seto al
            self.a.bytes(&[0x9f, 0x0f, 0x90, 0xc0]);
            self.a.spill(slot::VALUE, RAX);
        }
        let body = with_register(&work_op, op, gpr(SCR, size));
        self.exchange(&body, &m, size, carry);
        self.check_value(SCR, size, &m, 0);
        if keep {
            self.a.unspill(RAX, slot::VALUE);
            // add al, 127 (overflows if al is 1); sahf
            self.a.bytes(&[0x04, 0x7f, 0x9e]);
        }
        // The operation on the cell sets the flags and the cell's new value.
        self.put_with(&work_op, &m.cell, false);
        self.ordered();
    }

    /// `lock bts [m], r`, `btr` and `btc`. The bit may lie outside the operand. So the word that
    /// holds the bit is found first. The rest is as in [`Self::locked_rmw`].
    pub(crate) fn locked_bit(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        let offset = i.op_register(1);
        let size = offset.size();
        let narrow = |r: Register| r != Register::None && r.size() == 4;
        self.cur.used.add(RAX);
        let Some(m) = self.mem(i) else {
            return self.unsupported();
        };
        let short = narrow(m.real.base) || narrow(m.real.index) || i.memory_displ_size() == 4;
        let (at, bit) = (self.borrow_reg(), self.borrow_reg());
        match m.fixed {
            Some(fixed) => self.a.guest_address(at, fixed),
            None => self.a.lea(at, m.real),
        }
        let extend = match size {
            2 => Code::Movsx_r64_rm16,
            4 => Code::Movsxd_r64_rm32,
            _ => Code::Mov_r64_rm64,
        };
        self.a.rr(extend, gpr(bit, 8), offset);
        self.borrow_this(RAX);
        // lahf; seto al
        self.a.bytes(&[0x9f, 0x0f, 0x90, 0xc0]);
        self.a.spill(slot::VALUE, RAX);
        self.a.mov(SCR, bit);
        let shift = (8 * size).trailing_zeros();
        match Instruction::with2(Code::Sar_rm64_imm8, gpr(SCR, 8), shift) {
            Ok(i) => self.a.put(&i),
            Err(_) => self.a.failed = true,
        }
        let word = MemoryOperand::with_base_index_scale(gpr(at, 8), gpr(SCR, 8), size as u32);
        if short {
            self.a.rm(Code::Lea_r32_m, gpr(at, 4), word);
        } else {
            self.a.lea(at, word);
        }
        // add al, 127; sahf: if the access faults, the guest's flags are in place.
        self.a.bytes(&[0x04, 0x7f, 0x9e]);
        let real = asm::based(at, 0);
        let Some(cell) = self.cell_of(&real) else {
            return self.unsupported();
        };
        let m = Mem {
            real,
            cell,
            fixed: None,
        };
        self.order(&m, size);
        let mut body = with_register(i, 0, gpr(SCR, size));
        body.set_op_register(1, gpr(bit, size));
        self.exchange(&body, &m, size, false);
        self.check_value(SCR, size, &m, 0);
        self.a.unspill(RAX, slot::VALUE);
        self.a.bytes(&[0x04, 0x7f, 0x9e]);
        // The operation on the cell sets the carry flag and the cell's new value.
        self.a.load(SCR, size, m.cell);
        self.copy(&body);
        self.a.store(m.cell, SCR, size);
        self.ordered();
    }

    /// Applies `body`, on the scratch register, to the memory at `m` as one step, with rax as
    /// accumulator. Afterwards the scratch register holds the value that was read. `carry`: the
    /// operation needs the carry flag, which is in [`slot::VALUE`].
    fn exchange(&mut self, body: &Instruction, m: &Mem, size: usize, carry: bool) {
        self.a.load(RAX, size, m.real);
        let retry = self.a.here();
        if carry {
            // Bit 0 of ah, which `lahf` has stored.
            self.put2(asm::ctx(slot::VALUE), Code::Bt_rm32_imm8, 8);
        }
        self.a.mov(SCR, RAX);
        self.copy(body);
        // lock cmpxchg [at], scratch
        let code = [
            Code::Cmpxchg_rm8_r8,
            Code::Cmpxchg_rm16_r16,
            Code::Cmpxchg_rm32_r32,
            Code::Cmpxchg_rm64_r64,
        ][size.trailing_zeros() as usize];
        if let Ok(mut x) = Instruction::with2(code, m.real, gpr(SCR, size)) {
            x.set_has_lock_prefix(true);
            self.a.put(&x);
        }
        self.a.jump(&[0x0f, 0x85], retry);
        self.zero_extend(SCR, gpr(RAX, size), size);
    }
}
