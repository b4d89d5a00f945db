//! Templates of instructions that access memory through one explicit operand.

use crate::Mode;
use crate::asm;
use crate::kinds::is_masked_move;
use crate::kinds::with_register;
use crate::operand::{Mem, apply};
use crate::plan::{Plan, mem_op};
use crate::regs::{self, RAX, RCX, RDX, RegisterSet, SCR, gpr, number};
use crate::translator::{Translator, slot};
use crate::vector;
use crate::{flags, forms, string};
use hindsight_isa::DescKind;
use iced_x86::{Code, Instruction, MemoryOperand, Mnemonic, OpKind, Register};

impl Translator {
    /// Applies template `p` to `i`, which writes the registers `written`.
    pub(crate) fn template(&mut self, p: Plan, i: &Instruction, written: RegisterSet) {
        if self.policy.mode == Mode::Plain
            && !matches!(
                p,
                Plan::Branch
                    | Plan::Syscall
                    | Plan::Raise(_)
                    | Plan::Slow
                    | Plan::Nop
                    | Plan::Lea
                    | Plan::Plain
                    | Plan::Popf
                    | Plan::Xlat
            )
        {
            return self.renamed(i, written, false, |t, i| t.real_op(i));
        }
        match p {
            Plan::Nop => {}
            Plan::Plain => self.renamed(i, written, false, |t, i| t.copy(i)),
            Plan::Lea => self.renamed(i, written, false, |t, i| t.lea(i)),
            Plan::Branch => self.branch(i, written),
            Plan::Syscall => self.runtime(DescKind::Syscall, self.cur.len, false),
            Plan::Raise(code) => self.runtime(DescKind::Raise, code, false),
            Plan::Slow if string::is_native(self.code(), self.policy) => self.native_string(),
            Plan::Slow => self.runtime(DescKind::Slow, 0, true),
            Plan::Push
            | Plan::Pop
            | Plan::Pushf
            | Plan::Popf
            | Plan::Enter
            | Plan::Leave
            | Plan::Xlat => self.stack_op(p, i, written),
            Plan::PreRead | Plan::Scatter
                if self.policy.predictor.bits != 32 && i.memory_index().is_vector_register() =>
            {
                self.runtime(DescKind::Slow, 0, true)
            }
            Plan::BitMem if self.checked() && i.has_lock_prefix() => {
                self.renamed(i, written, true, |t, i| t.locked_bit(i))
            }
            Plan::BitMem => {
                if self.checked() {
                    self.runtime(DescKind::PreCheck, 0, true);
                }
                self.renamed(i, written, false, |t, i| t.bit_mem(i));
            }
            _ if self.replay() => self.renamed(i, written, false, |t, i| t.cell_op(i)),
            Plan::Load => self.load(i, written),
            Plan::GprRead => self.renamed(i, written, true, |t, i| t.gpr_read(i)),
            Plan::GprRmw => self.renamed(i, written, true, |t, i| t.gpr_rmw(i)),
            Plan::Store => self.renamed(i, written, false, |t, i| t.store(i)),
            Plan::Scatter => self.renamed(i, written, false, |t, i| t.scatter(i)),
            Plan::Read(size) => self.renamed(i, written, true, |t, i| t.read(i, size)),
            Plan::VecLoad(size) if self.policy.wide_checks => {
                self.renamed(i, written, false, |t, i| t.vec_load(i, size))
            }
            Plan::VecLoad(size) => self.renamed(i, written, true, |t, i| t.read(i, size)),
            Plan::PreRead if self.policy.wide_checks && vector::lanes_of_mask(i).is_some() => {
                self.renamed(i, written, false, |t, i| t.masked_read(i));
            }
            Plan::PreRead => {
                self.runtime(DescKind::PreCheck, 0, true);
                self.renamed(i, written, false, |t, i| t.cell_op(i));
            }
            Plan::PreStore(size) => {
                self.runtime(DescKind::PreCheck, size as u8, true);
                self.renamed(i, written, true, |t, i| t.pre_store(i, size));
            }
            Plan::X87Store(first) => {
                self.renamed(i, written, true, |t, i| t.x87_store(i, first));
            }
            Plan::Xchg => self.renamed(i, written, true, |t, i| t.xchg(i)),
            Plan::Xadd => self.renamed(i, written, true, |t, i| t.xadd(i)),
            Plan::Cmpxchg => self.renamed(i, written, true, |t, i| t.cmpxchg(i)),
            Plan::CmpxchgWide => self.renamed(i, written, true, |t, i| t.cmpxchg_wide(i)),
            Plan::LockedRmw => self.renamed(i, written, true, |t, i| t.locked_rmw(i)),
        }
    }

