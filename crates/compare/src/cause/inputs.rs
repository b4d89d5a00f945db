//! What an instruction takes in that differs between two recordings.

use crate::course::Shifts;
use crate::model::Datum;
use crate::side::Side;
use crate::{Both, Result};
use hindsight_origin::Step;
use hindsight_timeline::{ThreadId, Touch};
use iced_x86::{InstructionInfoFactory, OpAccess, Register};

/// Bytes of an access that are compared where they are more than a register has.
const LONG: usize = 4096;
/// Bytes that are shown of a value.
const SHOWN: usize = 8;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a register.
    Register(Register),
    /// In these flags.
    Flags(u32),
    /// In memory.
    Memory {
        /// Where in each recording: the first byte that differs.
        at: Both<u64>,
        /// How many bytes lie between the first and the last one that differ.
        len: u64,
    },
}

/// What was found.
#[derive(Clone, Debug)]
pub enum Taken {
    /// A value that differs.
    Differs(Place, Datum),
    /// Only addresses of the same things differ.
    Addresses,
    /// Nothing differs.
    Nothing,
}

/// Two instructions that do the same in both recordings.
pub struct Pair<'a> {
    /// The instructions.
    pub steps: Both<&'a Step>,
    /// The threads that executed them.
    pub threads: Both<ThreadId>,
}

