//! Access marks of an observing replay. Each byte of the window has one byte in each of two access
//! maps, one for reads and one for writes. They tell which memory was accessed, at full speed.
//!
//! - A mark of a read is one instruction: the same operand, with the FS base.
//! - A mark of a write is four instructions, since there is no third segment base. It is two if the
//!   map is at an absolute address. Writes are rarer than reads.

use crate::asm::{based, ctx};
use crate::effective::{is_bit_string, popped, stores_state};
use crate::instead::way;
use crate::regs::{self, SCR, gpr};
use crate::translator::{Translator, slot};
use hindsight_isa::Lacking;
use hindsight_isa::ctx::d;
use hindsight_isa::observe::{APART, NEAR, WRITES};
use hindsight_isa::{DescKind, ctx::CNT_REG, ctx::SCR_REG};
use iced_x86::{Code, Instruction, MemoryOperand, Mnemonic, OpAccess, Register, UsedMemory};

/// Longest operand that translated code marks itself, in bytes.
const INLINE: usize = 64;

/// One term of an address.
#[derive(Clone, Copy)]
enum Term {
    /// A host register that holds the guest's value.
    Host(Register),
    /// A field of the context block.
    Field(i32),
}

impl Translator {
    /// Marks what `i` is about to access.
    pub(crate) fn observe(&mut self, i: &Instruction) {
        if i.is_string_instruction() {
            // The runtime marks it.
            return;
        }
        let list: alloc::vec::Vec<UsedMemory> = self.info.info(i).used_memory().to_vec();
        if list.iter().any(|m| is_accessed(&m)) && !inline(&self.lacking, i, &list) {
            return self.runtime(DescKind::PreCheck, 0, true);
        }
        let k = self.cur.index;
        for m in list.iter().filter(is_accessed) {
            let (reads, writes) = accesses(m);
            if reads && !self.is_marked(k, false) {
                let marks = self.read_marks(m);
                self.mark_operand(i, m, marks);
            }
            if writes && !self.is_marked(k, true) && !self.mark_together(k) {
                let marks = self.write_marks(m);
                self.mark_operand(i, m, marks);
            }
        }
    }

    fn mark_operand(&mut self, i: &Instruction, m: &UsedMemory, marks: MemoryOperand) {
        match masked_store(i, m) {
            Some(code) => self.mark_masked(marks, code, i.op_mask()),
            None => self.emit_access_marks(marks, 0, m.memory_size().size()),
        }
    }

    /// The operand at which the marks of reads of `m` are.
    fn read_marks(&mut self, m: &UsedMemory) -> MemoryOperand {
        let lent = |r: Register| {
            let n = regs::number(r).map(usize::from);
            n == Some(SCR_REG) || n == Some(CNT_REG)
        };
        let segment = matches!(m.segment(), Register::FS | Register::GS);
        if segment || lent(m.base()) || lent(m.index()) {
            self.address(m);
            return MemoryOperand {
                segment_prefix: Register::FS,
                ..based(SCR, APART)
            };
        }
        let low = |r: Register| regs::number(r).map_or(Register::None, |n| gpr(n, 4));
        let (base, index) = (low(m.base()), low(m.index()));
        let displacement = (m.displacement() as u32 as i32).wrapping_add(APART);
        // A constant address in the instruction does not move with the block.
        self.a.bound |= base == Register::None && index == Register::None;
        MemoryOperand {
            segment_prefix: Register::FS,
            base,
            index,
            scale: if index == Register::None {
                1
            } else {
                m.scale()
            },
            displacement: displacement as i64,
            displ_size: match base {
                Register::None => 4,
                // One byte, if the value fits.
                _ => (displacement != 0) as u32,
            },
            is_broadcast: false,
        }
    }

    /// The operand at which the marks of writes of `m` are. Uses the scratch register.
    fn write_marks(&mut self, m: &UsedMemory) -> MemoryOperand {
        self.address(m);
        self.written_from()
    }

    /// The operand at which the marks of writes are, for memory at `base` plus `displacement`.
    pub(crate) fn write_marks_from(&mut self, base: Register, displacement: i32) -> MemoryOperand {
        self.lea32(MemoryOperand::with_base_displ_size(
            base,
            displacement as i64,
            // One byte, if the value fits.
            (displacement != 0) as u32,
        ));
        self.written_from()
    }

    /// The operand at which the marks of writes are, for the address in the scratch register.
    fn written_from(&mut self) -> MemoryOperand {
        if self.near {
            return based(SCR, NEAR);
        }
        // The map is further away than a displacement of 32 bits can say.
        let mut left = WRITES - hindsight_isa::ctx::APART as i64;
        while i32::try_from(left).is_err() {
            self.a.lea(SCR, based(SCR, i32::MIN));
            left -= i32::MIN as i64;
        }
        MemoryOperand {
            segment_prefix: Register::GS,
            ..based(SCR, left as i32)
        }
    }