    /// Emits `i` as it is.
    pub(crate) fn copy(&mut self, i: &Instruction) {
        let mut i = *i;
        if mem_op(&i).is_none() {
            // A segment prefix means nothing here. It must not mean something behind other emitted
            // prefixes either.
            i.set_segment_prefix(Register::None);
        }
        if !self.a.try_put(&i) {
            self.unsupported();
        }
    }

    pub(crate) fn copy_with(&mut self, i: &Instruction, m: &MemoryOperand) {
        let mut i = *i;
        apply(&mut i, m);
        self.copy(&i);
    }

    /// Turns `mov rax, [moffs]` and the like into their ordinary form.
    pub(crate) fn plain_form(i: &Instruction) -> Instruction {
        let mut i = *i;
        i.set_code(match i.code() {
            Code::Mov_AL_moffs8 => Code::Mov_r8_rm8,
            Code::Mov_AX_moffs16 => Code::Mov_r16_rm16,
            Code::Mov_EAX_moffs32 => Code::Mov_r32_rm32,
            Code::Mov_RAX_moffs64 => Code::Mov_r64_rm64,
            Code::Mov_moffs8_AL => Code::Mov_rm8_r8,
            Code::Mov_moffs16_AX => Code::Mov_rm16_r16,
            Code::Mov_moffs32_EAX => Code::Mov_rm32_r32,
            Code::Mov_moffs64_RAX => Code::Mov_rm64_r64,
            c => c,
        });
        i
    }

    /// Plain translation: the guest's own operand.
    fn real_op(&mut self, i: &Instruction) {
        if mem_op(i).is_none() {
            return match is_masked_move(i) {
                true => self.masked_move(i),
                false => self.copy(i),
            };
        }
        let i = *i;
        if matches!(i.segment_prefix(), Register::FS) && !i.is_ip_rel_memory_operand() {
            return self.copy(&i);
        }
        match self.mem(&i) {
            Some(m) => self.copy_with(&i, &m.real),
            None => self.unsupported(),
        }
    }

    /// The instruction on its cell.
    pub(crate) fn cell_op(&mut self, i: &Instruction) {
        let mut i = *i;
        i.set_has_lock_prefix(false);
        i.set_has_xacquire_prefix(false);
        i.set_has_xrelease_prefix(false);
        if mem_op(&i).is_none() {
            return self.masked_move(&i);
        }
        match self.mem(&i) {
            Some(m) if matches!(i.mnemonic(), Mnemonic::Xrstor | Mnemonic::Xrstor64) => {
                self.restore_state(&i, m)
            }
            Some(m) => self.copy_with(&i, &m.cell),
            None => self.unsupported(),
        }
    }

    /// `xrstor`, limited to the state that the virtual processor has. A program, or a forged trace,
    /// may ask for more. Other state, as protection keys, is the host's.
    fn restore_state(&mut self, i: &Instruction, m: Mem) {
        // The address of a fixed cell in a `lea` is not noted as a field that moves with the block.
        self.a.bound |= m.fixed.is_some();
        let at = self.borrow_reg();
        self.a.lea(
            at,
            MemoryOperand {
                segment_prefix: Register::None,
                ..m.cell
            },
        );
        self.borrow_this(RAX);
        self.borrow_this(RDX);
        // All components are in the low byte of the mask.
        self.a.rr(Code::Movzx_r32_rm8, gpr(RAX, 4), gpr(RAX, 1));
        self.a.imm(RDX, 0);
        let cell = MemoryOperand {
            segment_prefix: Register::GS,
            ..asm::based(at, 0)
        };
        self.copy_with(i, &cell);
    }

    fn lea(&mut self, i: &Instruction) {
        if i.is_ip_rel_memory_operand() {
            let r = i.op_register(0);
            let Some(n) = number(r) else {
                return self.unsupported();
            };
            match r.size() {
                8 if i.memory_base() == Register::RIP => {
                    self.a.guest_address(n, i.ip_rel_memory_address());
                }
                8 => {
                    // The address has 32 bits.
                    self.a.bound = true;
                    self.a.imm(n, i.ip_rel_memory_address());
                }
                4 => self
                    .a
                    .short_guest_address(n, i.ip_rel_memory_address() as u32),
                _ => self.unsupported(),
            }
            return;
        }
        let mut i = *i;
        i.set_segment_prefix(Register::None);
        self.copy(&i);
    }

