//! Places that have values: registers and memory, byte by byte.

use hindsight_timeline::{CpuState, VecState};
use iced_x86::Register;
use std::fmt;
use std::ops::Range;

/// Bytes of memory or of a register, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Bytes of a register.
    Register {
        /// The whole register: `rax`, `zmm3`, `k1`.
        register: Register,
        /// The first byte, counted from the least significant one.
        first: usize,
        /// How many bytes.
        len: usize,
    },
    /// Bytes of memory.
    Memory {
        /// The first address.
        at: u64,
        /// How many bytes.
        len: usize,
    },
}

/// One byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    Register(Register, usize),
    Memory(u64),
}

impl Place {
    /// How many bytes it has.
    #[allow(clippy::len_without_is_empty, reason = "there is always one byte")]
    pub fn len(&self) -> usize {
        match *self {
            Place::Register { len, .. } | Place::Memory { len, .. } => len,
        }
    }

    /// Some of its bytes.
    pub(crate) fn part(&self, of: Range<usize>) -> Place {
        match *self {
            Place::Register {
                register, first, ..
            } => Place::Register {
                register,
                first: first + of.start,
                len: of.len(),
            },
            Place::Memory { at, .. } => Place::Memory {
                at: at.wrapping_add(of.start as u64),
                len: of.len(),
            },
        }
    }

    /// Its bytes, one by one.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell> + use<> {
        let place = *self;
        (0..self.len()).map(move |i| match place {
            Place::Register {
                register, first, ..
            } => Cell::Register(register, first + i),
            Place::Memory { at, .. } => Cell::Memory(at.wrapping_add(i as u64)),
        })
    }

    /// Puts another byte behind it, if it belongs there.
    pub(crate) fn push(&mut self, cell: Cell) -> bool {
        match (self, cell) {
            (
                Place::Register {
                    register,
                    first,
                    len,
                },
                Cell::Register(other, byte),
            ) if *register == other && *first + *len == byte => *len += 1,
            (Place::Memory { at, len }, Cell::Memory(address))
                if at.wrapping_add(*len as u64) == address =>
            {
                *len += 1
            }
            _ => return false,
        }
        true
    }
}

impl From<Cell> for Place {
    fn from(cell: Cell) -> Place {
        match cell {
            Cell::Register(register, first) => Place::Register {
                register,
                first,
                len: 1,
            },
            Cell::Memory(at) => Place::Memory { at, len: 1 },
        }
    }
}

/// As people call it: `eax`, `bytes 8 to 15 of zmm0`, `8 bytes at 0x7ffe0`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Place::Register {
                register,
                first,
                len,
            } => f.write_str(&register_name(register, first, len)),
            Place::Memory { at, len: 1 } => write!(f, "1 byte at {at:#x}"),
            Place::Memory { at, len } => write!(f, "{len} bytes at {at:#x}"),
        }
    }
}

/// The name of bytes of a register.
fn register_name(register: Register, first: usize, len: usize) -> String {
    let number = register.number();
    let part = match (first, len) {
        (0, 8) => Some(Register::RAX),
        (0, 4) => Some(Register::EAX),
        (0, 2) => Some(Register::AX),
        // The numbers of byte registers have `ah` and its like in between.
        (0, 1) if number < 4 => Some(Register::AL),
        _ => None,
    };
    if register.is_gpr()
        && let Some(base) = part
    {
        return format!("{:?}", base + number as u32).to_lowercase();
    }
    let vector = match (first, len) {
        (0, 16) => Some(Register::XMM0),
        (0, 32) => Some(Register::YMM0),
        _ => None,
    };
    if register.is_vector_register()
        && let Some(base) = vector
    {
        return format!("{:?}", base + number as u32).to_lowercase();
    }
    let whole = format!("{register:?}").to_lowercase();
    match (first, len) {
        (0, n) if n == register.size() => whole,
        (n, 1) => format!("byte {n} of {whole}"),
        (n, len) => format!("bytes {n} to {} of {whole}", n + len - 1),
    }
}

/// The whole of a register whose values can be followed. `None`: it is another one.
pub(crate) fn whole(r: Register) -> Option<Register> {
    let full = r.full_register();
    (full.is_gpr() || full.is_zmm() || full.is_k()).then_some(full)
}

/// The bytes of a whole register.
pub(crate) fn bytes_of(register: Register, cpu: &CpuState, vec: &VecState) -> Vec<u8> {
    let n = register.number();
    match register {
        r if r.is_gpr() => cpu.gpr[n & 15].to_le_bytes().to_vec(),
        r if r.is_k() => vec.k[n & 7].to_le_bytes().to_vec(),
        _ => vec.zmm[n & 31].to_vec(),
    }
}

/// Gives a whole register these bytes.
pub(crate) fn set_bytes(register: Register, to: &[u8], cpu: &mut CpuState, vec: &mut VecState) {
    let n = register.number();
    let word = || to.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
    match register {
        r if r.is_gpr() => cpu.gpr[n & 15] = word(),
        r if r.is_k() => vec.k[n & 7] = word(),
        _ => vec.zmm[n & 31].copy_from_slice(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_names_that_people_use() {
        let name = |register, first, len| {
            Place::Register {
                register,
                first,
                len,
            }
            .to_string()
        };
        assert_eq!(name(Register::RCX, 0, 8), "rcx");
        assert_eq!(name(Register::RCX, 0, 4), "ecx");
        assert_eq!(name(Register::R9, 0, 4), "r9d");
        assert_eq!(name(Register::RBX, 0, 1), "bl");
        assert_eq!(name(Register::RBX, 1, 1), "byte 1 of rbx");
        assert_eq!(name(Register::ZMM7, 0, 16), "xmm7");
        assert_eq!(name(Register::ZMM7, 0, 64), "zmm7");
        assert_eq!(name(Register::ZMM7, 8, 8), "bytes 8 to 15 of zmm7");
        assert_eq!(name(Register::K1, 0, 8), "k1");
        let memory = Place::Memory { at: 4096, len: 4 };
        assert_eq!(memory.to_string(), "4 bytes at 0x1000");
    }

    #[test]
    fn bytes_that_follow_each_other_are_one_place() {
        let mut p = Place::from(Cell::Register(Register::RAX, 2));
        assert!(p.push(Cell::Register(Register::RAX, 3)));
        assert!(!p.push(Cell::Register(Register::RAX, 5)));
        assert!(!p.push(Cell::Register(Register::RBX, 4)));
        assert!(!p.push(Cell::Memory(4)));
        let all: Vec<Cell> = p.cells().collect();
        assert_eq!(
            all,
            [2, 3].map(|i| Cell::Register(Register::RAX, i)).to_vec()
        );
        assert_eq!(p.part(1..2), Place::from(Cell::Register(Register::RAX, 3)));
    }
}
