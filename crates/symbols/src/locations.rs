//! Finds where values are, by evaluating the location expressions of debug information (DWARF 5, section 2.5).

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::Error;
use crate::dwarf::Reader;
use gimli::constants::*;
use gimli::{
    EvaluationResult, Expression, Location as Piece, Register, UnitOffset, UnitRef, Value,
    ValueType,
};
use hindsight_isa::regs::DWARF;

/// Evaluations with more steps than this are given up.
const MAX_STEPS: u32 = 1000;
/// How deep entry values may nest in entry values.
const MAX_NESTED: u32 = 2;

/// The registers of a thread to which locations refer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers {
    /// General registers by hardware number: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub gpr: [u64; 16],
    /// The instruction pointer.
    pub rip: u64,
    /// The base of the FS segment. Thread-local variables are relative to it.
    pub fs_base: u64,
    /// The low halves of xmm0 to xmm15, which hold floating point numbers.
    pub xmm: [u128; 16],
}

impl Registers {
    pub(crate) fn dwarf(&self, register: Register) -> Option<u64> {
        match register.0 {
            n @ 0..16 => Some(self.gpr[DWARF[n as usize]]),
            16 => Some(self.rip),
            n @ 17..33 => Some(self.xmm[n as usize - 17] as u64),
            _ => None,
        }
    }
}

/// The registers with which a function began, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtEntry {
    pub(crate) registers: Registers,
    pub(crate) known: KnownRegisters,
}

/// A set of registers. Bits 0 to 15 are the general ones by hardware number, 16 is rip, and 17 and up are the vector
/// registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct KnownRegisters(u64);

impl KnownRegisters {
    pub const ALL: KnownRegisters = KnownRegisters(!0);
    const VECTORS: u16 = 17;

    fn bit(register: Register) -> u16 {
        match register.0 {
            n @ 0..16 => DWARF[n as usize] as u16,
            n => n.min(63),
        }
    }

    fn has(self, bit: u16) -> bool {
        self.0 >> bit & 1 != 0
    }
}

impl AtEntry {
    /// All registers are known.
    pub fn all(registers: Registers) -> AtEntry {
        AtEntry {
            registers,
            known: KnownRegisters::ALL,
        }
    }

    /// No register is known.
    pub(crate) fn none() -> AtEntry {
        AtEntry {
            registers: Registers::default(),
            known: KnownRegisters::default(),
        }
    }

    /// Notes what a register held.
    pub(crate) fn set(&mut self, register: Register, value: u64) {
        match register.0 {
            n @ 0..=15 => self.registers.gpr[DWARF[n as usize]] = value,
            n @ 17..=32 => self.registers.xmm[n as usize - 17] = value.into(),
            _ => return,
        }
        self.known.0 |= 1 << KnownRegisters::bit(register);
    }

    /// Whether anything is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.0 == 0
    }

    /// A frame in which only these registers are known.
    fn frame<'a>(
        &'a self,
        bias: u64,
        read: &'a mut dyn FnMut(u64) -> Option<u64>,
    ) -> EvalFrame<'a> {
        EvalFrame {
            registers: &self.registers,
            known: self.known,
            entry: None,
            bias,
            cfa: None,
            base: None,
            read,
        }
    }

    /// The value of something that is in registers. `None`: the registers are not known, or it is elsewhere.
    fn value(&self, place: &Location) -> Option<Location> {
        match place {
            Location::Register(n) if self.known.has(u16::from(*n)) => {
                Some(Location::Value(self.registers.gpr[*n as usize & 15]))
            }
            Location::Vector(n) if self.known.has(KnownRegisters::VECTORS + u16::from(*n)) => {
                Some(Location::Value(self.registers.xmm[*n as usize & 15] as u64))
            }
            Location::Pieces(list) => {
                let one = |(place, n): &(Location, u64)| Some((self.value(place)?, *n));
                let all: Option<Vec<_>> = list.iter().map(one).collect();
                all.map(Location::Pieces)
            }
            _ => None,
        }
    }
}

/// What a parameter was when the function began at file address `begin`. `None`: that is not known, or it was not
/// passed in registers.
pub(crate) fn value_at_entry(
    unit: UnitRef<Reader>,
    entry: &gimli::DebuggingInformationEntry<Reader>,
    begin: u64,
    bias: u64,
    known: &AtEntry,
) -> Result<Option<Location>, Error> {
    // What memory held at that time is not known now.
    let mut read = |_| None;
    let mut frame = known.frame(bias, &mut read);
    let place = location(unit, entry, begin, &mut frame)?;
    Ok(known.value(&place))
}