    /// Computes the low 32 bits of an operand's address in the scratch register.
    fn address(&mut self, m: &UsedMemory) {
        let low = |r: Register| match regs::number(r) {
            Some(n) if n as usize == SCR_REG || n as usize == CNT_REG => {
                Some(Term::Field(d::GPR + 8 * n as i32))
            }
            Some(n) => Some(Term::Host(gpr(n, 8))),
            None => None,
        };
        let base = low(m.base());
        let index = low(m.index());
        let segment = match m.segment() {
            Register::FS => Some(Term::Field(d::FS_BASE)),
            Register::GS => Some(Term::Field(d::GS_BASE)),
            _ => None,
        };
        let disp = m.displacement() as u32 as i32;
        // Base and index are in host registers: one instruction.
        if segment.is_none()
            && !matches!(base, Some(Term::Field(_)))
            && !matches!(index, Some(Term::Field(_)))
        {
            let host = |t: Option<Term>| match t {
                Some(Term::Host(r)) => r,
                _ => Register::None,
            };
            let (b, x) = (host(base), host(index));
            if b == Register::None && x == Register::None {
                return self.a.imm(SCR, disp as u32 as u64);
            }
            let scale = if x == Register::None { 1 } else { m.scale() };
            let size = match b {
                Register::None => 8,
                // One byte, if the value fits.
                _ => (disp != 0) as u32,
            };
            self.lea32(MemoryOperand::new(
                b,
                x,
                scale,
                disp as i64,
                size,
                false,
                Register::None,
            ));
            return;
        }
        self.sum([(segment, 1), (base, 1), (index, m.scale())], disp);
    }

    /// Adds up terms, each times its scale, and a displacement in the scratch register.
    fn sum(&mut self, mut terms: [(Option<Term>, u32); 3], disp: i32) {
        let scr = gpr(SCR, 8);
        // A term that is in memory is loaded to where the sum will be.
        let field = |t: &(Option<Term>, u32)| match t.0 {
            Some(Term::Field(at)) => Some((at, t.1)),
            _ => None,
        };
        let first = terms.iter().position(|t| field(t).is_some());
        if let Some(k) = first
            && let Some((at, scale)) = field(&terms[k])
        {
            self.a.load(SCR, 4, ctx(at));
            terms[k].0 = None;
            // The next term and the displacement can be added by the same `lea`.
            let next = terms
                .iter()
                .position(|t| matches!(t.0, Some(Term::Host(_))));
            let with = next.and_then(|n| match terms[n] {
                (Some(Term::Host(r)), its) if scale == 1 || its == 1 => {
                    terms[n].0 = None;
                    Some((r, its))
                }
                _ => None,
            });
            let size = (disp != 0) as u32;
            let sum = match with {
                None if scale == 1 => based(SCR, disp),
                None => MemoryOperand::new(
                    Register::None,
                    scr,
                    scale,
                    disp as i64,
                    4,
                    false,
                    Register::None,
                ),
                // The stack pointer cannot be an index.
                Some((r, 1)) => {
                    MemoryOperand::new(r, scr, scale, disp as i64, size, false, Register::None)
                }
                Some((r, its)) => {
                    MemoryOperand::new(scr, r, its, disp as i64, size, false, Register::None)
                }
            };
            if with.is_some() || scale != 1 || disp != 0 {
                self.lea32(sum);
            }
        } else {
            self.a.imm(SCR, disp as u32 as u64);
        }
        // The other terms follow one by one. Those in memory go through a borrowed register.
        for (term, scale) in terms {
            match term {
                None => {}
                Some(Term::Host(r)) if r == Register::RSP => {
                    self.lea32(MemoryOperand::with_base_index(r, scr));
                }
                Some(Term::Host(r)) => {
                    self.lea32(MemoryOperand::with_base_index_scale(scr, r, scale));
                }
                Some(Term::Field(at)) => {
                    self.a.spill(slot::LENT, regs::RAX);
                    self.a.load(regs::RAX, 8, ctx(at));
                    let sum = MemoryOperand::with_base_index_scale(scr, gpr(regs::RAX, 8), scale);
                    self.lea32(sum);
                    self.a.unspill(regs::RAX, slot::LENT);
                }
            }
        }
    }

    fn lea32(&mut self, m: MemoryOperand) {
        self.a.rm(Code::Lea_r32_m, gpr(SCR, 4), m);
    }

    /// Marks the elements that a mask register selects, with a store of ones under the same mask.
    fn mark_masked(&mut self, marks: MemoryOperand, store: Code, mask: Register) {
        let ones = Register::ZMM31;
        self.a
            .mr(Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm, ctx(d::ZMM31), ones);
        let set = Code::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8;
        match Instruction::with4(set, ones, ones, ones, 0xff) {
            Ok(i) => self.a.put(&i),
            Err(_) => self.a.failed = true,
        }
        let source = match store {
            Code::EVEX_Vmovdqu8_xmmm128_k1z_xmm
            | Code::EVEX_Vmovdqu16_xmmm128_k1z_xmm
            | Code::EVEX_Vmovdqu32_xmmm128_k1z_xmm
            | Code::EVEX_Vmovdqu64_xmmm128_k1z_xmm => Register::XMM31,
            Code::EVEX_Vmovdqu8_ymmm256_k1z_ymm
            | Code::EVEX_Vmovdqu16_ymmm256_k1z_ymm
            | Code::EVEX_Vmovdqu32_ymmm256_k1z_ymm
            | Code::EVEX_Vmovdqu64_ymmm256_k1z_ymm => Register::YMM31,
            _ => ones,
        };
        match Instruction::with2(store, marks, source) {
            Ok(mut i) => {
                i.set_op_mask(mask);
                self.a.put(&i);
            }
            Err(_) => self.a.failed = true,
        }
        self.a
            .rm(Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512, ones, ctx(d::ZMM31));
    }

