//! Checks the commonest encodings with a few table lookups.
//!
//! These are short cuts. [`crate::decode`] and [`crate::operand`] would find the same: the same length, allowed without
//! conditions. Whatever is not found here is left to them. Tests compare the two.

use crate::allowed::*;
use crate::decode::WINDOW;
use crate::{Kind, Marks, Rules, context};

#[cfg(test)]
mod tests;

/// What an entry says of an opcode with a ModRM byte. Its low four bits are the length of the opcode and its immediate
/// operand. The others say what is not allowed, or must be looked at:
///
/// - `NOT_MEM`: a memory operand;
/// - `NOT_REG`: a register;
/// - `NOT_TEST`: an operation with a number below two;
/// - `ODD`: a ModRM byte that does not tell the operand's length.
const NOT_MEM: u8 = 0x40;
const NOT_REG: u8 = 0x80;
const NOT_TEST: u8 = 0x10;
const ODD: u8 = 0x20;

/// Entries of opcodes without a ModRM byte, all above [`OTHER`]. The length is added.
const BARE_ONES: u8 = 0xf0;
/// The same, where the length depends on the width of operands.
const VARIES: u8 = 0xff;
/// The opcode is after this byte.
const BEHIND_0F: u8 = 0xef;
const OTHER: u8 = 0xf0;

/// For each ModRM byte, the length of the operand with everything that belongs to it, and the bits of an entry that
/// forbid it.
static FORMS: [u8; 256] = {
    let mut forms = [0; 256];
    let mut k = 0;
    while k < 256 {
        let (mode, low) = (k >> 6, k & 7);
        let sib = (low == 4 && mode != 3) as u8;
        let test = if k >> 3 & 7 < 2 { NOT_TEST } else { 0 };
        let (len, form) = match mode {
            // Relative to the instruction pointer, or perhaps without base.
            0 if low == 4 || low == 5 => (0, NOT_MEM | ODD),
            0 => (1, NOT_MEM),
            1 => (2, NOT_MEM),
            2 => (5, NOT_MEM),
            _ => (1, NOT_REG),
        };
        forms[k] = (len + sib) | form | test;
        k += 1;
    }
    forms
};

/// Entries by opcode, and by opcode after 0F.
struct Table {
    one: [u8; 256],
    two: [u8; 256],
}

/// Makes a table. `window`: operands are in a window of 2^32 cells. Otherwise there is no prefix before them.
const fn table(replay: bool, window: bool) -> Table {
    let mut t = Table {
        one: [OTHER; 256],
        two: [OTHER; 256],
    };
    let mem = window || !replay;
    let mut k = 0;
    while k < 256 {
        t.one[k] = one(k as u8, replay, mem, window);
        t.two[k] = two(k as u8, mem, window);
        k += 1;
    }
    t.one[0x0f] = BEHIND_0F;
    t
}

/// What an entry with a ModRM byte allows.
const fn with_operands(digits: u32, mem: bool, window: bool, len: u8) -> u8 {
    let mem = mem && digits & MEM == MEM;
    let reg = !window && digits & REG == REG;
    if !mem && !reg {
        return OTHER;
    }
    let not_mem = if mem { 0 } else { NOT_MEM };
    let not_reg = if reg { 0 } else { NOT_REG };
    not_mem | not_reg | ODD | len
}

const fn one(opcode: u8, replay: bool, mem: bool, window: bool) -> u8 {
    let entry = ONE[opcode as usize];
    let len = match entry & IMMEDIATE {
        0 | TEST => 1,
        IB => 2,
        IZ | IV => 5,
        _ => return OTHER,
    };
    if entry == 0 || entry & STRING != 0 {
        return OTHER;
    }
    if entry & JUMP != 0 {
        return OTHER;
    }
    if entry & BARE != 0 {
        let stack = entry & STACK != 0 && replay;
        return match entry & IMMEDIATE {
            _ if window || stack => OTHER,
            IV => VARIES,
            _ => BARE_ONES | len,
        };
    }
    match opcode {
        // pop, and x87, which has registers of its own
        0x8f | 0xd8..=0xdf => OTHER,
        // lea
        0x8d if window => OTHER,
        0x8d => with_operands(entry, true, window, len),
        0xf6 | 0xf7 => {
            let e = with_operands(entry, mem, window, len);
            if e == OTHER { OTHER } else { e | NOT_TEST }
        }
        _ => with_operands(entry, mem, window, len),
    }
}

