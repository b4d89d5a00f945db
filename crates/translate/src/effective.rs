//! Where operands are: addresses of memory, computed from the values of registers.
//!
//! This is for runtimes, which execute or examine single instructions. Translated code computes its
//! addresses by itself, with the operands that [`crate::operand`] makes.

use hindsight_isa::{CpuState, Ctx};
use iced_x86::{Instruction, Mnemonic, OpKind, Register, UsedMemory};

/// The registers that addresses are made of.
#[derive(Clone, Copy)]
pub struct Registers<'a> {
    /// The general ones, by hardware number.
    pub gpr: &'a [u64; 16],
    /// The FS base.
    pub fs_base: u64,
    /// The GS base.
    pub gs_base: u64,
}

impl<'a> From<&'a Ctx> for Registers<'a> {
    fn from(c: &'a Ctx) -> Self {
        Registers {
            gpr: &c.gpr,
            fs_base: c.fs_base,
            gs_base: c.gs_base,
        }
    }
}

impl<'a> From<&'a CpuState> for Registers<'a> {
    fn from(s: &'a CpuState) -> Self {
        Registers {
            gpr: &s.gpr,
            fs_base: s.fs_base,
            gs_base: s.gs_base,
        }
    }
}

impl Registers<'_> {
    /// The value of a register as operands name it: a general one or a part of it, or a segment's
    /// base. `None` for others.
    pub fn value(&self, r: Register) -> Option<u64> {
        match r {
            Register::None => return Some(0),
            // The displacement already is the address.
            Register::RIP | Register::EIP => return Some(0),
            Register::FS => return Some(self.fs_base),
            Register::GS => return Some(self.gs_base),
            _ if r.is_segment_register() => return Some(0),
            _ if !r.is_gpr() => return None,
            _ => {}
        }
        let v = self.gpr[r.full_register().number() & 15];
        Some(match r.size() {
            8 => v,
            4 => v as u32 as u64,
            2 => v as u16 as u64,
            _ if crate::regs::is_high_byte(r) => v >> 8 & 0xff,
            _ => v & 0xff,
        })
    }

    /// The address of operand `op` of `i`, which is in memory. `None` if that is made of a vector.
    pub fn operand(&self, i: &Instruction, op: u32) -> Option<u64> {
        i.virtual_address(op, 0, |r, _, _| self.value(r))
    }

    /// Where `i` accesses memory `m`, which is one of those that it uses. `None` if its address is
    /// made of a vector.
    pub fn used(&self, i: &Instruction, m: &UsedMemory, written: bool) -> Option<u64> {
        let at = m.virtual_address(0, |r, _, _| self.value(r))?;
        let popped = if written { popped(i) } else { 0 };
        Some(self.bit_string(i, at).wrapping_add(popped))
    }

    /// Where a bit test accesses memory whose operand is at `at`: a register may select a bit far
    /// from there. `at` for all other instructions.
    pub fn bit_string(&self, i: &Instruction, at: u64) -> u64 {
        if !is_bit_string(i) {
            return at;
        }
        let r = i.op1_register();
        let size = r.size() as u64;
        let offset = self.value(r).unwrap_or(0);
        let unused = 64 - 8 * size as u32;
        let signed = ((offset << unused) as i64) >> unused;
        let words = signed.div_euclid(8 * size as i64) as u64;
        self.beyond(i, at, words.wrapping_mul(size))
    }

    /// The address so many bytes behind `at`, the operand of `i` in memory, as processors reckon it where they access the parts of
    /// an operand one by one.
    pub fn beyond(&self, i: &Instruction, at: u64, bytes: u64) -> u64 {
        let to = at.wrapping_add(bytes);
        let short = i.memory_base().size() == 4
            || i.memory_index().size() == 4
            || i.memory_displ_size() == 4;
        if !short {
            return to;
        }
        // Short addresses wrap before the segment's base is added.
        let segment = self.value(i.memory_segment()).unwrap_or(0);
        segment.wrapping_add(to.wrapping_sub(segment) as u32 as u64)
    }
}

/// Whether `i` tests a bit in memory that a register selects: it may reach beyond its operand.
pub fn is_bit_string(i: &Instruction) -> bool {
    use Mnemonic::{Bt, Btc, Btr, Bts};
    matches!(i.mnemonic(), Bt | Bts | Btr | Btc)
        && i.op0_kind() == OpKind::Memory
        && i.op1_kind() == OpKind::Register
}

