//! String instructions. They may have done their work many times.

use super::Byte;
use crate::past::Step;
use crate::place::{Cell, Place};
use hindsight_isa::string::{Kind, StringOp};
use iced_x86::Register;

/// Where bytes come from that a string instruction leaves. It may have done its work many times.
pub fn string(op: &StringOp, step: &Step, wanted: &Place) -> Vec<Byte> {
    let touch = |write: bool| {
        let mut all = step.touches.iter().map(|t| &t.access);
        all.find(|a| if write { a.write } else { a.read })
    };
    let (read, write) = (touch(false), touch(true));
    let size = u64::from(op.size);
    let down = step.cpu.rflags & 0x400 != 0;
    let one = |cell: Cell| match (op.kind, cell) {
        (Kind::Movs, Cell::Memory(at)) => {
            let (Some(from), Some(to)) = (read, write) else {
                return Byte::Computed;
            };
            let within = at.wrapping_sub(to.address);
            if within >= to.len || from.len != to.len {
                return Byte::Computed;
            }
            // Elements that overlap in part are put together of several others.
            let distance = match down {
                false => to.address.wrapping_sub(from.address),
                true => from.address.wrapping_sub(to.address),
            };
            if distance < to.len && !distance.is_multiple_of(size) {
                return Byte::Computed;
            }
            // Where the places overlap, what is read may have been written by the same instruction.
            let source = match down {
                false => within % apart(distance, to.len),
                true => {
                    let behind = to.len - 1 - within;
                    to.len - 1 - behind % apart(distance, to.len)
                }
            };
            Byte::Copy(Cell::Memory(from.address.wrapping_add(source)))
        }
        (Kind::Stos, Cell::Memory(at)) => match write {
            Some(to) => {
                let byte = at.wrapping_sub(to.address) % size;
                Byte::Copy(Cell::Register(Register::RAX, byte as usize))
            }
            None => Byte::Computed,
        },
        (Kind::Lods, Cell::Register(Register::RAX, byte)) => match (byte as u64, read) {
            (b, Some(from)) if b < size => {
                let last = if down {
                    0
                } else {
                    from.len.saturating_sub(size)
                };
                Byte::Copy(Cell::Memory(from.address.wrapping_add(last + b)))
            }
            _ if size == 4 => Byte::Constant,
            _ => Byte::Copy(Cell::Register(Register::RAX, byte)),
        },
        _ => Byte::Computed,
    };
    wanted.cells().map(one).collect()
}

/// After how many bytes a copy repeats itself. The destination lies so far behind the source.
fn apart(distance: u64, len: u64) -> u64 {
    match distance {
        0 => len,
        d if d < len => d,
        _ => len,
    }
    .max(1)
}