const fn two(opcode: u8, mem: bool, window: bool) -> u8 {
    let special = special_0f(opcode, 0);
    // bswap, emms
    if special & (BARE | JUMP) == BARE && !window {
        return BARE_ONES | 1;
    }
    if special != 0 {
        return OTHER;
    }
    let entry = MAP_0F[0][opcode as usize];
    let len = 1 + immediate_0f(opcode) as u8;
    // Bit tests that reach far.
    let far = matches!(opcode, 0xa3 | 0xab | 0xb3 | 0xbb);
    match opcode {
        // The search for a target begins with 0F B7.
        0x38 | 0x3a | 0x78 | 0xb7 => OTHER,
        _ => with_operands(entry, mem && !far, window, len),
    }
}

/// Allows nothing.
const NOWHERE: Table = Table {
    one: [OTHER; 256],
    two: [OTHER; 256],
};

/// For code of a replay, of a recording, and of neither. The first table is for operands anywhere, the second for those
/// in a window.
static REPLAY: [Table; 2] = [table(true, false), table(true, true)];
static RECORD: [Table; 2] = [table(false, false), table(false, true)];
static SMALL: [Table; 2] = [table(true, false), NOWHERE];
static PLAIN: [Table; 2] = [table(false, false), NOWHERE];

/// The short cuts for one kind of code.
#[derive(Clone, Copy)]
pub(crate) struct Quick {
    tables: &'static [Table; 2],
    replay: bool,
}

impl Quick {
    pub fn new(rules: &Rules) -> Quick {
        let tables = match (rules.kind, rules.bits) {
            (Kind::Plain, _) => &PLAIN,
            (Kind::Replay, 32) => &REPLAY,
            (Kind::Replay, _) => &SMALL,
            (Kind::Record, 32) => &RECORD,
            (Kind::Record, _) => &PLAIN,
        };
        let replay = rules.kind == Kind::Replay;
        Quick { tables, replay }
    }

    /// The length of an instruction, from its first eight bytes and the next one. `None`: it is not known to be
    /// allowed, or execution does not continue after it.
    #[inline(always)]
    pub fn len(&self, word: u64, next: u8) -> Option<usize> {
        if word as u8 != 0x65 {
            return self.tables[0].len(word);
        }
        if word as u16 == 0x6765 {
            return Some(self.tables[1].len(word >> 16)? + 2);
        }
        accesses_field(word, next, self.replay).then_some(9)
    }
}

/// The bits of a REX prefix at the beginning of an instruction.
static REX: [u8; 256] = {
    let mut bits = [0; 256];
    let mut k = 0x40;
    while k < 0x50 {
        bits[k] = 8;
        k += 1;
    }
    bits
};

impl Table {
    /// The same for an instruction with no other prefix than REX.
    #[inline(always)]
    fn len(&self, word: u64) -> Option<usize> {
        let rex = REX[word as u8 as usize];
        let k = rex as usize / 8;
        let rest = word >> rex;
        let entry = self.one[rest as u8 as usize];
        let form = FORMS[(rest >> 8) as u8 as usize];
        if entry & form < 16 {
            return Some(k + ((entry as usize + form as usize) & 15));
        }
        match entry {
            _ if entry == OTHER => None,
            _ if entry == VARIES => Some(k + if word & 0xf8 == 0x48 { 9 } else { 5 }),
            BARE_ONES.. => Some(k + (entry & 15) as usize),
            BEHIND_0F => {
                let entry = self.two[(rest >> 8) as u8 as usize];
                let form = FORMS[(rest >> 16) as u8 as usize];
                match entry & form {
                    0..16 => Some(k + 1 + ((entry as usize + form as usize) & 15)),
                    ODD..48 => odd(entry, rest >> 16, k + 1),
                    _ if entry > OTHER => Some(k + 1 + (entry & 15) as usize),
                    _ => None,
                }
            }
            _ if entry & form & 0xf0 == ODD => odd(entry, rest >> 8, k),
            _ => None,
        }
    }
}

/// The length of an instruction whose operand has two bytes, perhaps a displacement instead of a base. `operand` begins
/// with these bytes. `None`: the operand is relative to the instruction pointer.
#[inline(always)]
fn odd(entry: u8, operand: u64, k: usize) -> Option<usize> {
    let len = k + (entry & 15) as usize;
    match (operand & 7, operand >> 8 & 7) {
        (4, 5) => Some(len + 6),
        (4, _) => Some(len + 2),
        _ => None,
    }
}

/// Whether `word` and the byte after it are an allowed access to a field of the context block. The forms are those that
/// translated code uses most: mov gs:[disp], register; the other way round; the fetch of a lookup table's entry.
#[inline(always)]
fn accesses_field(word: u64, next: u8, replay: bool) -> bool {
    const FORM: u64 = 0xff_c7_fd_fb_ff;
    const MOVES: u64 = u64::from_le_bytes([0x65, 0x48, 0x89, 0x04, 0x25, 0, 0, 0]);
    const FETCHES: u64 = u64::from_le_bytes([0x65, 0x0f, 0x18, 0x0c, 0x25, 0, 0, 0]);
    let disp = (word >> 40) as i32 | (next as i32) << 24;
    if word & FORM == MOVES {
        context::may_word(disp, word >> 16 & 2 == 0, replay)
    } else {
        word << 24 == FETCHES << 24 && context::is_target(disp)
    }
}