/// Bytes to add to the address of the memory that `i` writes, as its operand states it. A pop to
/// memory counts its address from the stack pointer after the pop.
pub fn popped(i: &Instruction) -> u64 {
    let to_memory = i.mnemonic() == Mnemonic::Pop && i.op0_kind() == OpKind::Memory;
    match to_memory && i.memory_base().full_register() == Register::RSP {
        true => i.memory_size().size() as u64,
        false => 0,
    }
}

/// An operand whose address is a sum of whole general registers and a constant. It is computed
/// faster than one of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum {
    base: Option<u8>,
    index: Option<u8>,
    scale: u64,
    displacement: u64,
}

impl Sum {
    /// The address of `m` as a sum. `None` if it is none: it has a segment with a base, or other
    /// registers.
    pub fn of(m: &UsedMemory) -> Option<Sum> {
        let register = |r: Register| match r {
            Register::None | Register::RIP => Some(None),
            r if r.is_gpr64() => Some(Some(r.number() as u8)),
            _ => None,
        };
        if matches!(m.segment(), Register::FS | Register::GS) {
            return None;
        }
        Some(Sum {
            base: register(m.base())?,
            index: register(m.index())?,
            scale: m.scale() as u64,
            displacement: m.displacement(),
        })
    }

    /// The address.
    pub fn address(&self, gpr: &[u64; 16]) -> u64 {
        let register = |r: Option<u8>| r.map_or(0, |r| gpr[r as usize & 15]);
        register(self.base)
            .wrapping_add(register(self.index).wrapping_mul(self.scale))
            .wrapping_add(self.displacement)
    }
}