    /// A load of a whole register. It goes straight into the destination, if nothing stands against
    /// that.
    fn load(&mut self, i: &Instruction, written: RegisterSet) {
        let zero_ext = matches!(i.mnemonic(), Mnemonic::Mov | Mnemonic::Movzx);
        let dest = number(i.op_register(0)).unwrap_or(RAX);
        let in_address = [i.memory_base(), i.memory_index()]
            .iter()
            .any(|r| number(*r) == Some(dest));
        // This load needs no borrowed register. So no register that the flags are computed from is
        // lent.
        let alone = !self.cur.used.has(SCR)
            && !self.cur.used.has(regs::CNT)
            && !matches!(i.segment_prefix(), Register::FS | Register::GS);
        let again = alone && self.redo_at_hand().is_some();
        let live = self.cur.before & flags::ALL != 0 && !again;
        if in_address || (live && (!zero_ext || dest == RCX)) || dest == regs::RSP {
            return self.renamed(i, written, true, |t, i| t.gpr_read(i));
        }
        self.renamed(i, written, false, |t, i| {
            let Some(m) = t.mem(i) else {
                return t.unsupported();
            };
            let Some(d) = number(i.op_register(0)) else {
                return t.unsupported();
            };
            t.copy_with(i, &m.real);
            let size = i.memory_size().size();
            let mut c = t.check_before();
            t.check_word(&mut c, d, size, &m);
            let again = *i;
            t.check_end(c, &m, size, |t| t.copy_with(&again, &m.cell));
        });
    }

    /// Reads into the scratch register, which then replaces the operand.
    fn gpr_read(&mut self, i: &Instruction) {
        // A constant address may be in the scratch register until the value overwrites it.
        self.cur.scr_taken = !constant_address(i);
        let (Some(op), Some(m)) = (mem_op(i), self.mem(i)) else {
            return self.unsupported();
        };
        let size = i.memory_size().size();
        self.checked_read(SCR, size, &m);
        let high = (0..i.op_count())
            .any(|n| i.op_kind(n) == OpKind::Register && regs::is_high_byte(i.op_register(n)));
        if high {
            return self.copy_with(i, &m.cell);
        }
        self.copy(&with_register(
            i,
            op,
            gpr(SCR, forms::register_size(i, op).unwrap_or(size)),
        ));
    }

    fn gpr_rmw(&mut self, i: &Instruction) {
        self.cur.scr_taken = true;
        let (Some(op), Some(m)) = (mem_op(i), self.mem(i)) else {
            return self.unsupported();
        };
        let size = i.memory_size().size();
        self.checked_read(SCR, size, &m);
        if flags::reads(i) != 0 {
            // The store must fault before flags change that a repetition needs.
            self.a.store(m.real, SCR, size);
        }
        let high = (0..i.op_count())
            .any(|n| i.op_kind(n) == OpKind::Register && regs::is_high_byte(i.op_register(n)));
        // The memory form of a rotation leaves other undefined flags than the register form.
        let rotates = matches!(
            i.mnemonic(),
            Mnemonic::Rol | Mnemonic::Ror | Mnemonic::Rcl | Mnemonic::Rcr
        );
        if high || rotates {
            // `op [m], ah`: done on the cell, whose result is copied to memory.
            self.a.store(m.real, SCR, size);
            self.copy_with(i, &m.cell);
            self.a.load(SCR, size, m.cell);
            self.a.store(m.real, SCR, size);
            return;
        }
        self.copy(&with_register(i, op, gpr(SCR, size)));
        self.a.store(m.real, SCR, size);
        self.a.store(m.cell, SCR, size);
    }

    /// Stores twice: to memory, and to the cell.
    fn store(&mut self, i: &Instruction) {
        if mem_op(i).is_none() {
            return self.masked_move(i);
        }
        let Some(m) = self.mem(i) else {
            return self.unsupported();
        };
        self.copy_with(i, &m.real);
        self.copy_with(i, &m.cell);
    }