    /// Marks `size` bytes, beginning `from` bytes behind `marks`.
    pub(crate) fn emit_access_marks(&mut self, marks: MemoryOperand, from: usize, size: usize) {
        let mut at = from;
        while at < from + size {
            let (n, code) = match from + size - at {
                8.. => (8, Code::Mov_rm64_imm32),
                4.. => (4, Code::Mov_rm32_imm32),
                2.. => (2, Code::Mov_rm16_imm16),
                _ => (1, Code::Mov_rm8_imm8),
            };
            let displacement = (marks.displacement as i32).wrapping_add(at as i32);
            let m = MemoryOperand {
                displacement: displacement as i64,
                displ_size: marks.displ_size.max((displacement != 0) as u32),
                ..marks
            };
            match Instruction::with2(code, m, -1i32) {
                Ok(i) => self.a.put(&i),
                Err(_) => self.a.failed = true,
            }
            at += n;
        }
    }
}

/// Whether the operand is accessed.
pub(crate) fn is_accessed(m: &&UsedMemory) -> bool {
    !matches!(m.access(), OpAccess::None | OpAccess::NoMemAccess)
}

/// Whether an operand is read, and whether it is written.
pub(crate) fn accesses(m: &UsedMemory) -> (bool, bool) {
    match m.access() {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        _ => (true, true),
    }
}

/// Whether a mask register selects which elements of the memory operand are accessed.
fn by_mask(i: &Instruction) -> bool {
    i.op_mask() != Register::None && !i.is_broadcast()
}

/// The store that writes the elements of `m` that the instruction's mask selects.
fn masked_store(i: &Instruction, m: &UsedMemory) -> Option<Code> {
    use Mnemonic::*;
    let packed = matches!(
        i.mnemonic(),
        Vpcompressb
            | Vpcompressw
            | Vpcompressd
            | Vpcompressq
            | Vcompressps
            | Vcompresspd
            | Vpexpandb
            | Vpexpandw
            | Vpexpandd
            | Vpexpandq
            | Vexpandps
            | Vexpandpd
    );
    if !by_mask(i) || packed {
        return None;
    }
    let size = m.memory_size();
    Some(match (size.element_size(), size.size()) {
        (1, 16) => Code::EVEX_Vmovdqu8_xmmm128_k1z_xmm,
        (1, 32) => Code::EVEX_Vmovdqu8_ymmm256_k1z_ymm,
        (1, 64) => Code::EVEX_Vmovdqu8_zmmm512_k1z_zmm,
        (2, 16) => Code::EVEX_Vmovdqu16_xmmm128_k1z_xmm,
        (2, 32) => Code::EVEX_Vmovdqu16_ymmm256_k1z_ymm,
        (2, 64) => Code::EVEX_Vmovdqu16_zmmm512_k1z_zmm,
        (4, 16) => Code::EVEX_Vmovdqu32_xmmm128_k1z_xmm,
        (4, 32) => Code::EVEX_Vmovdqu32_ymmm256_k1z_ymm,
        (4, 64) => Code::EVEX_Vmovdqu32_zmmm512_k1z_zmm,
        (8, 16) => Code::EVEX_Vmovdqu64_xmmm128_k1z_xmm,
        (8, 32) => Code::EVEX_Vmovdqu64_ymmm256_k1z_ymm,
        (8, 64) => Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm,
        _ => return None,
    })
}

/// Whether translated code can tell the addresses and lengths of all operands.
pub(crate) fn inline(lacking: &Lacking, i: &Instruction, list: &[UsedMemory]) -> bool {
    use Mnemonic::*;
    // Marks under a mask are made by an instruction of AVX-512.
    let marked = way(lacking, i).is_none();
    let elsewhere = is_bit_string(i) || popped(i) != 0;
    let masked = list
        .iter()
        .any(|m| by_mask(i) && !(marked && masked_store(i, m).is_some()))
        || matches!(
            i.mnemonic(),
            Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq | Maskmovq | Maskmovdqu | Vmaskmovdqu
        );
    let unknown = stores_state(i.mnemonic());
    let plain = |r: Register| r == Register::None || (r.is_gpr() && r.size() >= 4);
    !elsewhere
        && !masked
        && !unknown
        && list.iter().all(|m| {
            (1..=INLINE).contains(&m.memory_size().size())
                && (plain(m.base()) || matches!(m.base(), Register::RIP | Register::EIP))
                && plain(m.index())
        })
}