/// Whether an instruction stores state of the processor: in a layout, and partly of values, that its operands do not tell.
pub fn stores_state(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Xsave
            | Xsave64
            | Xsavec
            | Xsavec64
            | Xsaveopt
            | Xsaveopt64
            | Fxsave
            | Fxsave64
            | Fnsave
            | Fsave
            | Fnstenv
            | Fstenv
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_isa::regs;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    fn state() -> CpuState {
        let mut s = CpuState {
            gpr: core::array::from_fn(|n| 0x1_0000_0000 * n as u64 + 0x100 * n as u64),
            fs_base: 0x7000_0000_0000,
            gs_base: 0x6000_0000_0000,
            ..CpuState::default()
        };
        s.gpr[regs::RAX] = 0x1234_5678_9abc_def0;
        s
    }

    fn decoded(code: &[u8]) -> Instruction {
        Decoder::with_ip(64, code, 0x40_0000, DecoderOptions::NONE).decode()
    }

    /// The address of the first operand that `code` has in memory.
    fn address(code: &[u8], s: &CpuState) -> u64 {
        let i = decoded(code);
        let r = Registers::from(s);
        let op = (0..i.op_count()).find(|n| i.op_kind(*n) == OpKind::Memory);
        let at = r.operand(&i, op.unwrap()).unwrap();
        r.bit_string(&i, at).wrapping_add(popped(&i))
    }

    #[test]
    fn parts_of_registers() {
        let s = state();
        let r = Registers::from(&s);
        for (register, want) in [
            (Register::RAX, 0x1234_5678_9abc_def0),
            (Register::EAX, 0x9abc_def0),
            (Register::AX, 0xdef0),
            (Register::AL, 0xf0),
            (Register::AH, 0xde),
            (Register::FS, 0x7000_0000_0000),
            (Register::GS, 0x6000_0000_0000),
            (Register::DS, 0),
            (Register::None, 0),
        ] {
            assert_eq!(r.value(register), Some(want), "{register:?}");
        }
        assert_eq!(r.value(Register::XMM0), None);
    }

    #[test]
    fn operands() {
        let mut s = state();
        (s.gpr[regs::RBX], s.gpr[regs::RSI]) = (0x5000, 0x10);
        // mov rax, [rbx + 4 * rsi + 8]
        assert_eq!(address(b"\x48\x8b\x44\xb3\x08", &s), 0x5048);
        // mov rax, fs:[rbx]
        assert_eq!(address(b"\x64\x48\x8b\x03", &s), 0x7000_0000_5000);
        // mov eax, [rip + 0x10]
        assert_eq!(address(b"\x8b\x05\x10\0\0\0", &s), 0x40_0016);
        s.gpr[regs::RBX] = 0xffff_ffff_ffff_fff0;
        // mov eax, [ebx + 0x20] wraps.
        assert_eq!(address(b"\x67\x8b\x43\x20", &s), 0x10);
    }

    #[test]
    fn bits_far_from_their_operand() {
        let mut s = state();
        (s.gpr[regs::RBX], s.gpr[regs::RCX]) = (0x5000, 64 * 3 + 1);
        // bt [rbx], rcx
        assert_eq!(address(b"\x48\x0f\xa3\x0b", &s), 0x5018);
        s.gpr[regs::RCX] = -1i64 as u64;
        assert_eq!(address(b"\x48\x0f\xa3\x0b", &s), 0x4ff8);
        // bt [rbx], cx: only the low half counts.
        s.gpr[regs::RCX] = 0x8000;
        assert_eq!(address(b"\x66\x0f\xa3\x0b", &s), 0x4000);
        // bts [ebx], ecx with a short address wraps, before fs is added.
        (s.gpr[regs::RBX], s.gpr[regs::RCX]) = (0, -32i32 as u32 as u64);
        assert_eq!(address(b"\x67\x0f\xab\x0b", &s), 0xffff_fffc);
        assert_eq!(address(b"\x64\x67\x0f\xab\x0b", &s), 0x7000_ffff_fffc);
        // bt dword [rbx], 77: the constant does not reach beyond the operand.
        s.gpr[regs::RBX] = 0x5000;
        assert_eq!(address(b"\x0f\xba\x23\x4d", &s), 0x5000);
    }

    #[test]
    fn short_addresses_wrap_between_elements() {
        let mut s = state();
        (s.gpr[regs::RBX], s.gpr[regs::RCX]) = (0x1_ffff_fffc, 0);
        // vmaskmovps xmm0, xmm1, with the operand at [ebx], fs:[ebx], [rbx] and [ebx + ecx]
        for (code, first, third) in [
            (&b"\x67\xc4\xe2\x71\x2c\x03"[..], 0xffff_fffc, 4),
            (
                b"\x64\x67\xc4\xe2\x71\x2c\x03",
                0x7000_ffff_fffc,
                0x7000_0000_0004,
            ),
            (b"\xc4\xe2\x71\x2c\x03", 0x1_ffff_fffc, 0x2_0000_0004),
            (b"\x67\xc4\xe2\x71\x2c\x04\x0b", 0xffff_fffc, 4),
        ] {
            let (i, registers) = (decoded(code), Registers::from(&s));
            let at = registers.operand(&i, 2).unwrap();
            assert_eq!(
                (at, registers.beyond(&i, at, 8)),
                (first, third),
                "{code:x?}"
            );
        }
    }

    #[test]
    fn pops_count_from_the_new_stack_pointer() {
        let mut s = state();
        s.gpr[regs::RSP] = 0x8000;
        // pop qword [rsp + 8], pop qword [rbx]
        assert_eq!(address(b"\x8f\x44\x24\x08", &s), 0x8010);
        assert_eq!(address(b"\x8f\x03", &s), s.gpr[regs::RBX]);
    }

    #[test]
    fn sums_are_what_the_library_computes() {
        let mut s = state();
        (s.gpr[regs::RBX], s.gpr[regs::RSI]) = (0x5000, -3i64 as u64);
        let mut info = InstructionInfoFactory::new();
        for code in [
            &b"\x48\x8b\x44\xb3\x08"[..],
            b"\x8b\x05\x10\0\0\0",
            b"\x50",
            b"\xff\x34\x24",
        ] {
            let i = decoded(code);
            for m in info.info(&i).used_memory() {
                let sum = Sum::of(m).unwrap();
                let want = Registers::from(&s).used(&i, m, false);
                assert_eq!(Some(sum.address(&s.gpr)), want, "{code:x?}");
            }
        }
        for code in [&b"\x67\x8b\x03"[..], b"\x64\x48\x8b\x03"] {
            let i = decoded(code);
            assert!(
                info.info(&i)
                    .used_memory()
                    .iter()
                    .all(|m| Sum::of(m).is_none())
            );
        }
    }
}