    fn scatter(&mut self, i: &Instruction) {
        let Some(m) = self.mem(i) else {
            return self.unsupported();
        };
        let k = i.op_mask();
        let at = asm::ctx(slot::VALUE);
        self.a.mr(Code::VEX_Kmovq_m64_kr, at, k);
        self.copy_with(i, &m.real);
        self.a.rm(Code::VEX_Kmovq_kr_km64, k, at);
        self.copy_with(i, &m.cell);
    }

    /// Checks `size` bytes word by word. Then the instruction reads the cell.
    fn read(&mut self, i: &Instruction, size: usize) {
        let wide = self.policy.wide_checks && matches!(size, 16 | 32 | 64);
        self.cur.scr_taken = !wide && !constant_address(i);
        let Some(m) = self.mem(i) else {
            return self.unsupported();
        };
        if wide {
            return self.wide_read(i, size, &m);
        }
        let last = m.plus(size as i64 - 1);
        if let (Some(base), Some(end), true) = (m.fixed, last.fixed, size > 8) {
            self.a.guest_address(SCR, end);
            self.a.load(SCR, 1, asm::based(SCR, 0));
            self.a.guest_address(SCR, base);
        }
        let mut c = self.check_before();
        let mut at = 0;
        while at < size {
            let n = [8, 4, 2, 1]
                .into_iter()
                .find(|n| at + n <= size)
                .unwrap_or(1);
            let part = m.plus(at as i64);
            if c.rcx_gone && m.uses(RCX) {
                self.a.unspill(RCX, slot::CHECK);
            }
            match part.fixed {
                // Each value overwrites the address.
                Some(here) if at > 0 => {
                    self.a.guest_address(SCR, here);
                    self.a.load(SCR, n, asm::based(SCR, 0));
                }
                _ => self.a.load(SCR, n, part.real),
            }
            if at == 0 && size > 8 && m.fixed.is_none() {
                self.emit_probe(&mut c, &last);
            }
            self.check_word(&mut c, SCR, n, &part);
            at += n;
        }
        self.check_end(c, &m, size, |_| {});
        self.copy_with(i, &m.cell);
    }

    /// The instruction runs on the cell, which is then copied to memory. The runtime has proven
    /// that the memory can be written, and has made the cell equal to it if the instruction may store nothing.
    fn pre_store(&mut self, i: &Instruction, size: usize) {
        let Some(m) = self.mem(i) else {
            return self.unsupported();
        };
        let free = self.free_for(&m);
        self.store_once(i, &m, size, free);
    }

    /// The instruction runs on the cell, which is copied to memory through register `free`.
    fn store_once(&mut self, i: &Instruction, m: &Mem, size: usize, free: u8) {
        self.copy_with(i, &m.cell);
        self.copy_cells(m, size, free);
    }

    /// Stores twice, as [`Translator::store`] does, but at first with the code `first`. If an exception of the x87 is not masked, stores
    /// once, as [`Translator::pre_store`] does.
    ///
    /// Both are in the hot half, where faults are expected. So both need the same borrowed registers.
    fn x87_store(&mut self, i: &Instruction, first: Code) {
        let size = i.memory_size().size();
        let Some(m) = self.mem(i) else {
            return self.unsupported();
        };
        let free = self.free_for(&m);
        let masked = self.if_x87_masks_all();
        let ask = self.a.jump_later(&[0xe9]);
        let asked = self.a.here();
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(ask, here);
        self.around_runtime(DescKind::PreCheck, size as u8, asked);
        self.a.cold(false);
        self.store_once(i, &m, size, free);
        // jmp
        let done = self.a.short(&[0xeb]);
        self.a.land(masked);
        self.a.unspill(RCX, slot::CHECK);
        let mut one = *i;
        one.set_code(first);
        self.copy_with(&one, &m.real);
        self.copy_with(i, &m.cell);
        self.a.land(done);
    }

    /// Emits a short jump that is taken if all exceptions of the x87 are masked. No flag changes. Where it leads, rcx still has to come
    /// back from `slot::CHECK`.
    fn if_x87_masks_all(&mut self) -> u32 {
        // The masks, and bit 6, which is always set. If it were not, the jump would not be taken, which is right, too.
        const ALL: i32 = 0x7f;
        let control = asm::ctx(slot::VALUE);
        match Instruction::with1(Code::Fnstcw_m2byte, control) {
            Ok(i) => self.a.put(&i),
            Err(_) => self.unsupported(),
        }
        self.a.spill(slot::CHECK, RCX);
        self.a.load(RCX, 1, control);
        self.a.lea(RCX, asm::based(RCX, -ALL));
        // jrcxz
        let masked = self.a.short(&[0xe3]);
        self.a.unspill(RCX, slot::CHECK);
        masked
    }

