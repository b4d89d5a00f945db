//! Replay that finds out who changes certain memory. Atomic operations begin blocks of their own.
//! Stores look into a table whether their memory is watched.

use crate::asm;
use crate::effective::{is_bit_string, popped};
use crate::regs::{CNT, RCX, SCR, gpr, number};
use crate::translator::{Translator, slot};
use alloc::vec::Vec;
use hindsight_isa::DescKind;
use hindsight_isa::ctx::d;
use iced_x86::{
    Code, CodeSize, Instruction, MemoryOperand, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

/// Whether an instruction is recorded as an atomic operation.
pub fn is_atomic(i: &Instruction) -> bool {
    use Mnemonic::*;
    let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
    memory
        && (i.has_lock_prefix()
            || matches!(i.mnemonic(), Xchg | Xadd | Cmpxchg | Cmpxchg8b | Cmpxchg16b))
}

/// Bytes of the table of watched memory: one for each 256 bytes of address space, by the low 40
/// bits of the address.
pub const WATCH_TABLE: u64 = 1 << 32;

/// Bytes of the longest store that is looked up in the table. Longer ones are opaque.
const LONGEST: u64 = 64;

/// The entries to set so that no store to the eight bytes at `word` is missed. A store may begin at
/// the word, or as far before it as the longest store reaches.
pub fn watch_indices(word: u64) -> [usize; 2] {
    [word, word.wrapping_sub(LONGEST - 1)].map(watch_index)
}

/// The table's entry for a store that begins at `addr`.
fn watch_index(addr: u64) -> usize {
    (addr >> 8) as u32 as usize
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

impl Translator {
    /// Whether the operands of `i` do not tell where it writes.
    pub(crate) fn is_opaque(&mut self, i: &Instruction) -> bool {
        let far = is_bit_string(i) && i.mnemonic() != Mnemonic::Bt;
        // Instructions that save the processor's state write more, or an unknown number of bytes.
        let short = 1..=LONGEST as usize;
        let long = |m: &UsedMemory| writes(m.access()) && !short.contains(&m.memory_size().size());
        far || i.is_string_instruction()
            || i.memory_index().is_vector_register()
            || self.info.info(i).used_memory().iter().any(long)
    }

    /// Leaves for the runtime before `i` if the table says that `i` may write watched memory.
    pub(crate) fn watch_stores(&mut self, i: &Instruction, table: u64) {
        let writes: Vec<UsedMemory> = {
            let all = self.info.info(i).used_memory().iter();
            all.filter(|m| writes(m.access())).copied().collect()
        };
        for m in &writes {
            let before = self.cur;
            self.watch_store(m, popped(i), table);
            self.cur = before;
        }
    }

    fn watch_store(&mut self, m: &UsedMemory, popped: u64, table: u64) {
        let (at, v) = (self.borrow_reg(), self.borrow_reg());
        self.a.imm(at, m.displacement().wrapping_add(popped));
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
        if m.address_size() == CodeSize::Code32 {
            // The sum wraps before the segment's base is added.
            self.a.rr(Code::Mov_r32_rm32, gpr(at, 4), gpr(at, 4));
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
        // Bits 8 to 39 of the address, without changing flags: they are loaded from memory, one
        // byte further on.
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
        self.around_runtime(DescKind::Watch, 0, back);
        self.a.cold(false);
    }
}
