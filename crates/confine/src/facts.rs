//! What is known of registers between two instructions of a replay. Some operands rely on it.
//!
//! Each fact comes from one instruction, and holds until the register changes. A user of a fact must forbid jumps to
//! anything between that instruction and itself.

use crate::Rules;
use crate::allowed::JUMP;
use crate::decode::{Instr, Map, NONE, prefix};
use hindsight_isa::ctx::{APART, SCR_REG, d};
use hindsight_isa::regs;

pub(crate) const SCR: u8 = SCR_REG as u8;

/// What may be known of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fact {
    /// It is below 2^32.
    Low,
    /// It is the offset of a cell.
    Cell,
    /// It is the offset of a cell, perhaps minus the distance of the GS base from the first cell.
    Near,
    /// It is below 256.
    Byte,
    Zero,
    /// It is a value below 2^32, minus this many times 2^31.
    Below(u8),
    /// It is the address of the table of watched places, or an address in that table.
    Table,
    Watched,
}

/// The facts: at most one for each register, and where each comes from.
pub(crate) struct Facts {
    known: u16,
    facts: [Fact; 16],
    from: [u32; 16],
}

impl Facts {
    pub fn new() -> Facts {
        Facts {
            known: 0,
            facts: [Fact::Low; 16],
            from: [0; 16],
        }
    }

    /// Where `fact` of register `n` comes from, if it is known.
    pub fn of(&self, n: u8, fact: Fact) -> Option<u32> {
        let r = n as usize & 15;
        let same = match (self.facts[r], fact) {
            // A stricter bound includes a wider one.
            (Fact::Cell, Fact::Near) | (Fact::Byte | Fact::Zero | Fact::Cell, Fact::Low) => true,
            (a, b) => a == b,
        };
        (n < 16 && self.known >> r & 1 != 0 && same).then_some(self.from[r])
    }

    /// Takes note of `i`, which begins at `at`.
    #[inline(always)]
    pub fn pass(&mut self, rules: &Rules, i: &Instr, code: &[u8], at: u32) {
        if !makes_any(i) {
            if self.known != 0 {
                self.known &= !i.sets();
            }
            return;
        }
        self.note(rules, i, code, at);
    }

    fn note(&mut self, rules: &Rules, i: &Instr, code: &[u8], at: u32) {
        let new = self.made(rules, i, code);
        self.known &= !i.sets();
        if let Some((n, fact, before)) = new {
            let r = n as usize & 15;
            self.known |= 1 << r;
            self.facts[r] = fact;
            self.from[r] = before.unwrap_or(at);
        }
    }

    /// The fact that `i` makes known: its register, and where the facts on which it relies come from.
    fn made(&self, rules: &Rules, i: &Instr, code: &[u8]) -> Option<(u8, Fact, Option<u32>)> {
        let half = !i.wide && !i.has(prefix::OPERAND);
        match (i.map, i.opcode) {
            (Map::One, 0x8d) => self.address(rules, i, half),
            // mov
            (Map::One, 0x8b) if half => Some((i.reg, Fact::Low, None)),
            (Map::One, 0x89) if half && !i.mem => Some((i.rm, Fact::Low, None)),
            (Map::One, 0xb8..=0xbf) if i.imm_len == 4 => {
                let zero = i.immediate(code) == 0;
                Some((i.rm, if zero { Fact::Zero } else { Fact::Low }, None))
            }
            (Map::One, 0xb8..=0xbf) if i.imm_len == 8 => {
                let value = code.get(i.imm_at as usize..)?.first_chunk()?;
                let table = rules.watch == Some(u64::from_le_bytes(*value));
                table.then_some((i.rm, Fact::Table, None))
            }
            // movzx
            (Map::Legacy(1), 0xb6) if !i.has(prefix::OPERAND) => Some((i.reg, Fact::Byte, None)),
            (Map::Legacy(1), 0xb7) if !i.has(prefix::OPERAND) => {
                let fact = if rules.bits == 16 {
                    Fact::Cell
                } else {
                    Fact::Low
                };
                Some((i.reg, fact, None))
            }
            // pext with the mask of the context block
            (Map::Vex(2), 0xf5) if i.pp == 2 && i.wide && i.mem => {
                let mask = i.has(prefix::GS)
                    && !i.has(prefix::ADDRESS)
                    && (i.base, i.index, i.disp) == (NONE, NONE, d::CELL_MASK);
                mask.then_some((i.reg, Fact::Cell, None))
            }
            _ => None,
        }
    }

    /// The same for `lea`.
    fn address(&self, rules: &Rules, i: &Instr, half: bool) -> Option<(u8, Fact, Option<u32>)> {
        if half || i.wide && i.has(prefix::ADDRESS) {
            return Some((i.reg, Fact::Low, None));
        }
        if !i.wide {
            return None;
        }
        // Marks may lie further down than a displacement reaches.
        if i.base == i.reg && i.index == NONE && i.disp == i32::MIN {
            if let Some(from) = self.of(i.base, Fact::Low) {
                return Some((i.reg, Fact::Below(1), Some(from)));
            }
            for k in 1..8 {
                if let Some(from) = self.of(i.base, Fact::Below(k)) {
                    return Some((i.reg, Fact::Below(k + 1), Some(from)));
                }
            }
        }
        if rules.bits != 32 && i.index == NONE && i.disp == -APART {
            let from = self.of(i.base, Fact::Cell)?;
            return Some((i.reg, Fact::Near, Some(from)));
        }
        // An address in the table of watched places.
        if (i.scale, i.disp) == (0, 0) && i.index != NONE {
            let table = self.of(i.base, Fact::Table)?;
            let index = self.of(i.index, Fact::Low)?;
            return Some((i.reg, Fact::Watched, Some(table.min(index))));
        }
        None
    }

    /// Where it comes from that `xrstor` restores only state that the virtual processor has.
    pub fn restores_little(&self) -> Option<u32> {
        let low = self.of(regs::RAX as u8, Fact::Byte)?;
        Some(low.min(self.of(regs::RDX as u8, Fact::Zero)?))
    }
}

/// Whether `i` may make something known.
#[inline(always)]
fn makes_any(i: &Instr) -> bool {
    match i.map {
        Map::One => matches!(i.opcode, 0x89 | 0x8b | 0x8d | 0xb8..=0xbf),
        Map::Legacy(1) => matches!(i.opcode, 0xb6 | 0xb7),
        Map::Vex(2) => i.opcode == 0xf5,
        _ => false,
    }
}

/// Whether execution never continues after `i`: it always jumps.
pub(crate) fn always_jumps(i: &Instr) -> bool {
    i.entry & JUMP != 0 && i.map == Map::One && matches!(i.opcode, 0xe9 | 0xeb)
}