/// Where a variable is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// At this guest address.
    Memory(u64),
    /// In the general register with this hardware number.
    Register(u8),
    /// In the vector register with this number, from 0.
    Vector(u8),
    /// Nowhere, but its value is known. It has at most 8 bytes.
    Value(u64),
    /// Nowhere, but its value is known. It has any length.
    Bytes(Vec<u8>),
    /// In pieces, one after the other. Each has a length in bytes.
    Pieces(Vec<(Location, u64)>),
    /// The debug information describes it in a way that is not supported.
    Complex,
    /// Nowhere: it does not exist at this place of the program.
    OptimizedOut,
}

/// What an evaluation may look at.
pub(crate) struct EvalFrame<'a> {
    pub registers: &'a Registers,
    /// Which registers are known.
    pub known: KnownRegisters,
    /// The registers with which the function began, if any is known.
    pub entry: Option<&'a AtEntry>,
    /// Guest address minus file address.
    pub bias: u64,
    pub cfa: Option<u64>,
    pub base: Option<u64>,
    pub read: &'a mut dyn FnMut(u64) -> Option<u64>,
}

/// Where the variable of an entry is, at a file address.
pub(crate) fn location(
    unit: UnitRef<Reader>,
    entry: &gimli::DebuggingInformationEntry<Reader>,
    pc: u64,
    frame: &mut EvalFrame,
) -> Result<Location, Error> {
    let Some(a) = entry.attr_value(DW_AT_location) else {
        let constant = entry.attr_value(DW_AT_const_value);
        return Ok(match constant {
            Some(v) => match v.udata_value().or(v.sdata_value().map(|v| v as u64)) {
                Some(v) => Location::Value(v),
                None => Location::Complex,
            },
            None => Location::OptimizedOut,
        });
    };
    if let Some(e) = a.exprloc_value() {
        return Ok(evaluate(unit, e, frame));
    }
    if let Some(mut list) = unit.attr_locations(a)? {
        while let Some(l) = list.next()? {
            if (l.range.begin..l.range.end).contains(&pc) {
                return Ok(evaluate(unit, l.data, frame));
            }
        }
    }
    Ok(Location::OptimizedOut)
}

/// The address to which a function's locations on the stack are relative.
pub(crate) fn frame_base(
    unit: UnitRef<Reader>,
    entry: &gimli::DebuggingInformationEntry<Reader>,
    frame: &mut EvalFrame,
) -> Option<u64> {
    let e = entry.attr_value(DW_AT_frame_base)?.exprloc_value()?;
    match evaluate(unit, e, frame) {
        Location::Memory(a) | Location::Value(a) => Some(a),
        // A register stands for its content.
        Location::Register(n) => Some(frame.registers.gpr[n as usize & 15]),
        _ => None,
    }
}

/// Evaluates a location expression.
pub(crate) fn evaluate(
    unit: UnitRef<Reader>,
    e: Expression<Reader>,
    frame: &mut EvalFrame,
) -> Location {
    match try_evaluate(unit, e, frame, 0) {
        Ok(Some(l)) => l,
        Ok(None) | Err(_) => Location::Complex,
    }
}