    /// A register that is free while the operand `m` is in use.
    fn free_for(&mut self, m: &Mem) -> u8 {
        if m.uses(SCR) { self.borrow_reg() } else { SCR }
    }

    /// Copies cells to memory, through register `t`.
    fn copy_cells(&mut self, m: &Mem, size: usize, t: u8) {
        let mut at = 0;
        while at < size {
            let n = [8, 4, 2, 1]
                .into_iter()
                .find(|n| at + n <= size)
                .unwrap_or(1);
            let part = m.plus(at as i64);
            self.a.load(t, n, part.cell);
            self.a.store(part.real, t, n);
            at += n;
        }
    }

    fn bit_mem(&mut self, i: &Instruction) {
        let Some(m) = self.mem(i) else {
            return self.unsupported();
        };
        if self.checked() && i.mnemonic() != Mnemonic::Bt {
            self.copy_with(i, &m.real);
            // Now the same on the cell, from the same flags: it changes only CF, to the same value.
        }
        if self.checked() && self.policy.predictor.bits == 32 {
            let mut cell = *i;
            cell.set_has_lock_prefix(false);
            return self.copy_with(&cell, &m.cell);
        }
        // The cell is found from the address of the word that holds the bit. In a replay the
        // processor must not add anything to an address itself. In a small predictor the operand's
        // cell would be the wrong one.
        let size = i.op_register(1).size();
        let (at, word, bits) = (self.borrow_reg(), self.borrow_reg(), self.borrow_reg());
        match m.fixed {
            Some(fixed) => self.a.guest_address(at, fixed),
            None => self.a.lea(at, m.real),
        }
        let extend = match size {
            2 => Code::Movsx_r64_rm16,
            4 => Code::Movsxd_r64_rm32,
            _ => Code::Mov_r64_rm64,
        };
        self.a.rr(extend, gpr(word, 8), i.op_register(1));
        self.a.imm(bits, (8 * size).trailing_zeros() as u64);
        let shift = Code::VEX_Sarx_r64_rm64_r64;
        match Instruction::with3(shift, gpr(word, 8), gpr(word, 8), gpr(bits, 8)) {
            Ok(i) => self.a.put(&i),
            Err(_) => self.a.failed = true,
        }
        let sum = MemoryOperand::with_base_index_scale(gpr(at, 8), gpr(word, 8), size as u32);
        if m.real.base.size() == 4 || m.real.index.size() == 4 || i.memory_displ_size() == 4 {
            self.a.rm(Code::Lea_r32_m, gpr(at, 4), sum);
        } else {
            self.a.lea(at, sum);
        }
        let Some(cell) = self.cell_of(&asm::based(at, 0)) else {
            return self.unsupported();
        };
        self.a.load(word, size, cell);
        self.copy(&with_register(i, 0, gpr(word, size)));
        if i.mnemonic() != Mnemonic::Bt {
            self.a.store(cell, word, size);
        }
    }
}

/// Whether the operand of `i` is a constant address without a segment.
fn constant_address(i: &Instruction) -> bool {
    let none = i.memory_base() == Register::None && i.memory_index() == Register::None;
    (none || i.is_ip_rel_memory_operand())
        && !matches!(i.segment_prefix(), Register::FS | Register::GS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Policy};
    use hindsight_isa::Predictor;

    #[test]
    fn state_restored_from_a_fixed_address_stays_where_it_is() {
        let mut t = Translator::new(Policy {
            mode: Mode::Record,
            predictor: Predictor::WINDOW,
            wide_checks: true,
        });
        // xrstor [rip+1000h], xrstor [rbx]
        let codes: [(&[u8], bool); 2] = [
            (&[0x0f, 0xae, 0x2d, 0, 0x10, 0, 0], true),
            (&[0x0f, 0xae, 0x2b], false),
        ];
        for (code, bound) in codes {
            let input = Input {
                pc: 0x1000,
                code,
                max_instrs: 1,
                self_check: false,
                peeked: &[],
            };
            t.translate(&input, &mut |_| &[]).unwrap();
            assert_eq!(t.block.bound, bound, "{code:x?}");
        }
    }
}
