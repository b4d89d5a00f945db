//! Addresses of a block's operands in terms of the values that registers have had, so that two operands can be compared.

use crate::regs::{RSP, number};
use iced_x86::{
    Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register, UsedMemory, UsedRegister,
};

/// A register's value: which of those that it has had, and how much more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    pub register: u8,
    version: u32,
}

/// An address in terms of values of registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub base: Option<Value>,
    pub index: Option<(Value, u32)>,
    pub segment: Register,
    pub displacement: i64,
}

impl Address {
    /// How far `self` lies behind `other`, if all but their displacements is the same.
    pub fn behind(&self, other: &Address) -> Option<i64> {
        let same = Address {
            displacement: other.displacement,
            ..*self
        };
        (same == *other).then(|| self.displacement.wrapping_sub(other.displacement))
    }
}

/// The registers while a stretch of instructions is gone through.
#[derive(Default)]
pub(crate) struct Registers {
    versions: [u32; 16],
    /// What has been added to each since.
    pub sums: [i64; 16],
}

impl Registers {
    fn value(&self, r: Register) -> Option<Value> {
        let register = number(r).filter(|_| r.size() == 8)?;
        let version = self.versions[register as usize];
        Some(Value { register, version })
    }

    /// `None`: it is not followed.
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
            // The displacement is the address.
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

    /// `i` has been executed.
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

/// The number of a register that is written.
fn changed(r: &UsedRegister) -> Option<u8> {
    use OpAccess::{CondRead, NoMemAccess, None, Read};
    number(r.register()).filter(|_| !matches!(r.access(), Read | CondRead | None | NoMemAccess))
}

/// `i` adds a constant to a register: which, and that.
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