/// The length of an instruction that only fills space, in the two commonest forms: `nop` of two bytes, and one with an
/// operand, which it does not access.
#[inline(always)]
pub(crate) fn pads(word: u64) -> Option<usize> {
    const NOP: u64 = 0x1f0f;
    const WITH: u64 = 0x38_ffff;
    if word as u16 == 0x9066 {
        return Some(2);
    }
    let form = FORMS[(word >> 16) as u8 as usize];
    (word & WITH == NOP && form & (NOT_REG | ODD) == 0).then_some(2 + (form & 15) as usize)
}

/// Bytes in a group.
pub(crate) const GROUP: usize = 64;

/// Bytes of code that are available at once: a group, and the rest of its last instruction.
pub(crate) const AHEAD: usize = GROUP + 16;

/// The eight bytes at `at`, which lies within the group.
#[inline(always)]
pub(crate) fn eight(ahead: &[u8; AHEAD], at: usize) -> u64 {
    let at = at % GROUP;
    let mut word = [0; 8];
    word.copy_from_slice(&ahead[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The length of the instruction at the start of `code`, for more encodings and with more lookups.
#[inline(never)]
pub(crate) fn usual(rules: &Rules, code: &[u8; WINDOW]) -> Option<usize> {
    let replay = rules.kind == Kind::Replay;
    let (mut k, mut pp) = (0, 0);
    let byte = |k: usize| code[k % WINDOW];
    let window = byte(0) == 0x65;
    if window {
        pp = (byte(1) == 0x66) as usize;
        k = 2 + pp;
        let whole = rules.bits == 32 && rules.kind != Kind::Plain;
        if !whole || byte(1 + pp) != 0x67 {
            return None;
        }
    }
    let prefix = matches!(byte(k), 0x66 | 0xf2 | 0xf3) && pp == 0;
    if prefix {
        pp = match byte(k) {
            0x66 => 1,
            0xf3 => 2,
            _ => 3,
        };
        k += 1;
    }
    let (entry, imm) = match byte(k) {
        0xc4 | 0xc5 if pp == 0 => vex(code, &mut k)?,
        0x62 if pp == 0 => evex(code, &mut k)?,
        _ => legacy(code, &mut k, pp, replay)?,
    };
    if entry & BARE != 0 {
        return (!window).then_some(k + imm);
    }
    let modrm = byte(k);
    let (mode, low) = (modrm >> 6, modrm & 7);
    let listed = |digits: u32| digits as u8 >> (modrm >> 3 & 7) & 1 != 0;
    if mode == 3 {
        return (!window && listed(entry >> 8)).then_some(k + 1 + imm);
    }
    // An address alone accesses nothing.
    let lea = entry & STACK != 0;
    let good = if window { !lea } else { lea || !replay };
    if !good || !listed(entry) || mode == 0 && low == 5 {
        return None;
    }
    let sib = low == 4;
    let len = match mode {
        0 if sib && byte(k + 1) & 7 == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(k + 1 + sib as usize + len + imm)
}

/// The length of the mark of a write at the start of `code`: a `mov` of ones with a 32-bit address.
pub(crate) fn mark(rules: &Rules, code: &[u8; WINDOW]) -> Option<usize> {
    let byte = |k: usize| code[k % WINDOW];
    if rules.kind != Kind::Replay
        || matches!(rules.marks, Marks::None | Marks::Runs)
        || byte(0) != 0x64
    {
        return None;
    }
    let word = byte(1) == 0x66;
    let mut k = 1 + word as usize;
    if byte(k) != 0x67 {
        return None;
    }
    k += 1;
    let mut wide = false;
    if byte(k) & 0xf0 == 0x40 {
        wide = byte(k) & 8 != 0;
        k += 1;
    }
    let size = match byte(k) {
        0xc6 => 1,
        0xc7 if word && !wide => 2,
        0xc7 => 4,
        _ => return None,
    };
    let modrm = byte(k + 1);
    let (mode, low) = (modrm >> 6, modrm & 7);
    let sib = (low == 4) as usize;
    let disp = match mode {
        0 if low == 5 => return None,
        0 if low == 4 && byte(k + 2) & 7 == 5 => 4,
        0 => 0,
        1 => 1,
        2 => 4,
        _ => return None,
    };
    let at = k + 2 + sib + disp;
    let ones = code.get(at..at + size)?.iter().all(|b| *b == 0xff);
    (modrm >> 3 & 7 == 0 && ones).then_some(at + size)
}

/// What is allowed of the instruction with its opcode at `k`, perhaps after a REX prefix, and the length of its
/// immediate operand. `k` is set to the end of the opcode. `STACK` stands for `lea` here.
fn legacy(code: &[u8; WINDOW], k: &mut usize, pp: usize, replay: bool) -> Option<(u32, usize)> {
    let mut next = || {
        *k += 1;
        code[(*k - 1) % WINDOW]
    };
    let mut first = next();
    let mut wide = false;
    if first & 0xf0 == 0x40 {
        wide = first & 8 != 0;
        first = next();
    }
    if first != 0x0f {
        let entry = ONE[first as usize];
        let digit = code[*k % WINDOW] >> 3 & 7;
        let imm = match entry & IMMEDIATE {
            0 => 0,
            IB => 1,
            TEST if digit > 1 => 0,
            TEST if first == 0xf6 => 1,
            IV if wide => 8,
            IZ | IV | TEST if pp == 1 && !wide => 2,
            IZ | IV | TEST => 4,
            _ => return None,
        };
        let stack = entry & STACK != 0 && (replay || entry & BARE == 0);
        if pp > 1 || entry == 0 || stack || entry & (STRING | JUMP) != 0 {
            return None;
        }
        let entry = match first {
            0x8d => MEM | STACK,
            // Not those that jump or push.
            0xff => entry & (mem(3) | reg(3)),
            // These have a list of their own.
            0xd8..=0xdf => entry & MEM,
            _ => entry & !STACK,
        };
        return Some((entry, imm));
    }
    let opcode = next();
    let map = match opcode {
        0x38 => &MAP_38,
        0x3a => &MAP_3A,
        _ => {
            let special = special_0f(opcode, pp as u8);
            let entry = match opcode {
                0x1f => special & MEM | STACK,
                0x78 | 0x18 | 0xf7 => return None,
                _ if special & JUMP != 0 => return None,
                _ if special != 0 => special,
                // Without those that reach far, and the one that restores all registers.
                0xa3 | 0xab | 0xb3 | 0xbb => MAP_0F[pp][opcode as usize] & !MEM,
                0xae => MAP_0F[pp][opcode as usize] & !mem(0x20),
                _ => MAP_0F[pp][opcode as usize],
            };
            return (entry != 0).then_some((entry, immediate_0f(opcode) as usize));
        }
    };
    let entry = map[pp][next() as usize];
    (entry != 0).then_some((entry, (opcode == 0x3a) as usize))
}

/// The same after a VEX prefix.
fn vex(code: &[u8; WINDOW], k: &mut usize) -> Option<(u32, usize)> {
    let byte = |n: usize| code[(*k + n) % WINDOW];
    let (map, last, at) = match byte(0) {
        0xc5 => (1, byte(1) & 0x7f, 2),
        _ => (byte(1) & 0x1f, byte(2), 3),
    };
    let table = match map {
        1 => &VEX_0F,
        2 => &VEX_38,
        3 => &VEX_3A,
        _ => return None,
    };
    let opcode = byte(at);
    if map == 1 && matches!(opcode, 0x77 | 0xf7) {
        return None;
    }
    let entry = table[last as usize & 3][opcode as usize];
    let wanted = W0 << (last >> 7) as u32 | L0 << (last >> 2 & 1) as u32;
    let imm = imm(map, opcode);
    *k += at + 1;
    (entry & wanted == wanted && entry & VSIB == 0).then_some((entry & BOTH, imm))
}

/// The same after an EVEX prefix.
fn evex(code: &[u8; WINDOW], k: &mut usize) -> Option<(u32, usize)> {
    let byte = |n: usize| code[(*k + n) % WINDOW];
    let (a, b, c) = (byte(1), byte(2), byte(3));
    let table = match a & 7 {
        1 => &EVEX_0F,
        2 => &EVEX_38,
        3 => &EVEX_3A,
        _ => return None,
    };
    // Rounding, or a broadcast.
    if a & 8 != 0 || b & 4 == 0 || c & 0x10 != 0 {
        return None;
    }
    let opcode = byte(4);
    let entry = table[b as usize & 3][opcode as usize];
    let wanted = W0 << (b >> 7) as u32 | L0 << (c >> 5 & 3) as u32;
    let imm = imm(a & 7, opcode);
    *k += 5;
    let good = c >> 5 & 3 < 3 && entry & wanted == wanted && entry & VSIB == 0;
    good.then_some((entry & BOTH, imm))
}

/// The length in bytes of the immediate operand, in a map of these prefixes.
fn imm(map: u8, opcode: u8) -> usize {
    match map {
        1 => immediate_0f(opcode) as usize,
        2 => 0,
        _ => 1,
    }
}
