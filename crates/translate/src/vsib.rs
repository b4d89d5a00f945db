//! Gathers and scatters, for runtimes that execute them element by element. That is needed with a
//! small predictor: no operand can name the cells of a vector of addresses.

use crate::effective::Registers;
use alloc::vec::Vec;
use hindsight_isa::VecState;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// The elements of one gather or scatter.
pub struct Elements {
    /// Bytes of an element.
    pub size: usize,
    /// Number and address of each element that the mask selects, in order.
    pub active: Vec<(usize, u64)>,
    count: usize,
    data: usize,
    mask: Mask,
}

enum Mask {
    /// The bits of a mask register.
    Bits(usize),
    /// The sign bits of a vector register's elements.
    Signs(usize),
}

impl Elements {
    /// The elements that `i` accesses in this state. `None` if `i` is no gather or scatter.
    pub fn of(i: &Instruction, v: &VecState, registers: &Registers) -> Option<Elements> {
        let index = i.memory_index();
        let op = (0..i.op_count()).find(|n| i.op_kind(*n) == OpKind::Memory)?;
        // The forms that prefetch have no register.
        let register = (0..i.op_count()).find(|n| i.op_kind(*n) == OpKind::Register)?;
        let data = i.op_register(register);
        let size = i.memory_size().size();
        if !index.is_vector_register() || !data.is_vector_register() || !matches!(size, 4 | 8) {
            return None;
        }
        use Mnemonic::*;
        // Bytes of an index.
        let step = match i.mnemonic() {
            Vgatherqpd | Vgatherqps | Vpgatherqd | Vpgatherqq => 8,
            Vscatterqpd | Vscatterqps | Vpscatterqd | Vpscatterqq => 8,
            _ => 4,
        };
        let count = (data.size() / size).min(index.size() / step);
        let mask = match i.op_mask() {
            Register::None => Mask::Signs(i.op_register(2).number()),
            k => Mask::Bits(k.number()),
        };
        let mut active = Vec::new();
        for e in 0..count {
            let selected = match mask {
                Mask::Bits(k) => v.k[k] >> e & 1 != 0,
                Mask::Signs(n) => v.zmm[n][e * size + size - 1] & 0x80 != 0,
            };
            if selected {
                let at = i.virtual_address(op, e, |r, element, bytes| {
                    if !r.is_vector_register() {
                        return registers.value(r);
                    }
                    let b = v.zmm[r.number()].get(element * bytes..(element + 1) * bytes)?;
                    Some(match bytes {
                        4 => i32::from_le_bytes(b.try_into().ok()?) as i64 as u64,
                        _ => u64::from_le_bytes(b.try_into().ok()?),
                    })
                })?;
                active.push((e, at));
            }
        }
        Some(Elements {
            size,
            active,
            count,
            data: data.number(),
            mask,
        })
    }

    /// The bytes of element `e` of the data register.
    pub fn element<'a>(&self, v: &'a mut VecState, e: usize) -> &'a mut [u8] {
        &mut v.zmm[self.data][e * self.size..(e + 1) * self.size]
    }

    /// Notes that element `e` is done: the mask no longer selects it.
    pub fn deselect(&self, v: &mut VecState, e: usize) {
        match self.mask {
            Mask::Bits(k) => v.k[k] &= !(1 << e),
            Mask::Signs(n) => v.zmm[n][e * self.size..(e + 1) * self.size].fill(0),
        }
    }

    /// Notes that the instruction is done. The mask selects nothing any more. The rest of a
    /// gather's result is zero.
    pub fn finish(&self, v: &mut VecState, gather: bool) {
        match self.mask {
            Mask::Bits(k) => v.k[k] = 0,
            Mask::Signs(n) => v.zmm[n].fill(0),
        }
        if gather {
            v.zmm[self.data][self.count * self.size..].fill(0);
        }
    }
}

/// Whether `i` is a gather: it writes its data register.
pub fn gathers(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::Register
}