fn try_evaluate(
    unit: UnitRef<Reader>,
    e: Expression<Reader>,
    frame: &mut EvalFrame,
    depth: u32,
) -> Result<Option<Location>, gimli::Error> {
    let mut eval = e.evaluation(unit.unit.encoding());
    eval.set_max_iterations(MAX_STEPS);
    let mut state = eval.evaluate()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister {
                register,
                base_type,
            } => {
                let (Some(v), Some(kind), true) = (
                    frame.registers.dwarf(register),
                    value_type(unit, base_type),
                    frame.known.has(KnownRegisters::bit(register)),
                ) else {
                    return Ok(None);
                };
                eval.resume_with_register(typed(kind, v)?)?
            }
            EvaluationResult::RequiresMemory {
                address,
                size,
                base_type,
                ..
            } => {
                let Some(v) = (frame.read)(address) else {
                    return Ok(None);
                };
                let bits = size as u32 * 8;
                let v = if bits < 64 { v & ((1 << bits) - 1) } else { v };
                let Some(kind) = value_type(unit, base_type) else {
                    return Ok(None);
                };
                eval.resume_with_memory(typed(kind, v)?)?
            }
            EvaluationResult::RequiresFrameBase => {
                let Some(base) = frame.base else {
                    return Ok(None);
                };
                eval.resume_with_frame_base(base)?
            }
            EvaluationResult::RequiresCallFrameCfa => {
                let Some(cfa) = frame.cfa else {
                    return Ok(None);
                };
                eval.resume_with_call_frame_cfa(cfa)?
            }
            EvaluationResult::RequiresRelocatedAddress(a) => {
                eval.resume_with_relocated_address(a.wrapping_add(frame.bias))?
            }
            EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                let a = unit.dwarf.address(unit.unit, index)?;
                let bias = if relocate { frame.bias } else { 0 };
                eval.resume_with_indexed_address(a.wrapping_add(bias))?
            }
            EvaluationResult::RequiresEntryValue(e) => {
                let Some(v) = entry_value(unit, e, frame, depth)? else {
                    return Ok(None);
                };
                eval.resume_with_entry_value(Value::Generic(v))?
            }
            EvaluationResult::RequiresBaseType(at) => {
                let Some(kind) = value_type(unit, at) else {
                    return Ok(None);
                };
                eval.resume_with_base_type(kind)?
            }
            _ => return Ok(None),
        };
    }
    Ok(Some(match eval.as_result() {
        [] => Location::OptimizedOut,
        [p] if p.size_in_bits.is_none() => whole(&p.location),
        pieces => {
            let mut out = Vec::new();
            for p in pieces {
                let bits = p.size_in_bits.unwrap_or(0);
                if bits % 8 != 0 || p.bit_offset.unwrap_or(0) != 0 {
                    return Ok(Some(Location::Complex));
                }
                out.push((whole(&p.location), bits / 8));
            }
            match out.iter().all(|p| p.0 == Location::OptimizedOut) {
                true => Location::OptimizedOut,
                false => Location::Pieces(out),
            }
        }
    }))
}

/// Where one piece is.
fn whole(piece: &Piece<Reader>) -> Location {
    match piece {
        Piece::Empty => Location::OptimizedOut,
        Piece::Address { address } => Location::Memory(*address),
        Piece::Register { register } => match register.0 {
            n @ 0..=15 => Location::Register(DWARF[n as usize] as u8),
            n @ 17..=32 => Location::Vector(n as u8 - 17),
            _ => Location::Complex,
        },
        Piece::Value { value } => match value {
            Value::F32(v) => Location::Value(v.to_bits() as u64),
            Value::F64(v) => Location::Value(v.to_bits()),
            v => v.to_u64(!0).map_or(Location::Complex, Location::Value),
        },
        Piece::Bytes { value } => Location::Bytes(value.to_vec()),
        _ => Location::Complex,
    }
}

/// The value of an expression when the function began. The expression is about registers, or about what one pointed to.
fn entry_value(
    unit: UnitRef<Reader>,
    e: Expression<Reader>,
    frame: &mut EvalFrame,
    depth: u32,
) -> Result<Option<u64>, gimli::Error> {
    let Some(entry) = frame.entry.filter(|_| depth < MAX_NESTED) else {
        return Ok(None);
    };
    // What memory held at that time is not known now.
    let mut read = |_| None;
    let mut before = entry.frame(frame.bias, &mut read);
    Ok(match try_evaluate(unit, e, &mut before, depth + 1)? {
        Some(Location::Value(v) | Location::Memory(v)) => Some(v),
        Some(place) => match entry.value(&place) {
            Some(Location::Value(v)) => Some(v),
            _ => None,
        },
        None => None,
    })
}

/// The type of a value in an expression. The entry at 0 stands for an address.
fn value_type(unit: UnitRef<Reader>, at: UnitOffset<usize>) -> Option<ValueType> {
    if at.0 == 0 {
        return Some(ValueType::Generic);
    }
    let mut cursor = unit.unit.entries_at_offset(at).ok()?;
    cursor.next_entry().ok()?;
    ValueType::from_entry(cursor.current()?).ok()?
}

/// The low bytes of a word, as a value of a type.
fn typed(kind: ValueType, v: u64) -> Result<Value, gimli::Error> {
    match kind {
        ValueType::F32 => Ok(Value::F32(f32::from_bits(v as u32))),
        ValueType::F64 => Ok(Value::F64(f64::from_bits(v))),
        kind => Value::from_u64(kind, v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_numbered_as_debug_information_has_them() {
        for (n, hardware) in DWARF.iter().enumerate() {
            let name = gimli::X86_64::register_name(Register(n as u16));
            assert_eq!(name, Some(hindsight_isa::regs::NAMES[*hardware]));
        }
    }
}