fn reads(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

impl Pair<'_> {
    /// What the instruction takes in that differs: first what decides where it reads, then what it reads there, then
    /// registers and flags.
    pub fn taken(
        &self,
        sides: &mut Both<Side>,
        shifts: &Shifts,
        info: &mut InstructionInfoFactory,
    ) -> Result<Taken> {
        let i = &self.steps[0].instruction;
        let used = info.info(i);
        let mut registers: Vec<Register> = Vec::new();
        let addresses = used
            .used_memory()
            .iter()
            .flat_map(|m| [m.base(), m.index()]);
        registers.extend(addresses.filter(|r| r.is_gpr()));
        let is_address = registers.len();
        let others = used.used_registers().iter().filter(|r| reads(r.access()));
        registers.extend(others.map(|r| r.register()));
        let mut shifted = false;
        for (n, r) in registers.iter().enumerate() {
            if n == is_address
                && let Some(found) = self.memory(sides, shifts, &mut shifted)?
            {
                return Ok(found);
            }
            if let Some(found) = self.register(sides, shifts, *r, &mut shifted)? {
                return Ok(found);
            }
        }
        if registers.len() <= is_address
            && let Some(found) = self.memory(sides, shifts, &mut shifted)?
        {
            return Ok(found);
        }
        let flags = i.rflags_read();
        if flags != 0 && self.flags_differ(flags) {
            let names = [0, 1].map(|_| "flags".to_owned());
            let bytes = self
                .steps
                .map(|s| (s.cpu.rflags as u16).to_le_bytes().to_vec());
            return Ok(Taken::Differs(Place::Flags(flags), Datum { names, bytes }));
        }
        Ok(match shifted {
            true => Taken::Addresses,
            false => Taken::Nothing,
        })
    }

    fn flags_differ(&self, flags: u32) -> bool {
        use iced_x86::RflagsBits;
        const BITS: [(u32, u64); 7] = [
            (RflagsBits::CF, 0),
            (RflagsBits::PF, 2),
            (RflagsBits::AF, 4),
            (RflagsBits::ZF, 6),
            (RflagsBits::SF, 7),
            (RflagsBits::OF, 11),
            (RflagsBits::DF, 10),
        ];
        let [a, b] = self.steps.map(|s| s.cpu.rflags);
        let differs = |(name, bit): &(u32, u64)| flags & name != 0 && (a ^ b) >> bit & 1 != 0;
        BITS.iter().any(differs)
    }

    fn register(
        &self,
        sides: &mut Both<Side>,
        shifts: &Shifts,
        r: Register,
        shifted: &mut bool,
    ) -> Result<Option<Taken>> {
        let bytes = match r {
            _ if r.is_gpr() => {
                let full = r.full_register().number();
                let high = matches!(r, Register::AH | Register::BH | Register::CH | Register::DH);
                self.steps.map(|s| {
                    let v = s.cpu.gpr[full & 15] >> if high { 8 } else { 0 };
                    v.to_le_bytes()[..r.size().min(8)].to_vec()
                })
            }
            _ if r.is_vector_register() || r.is_k() => self.vectors(sides, r)?,
            _ => return Ok(None),
        };
        if bytes[0] == bytes[1] {
            return Ok(None);
        }
        if is_shifted(shifts, &bytes) {
            *shifted = true;
            return Ok(None);
        }
        let name = format!("{r:?}").to_lowercase();
        let bytes = bytes.map(|b| b[..b.len().min(64)].to_vec());
        let datum = Datum {
            names: [name.clone(), name],
            bytes,
        };
        Ok(Some(Taken::Differs(Place::Register(r), datum)))
    }

    fn vectors(&self, sides: &mut Both<Side>, r: Register) -> Result<Both<Vec<u8>>> {
        let mut out = [Vec::new(), Vec::new()];
        for (s, side) in sides.iter_mut().enumerate() {
            side.cursor
                .seek_count(self.threads[s], self.steps[s].count)?;
            let v = side.cursor.vectors()?;
            let n = r.number();
            out[s] = match r.is_k() {
                true => v.k[n & 7].to_le_bytes().to_vec(),
                false => v.zmm[n & 31][..r.size().min(64)].to_vec(),
            };
        }
        Ok(out)
    }

    /// What it reads of memory.
    fn memory(
        &self,
        sides: &mut Both<Side>,
        shifts: &Shifts,
        shifted: &mut bool,
    ) -> Result<Option<Taken>> {
        let read = |s: usize| self.steps[s].touches.iter().filter(|t| t.access.read);
        for (a, b) in read(0).zip(read(1)) {
            let bytes = match (&a.bytes, &b.bytes) {
                (Some(x), Some(y)) => [x.clone(), y.clone()],
                _ => self.long(sides, [a, b])?,
            };
            let len = bytes[0].len().min(bytes[1].len());
            let differ = |i: &usize| bytes[0][*i] != bytes[1][*i];
            let Some(first) = (0..len).find(differ) else {
                continue;
            };
            if is_shifted(shifts, &bytes) {
                *shifted = true;
                continue;
            }
            // More than a number is no number: its first byte counts.
            let last = match len > 8 {
                true => first,
                false => (0..len).rfind(differ).unwrap_or(first),
            };
            let shown = match len > 8 {
                true => first..len.min(first + SHOWN),
                false => 0..len,
            };
            let at = [a, b].map(|t| t.access.address.wrapping_add(first as u64));
            let names = [a, b].map(|t| {
                format!(
                    "memory at {:#x}",
                    t.access.address.wrapping_add(shown.start as u64)
                )
            });
            let datum = Datum {
                names,
                bytes: bytes.map(|b| b[shown.clone()].to_vec()),
            };
            let place = Place::Memory {
                at,
                len: (last - first + 1) as u64,
            };
            return Ok(Some(Taken::Differs(place, datum)));
        }
        Ok(None)
    }

    /// The bytes of a long access, as far as they are known.
    fn long(&self, sides: &mut Both<Side>, touches: Both<&Touch>) -> Result<Both<Vec<u8>>> {
        let mut out = [Vec::new(), Vec::new()];
        for (s, side) in sides.iter_mut().enumerate() {
            let a = &touches[s].access;
            side.cursor
                .seek_count(self.threads[s], self.steps[s].count)?;
            let len = usize::try_from(a.len).unwrap_or(LONG).min(LONG);
            out[s] = side.cursor.known_memory(a.address, len)?.prefix();
        }
        Ok(out)
    }
}

/// Whether two values are addresses of the same thing, or the low halves of such addresses.
fn is_shifted(shifts: &Shifts, bytes: &Both<Vec<u8>>) -> bool {
    let number = |b: &[u8]| b.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    match [bytes[0].len(), bytes[1].len()] {
        [8, 8] => shifts.is_shifted([number(&bytes[0]), number(&bytes[1])]),
        [4, 4] => {
            let by = number(&bytes[0]).wrapping_sub(number(&bytes[1])) as u32;
            // A small distance is rather one of numbers.
            by.min(by.wrapping_neg()) > 1 << 16 && shifts.0.iter().any(|s| *s as u32 == by)
        }
        _ => false,
    }
}
