//! Replay for the sake of finding out who changes what: atomic operations begin blocks of their own, and
//! stores look into a table whether their place is watched.

use crate::asm;
use crate::block::{Translator, slot};
use crate::regs::{CNT, RCX, SCR, gpr, number};
use alloc::vec::Vec;
use hindsight_isa::DescKind;
use hindsight_isa::ctx::d;
use iced_x86::{
    Code, Instruction, MemoryOperand, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

/// Whether an instruction is recorded as an atomic operation.
pub fn is_atomic(i: &Instruction) -> bool {
    use Mnemonic::*;
    let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
    memory
        && (i.has_lock_prefix()
            || matches!(i.mnemonic(), Xchg | Xadd | Cmpxchg | Cmpxchg8b | Cmpxchg16b))
}

/// Bytes of the table of watched places: one for each 256 bytes of the 40 lowest bits of an address.
pub const WATCH_TABLE: usize = 1 << 32;

/// Index in that table of an address.
pub fn watch_index(addr: u64) -> usize {
    (addr >> 8) as u32 as usize
}

/// Whether its stores cannot be found from its operands alone.
pub(crate) fn is_opaque(i: &Instruction) -> bool {
    let far = matches!(i.mnemonic(), Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
        && i.op_kind(1) == OpKind::Register
        && i.op_kind(0) == OpKind::Memory;
    use Mnemonic::*;
    let state = matches!(
        i.mnemonic(),
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Fxsave | Fxsave64
    );
    far || state || i.is_string_instruction() || i.memory_index().is_vector_register()
}

impl Translator {
    /// Leaves for the runtime before `i` if the table says that it may write what is watched.
    pub(crate) fn watch_stores(&mut self, i: &Instruction, table: u64) {
        let writes: Vec<UsedMemory> = {
            let all = self.info.info(i).used_memory().iter();
            let write = |m: &&UsedMemory| {
                matches!(
                    m.access(),
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                )
            };
            all.filter(write).copied().collect()
        };
        for m in &writes {
            let before = self.cur;
            self.watch_store(m, table);
            self.cur = before;
        }
    }

    fn watch_store(&mut self, m: &UsedMemory, table: u64) {
        let (at, v) = (self.borrow_reg(), self.borrow_reg());
        self.a.imm(at, m.displacement());
        for (r, scale) in [(m.base(), 1), (m.index(), m.scale())] {
            let Some(n) = number(r) else { continue };
            if n == SCR || n == CNT {
                self.a.unspill(v, d::GPR + 8 * n as i32);
            } else {
                self.a.mov(v, n);
            }
            if r.size() == 4 {
                self.a.rr(Code::Mov_r32_rm32, gpr(v, 4), gpr(v, 4));
            }
            let sum = MemoryOperand::with_base_index_scale(gpr(at, 8), gpr(v, 8), scale);
            self.a.lea(at, sum);
        }
        let base = match m.segment() {
            Register::FS => Some(d::FS_BASE),
            Register::GS => Some(d::GS_BASE),
            _ => None,
        };
        if let Some(base) = base {
            self.a.unspill(v, base);
            self.a
                .lea(at, MemoryOperand::with_base_index(gpr(at, 8), gpr(v, 8)));
        }
        // Bits 8 to 39, without touching flags: from memory, a byte further on.
        self.a.spill(slot::VALUE, at);
        self.a.load(v, 4, asm::ctx(slot::VALUE + 1));
        self.a.imm(at, table);
        self.a
            .lea(at, MemoryOperand::with_base_index(gpr(at, 8), gpr(v, 8)));
        if v != RCX {
            self.borrow_this(RCX);
        }
        self.a.load(RCX, 1, asm::based(at, 0));
        // jrcxz
        let free = self.a.short(&[0xe3]);
        let hit = self.a.jump_later(&[0xe9]);
        self.a.land(free);
        self.release();
        let back = self.a.here();
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(hit, here);
        self.around_runtime(DescKind::Watch, back);
        self.a.cold(false);
    }
}
