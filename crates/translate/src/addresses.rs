//! Addresses of a block's operands, in terms of the values that registers have had. So two operands
//! of different instructions can be compared.
//!
//! Example: after `add rdi, 32`, the operand `[rdi - 32]` has the address that `[rdi]` had before.

use crate::regs::{RSP, number};
use iced_x86::{
    Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register, UsedMemory, UsedRegister,
};

/// A value that a register has had. A register gets a new version when its value is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    /// Hardware number of the register.
    pub register: u8,
    version: u32,
}

/// An address in terms of registers' values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// The value of the base register, if there is one.
    pub base: Option<Value>,
    /// The value of the index register and its scale, if there is one.
    pub index: Option<(Value, u32)>,
    /// FS, GS or none.
    pub segment: Register,
    /// What is added, together with all constants added to the registers so far.
    pub displacement: i64,
}

impl Address {
    /// How many bytes `self` lies behind `other`. `None` unless only their displacements differ.
    pub fn behind(&self, other: &Address) -> Option<i64> {
        let same = Address {
            displacement: other.displacement,
            ..*self
        };
        (same == *other).then(|| self.displacement.wrapping_sub(other.displacement))
    }
}

/// What is known of the registers while a run of instructions is gone through.
#[derive(Default)]
pub(crate) struct Registers {
    versions: [u32; 16],
    /// The constants added to each register since its present version began.
    pub sums: [i64; 16],
}

impl Registers {
    fn value(&self, r: Register) -> Option<Value> {
        let register = number(r).filter(|_| r.size() == 8)?;
        let version = self.versions[register as usize];
        Some(Value { register, version })
    }

    /// The address of an operand. `None` if one of its registers is not followed: that has fewer
    /// than 64 bits, or is a vector.
    pub fn address(&self, m: &UsedMemory) -> Option<Address> {
        let mut displacement = m.displacement() as i64;
        let mut part = |r: Register, scale: u32| match r {
            Register::None => Some(None),
            _ => {
                let v = self.value(r)?;
                let sum = self.sums[v.register as usize].wrapping_mul(scale as i64);
                displacement = displacement.wrapping_add(sum);
                Some(Some(v))
            }
        };
        let base = match m.base() {
            // With RIP as base, the displacement is the address.
            Register::RIP => None,
            r => part(r, 1)?,
        };
        let index = part(m.index(), m.scale())?.map(|v| (v, m.scale()));
        let segment = match m.segment() {
            s @ (Register::FS | Register::GS) => s,
            _ => Register::None,
        };
        Some(Address {
            base,
            index,
            segment,
            displacement,
        })
    }

    /// Follows the execution of `i`.
    pub fn pass(&mut self, i: &Instruction, info: &InstructionInfo) {
        let sum = sum(i);
        let mut written = 0u16;
        for n in info.used_registers().iter().filter_map(changed) {
            written |= 1 << n;
        }
        for n in (0..16).filter(|n| written & (1 << n) != 0) {
            match sum {
                Some((r, by)) if r == n => {
                    self.sums[n as usize] = self.sums[n as usize].wrapping_add(by);
                }
                _ => {
                    self.versions[n as usize] += 1;
                    self.sums[n as usize] = 0;
                }
            }
        }
    }
}

/// Hardware number of a register that the instruction writes.
fn changed(r: &UsedRegister) -> Option<u8> {
    use OpAccess::{CondRead, NoMemAccess, None, Read};
    number(r.register()).filter(|_| !matches!(r.access(), Read | CondRead | None | NoMemAccess))
}

/// The register to which `i` adds a constant, and the constant.
fn sum(i: &Instruction) -> Option<(u8, i64)> {
    let to = || number(i.op0_register()).filter(|_| i.op0_register().size() == 8);
    match i.mnemonic() {
        Mnemonic::Push => Some((RSP, i.stack_pointer_increment() as i64)),
        Mnemonic::Pop
            if i.op0_kind() == OpKind::Register && number(i.op0_register()) != Some(RSP) =>
        {
            Some((RSP, i.stack_pointer_increment() as i64))
        }
        Mnemonic::Add | Mnemonic::Sub if i.op0_kind() == OpKind::Register => {
            let n = i.try_immediate(1).ok()? as i64;
            let n = if i.mnemonic() == Mnemonic::Sub {
                n.wrapping_neg()
            } else {
                n
            };
            Some((to()?, n))
        }
        _ => None,
    }
}
