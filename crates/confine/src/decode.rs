//! Decodes one instruction of the list: its end, and its memory operand.

use crate::allowed::*;

/// Prefixes, as bits.
pub mod prefix {
    /// 66: operands of 16 bits.
    pub const OPERAND: u8 = 1;
    /// 67: addresses of 32 bits.
    pub const ADDRESS: u8 = 2;
    /// 64: the FS segment.
    pub const FS: u8 = 4;
    /// 65: the GS segment.
    pub const GS: u8 = 8;
    /// F2.
    pub const REPNE: u8 = 16;
    /// F3.
    pub const REP: u8 = 32;
    /// F0.
    pub const LOCK: u8 = 64;
}

/// The table of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Map {
    /// Opcodes of one byte.
    One,
    /// After 0F, 0F 38 or 0F 3A.
    Legacy(u8),
    /// With a VEX prefix: the number of its map.
    Vex(u8),
    /// With an EVEX prefix: the number of its map.
    Evex(u8),
}

/// Stands for no register.
pub const NONE: u8 = 0xff;
/// Stands for the instruction pointer.
pub const IP: u8 = 0xfe;

/// A decoded instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instr {
    /// Its length in bytes.
    pub len: u8,
    /// Its legacy prefixes, as bits of [`prefix`].
    pub prefixes: u8,
    /// The table of its opcode.
    pub map: Map,
    /// The mandatory prefix: 0 none, 1 66, 2 F3, 3 F2.
    pub pp: u8,
    /// Its operands have 64 bits.
    pub wide: bool,
    /// Its opcode in that table.
    pub opcode: u8,
    /// The ModRM byte. 0 if there is none.
    pub modrm: u8,
    /// The register field, with its extension.
    pub reg: u8,
    /// The other register, if there is no memory operand.
    pub rm: u8,
    /// There is a memory operand.
    pub mem: bool,
    /// The base register of the memory operand, [`NONE`] or [`IP`].
    pub base: u8,
    /// A general register, or a vector register if `entry` has `VSIB`.
    pub index: u8,
    /// The logarithm of the index's factor, 0 to 3.
    pub scale: u8,
    /// The displacement, as it is encoded.
    pub disp: i32,
    /// Length of the displacement in bytes. 2 stands for one byte that counts operands. Forms in which the value
    /// matters exclude it.
    pub disp_len: u8,
    /// The vector length, 0 to 2.
    pub length: u8,
    pub(crate) entry: u32,
    /// The offset of the immediate operand in the instruction.
    pub imm_at: u8,
    /// The length of the immediate operand in bytes.
    pub imm_len: u8,
}

impl Instr {
    /// Whether it has any of these prefixes ([`prefix`]).
    pub fn has(&self, prefixes: u8) -> bool {
        self.prefixes & prefixes != 0
    }

    /// The register field as the number of an operation.
    pub fn digit(&self) -> u8 {
        self.modrm >> 3 & 7
    }

    pub(crate) fn is(&self, map: Map, opcode: u8) -> bool {
        self.map == map && self.opcode == opcode
    }

    /// Its signed immediate operand of one or four bytes. 0 if it has another length.
    pub fn immediate(&self, code: &[u8]) -> i32 {
        let at = self.imm_at as usize;
        match (self.imm_len, code.get(at..)) {
            (1, Some([b, ..])) => *b as i8 as i32,
            (2, Some([a, b, ..])) => i16::from_le_bytes([*a, *b]) as i32,
            (4, Some(rest)) => rest.first_chunk().map_or(0, |b| i32::from_le_bytes(*b)),
            _ => 0,
        }
    }

    /// Whether it computes an address without accessing it.
    pub fn is_lea(&self) -> bool {
        self.is(Map::One, 0x8d) || self.is(Map::Legacy(1), 0x1f)
    }

    /// Whether it accesses memory that no operand names: the stack, strings, the bytes at rdi.
    pub fn is_implicit(&self) -> bool {
        let masked = matches!(self.map, Map::Legacy(1) | Map::Vex(1));
        self.entry & (STACK | STRING) != 0
            || self.is(Map::One, 0xff) && self.digit() == 6
            || masked && self.opcode == 0xf7 && self.pp < 2
    }

    /// Whether its operands may be single bytes.
    fn has_bytes(&self) -> bool {
        match self.map {
            Map::One => self.opcode & 1 == 0 || self.opcode & 0xf8 == 0xb0,
            Map::Legacy(1) => matches!(self.opcode, 0x90..=0x9f | 0xb0 | 0xc0),
            _ => false,
        }
    }

    /// The general registers that it may change, one bit each.
    pub fn sets(&self) -> u16 {
        if self.entry & (SETS_REG | SETS_RM | SETS_ANY) == 0 {
            return 0;
        }
        // A byte register may be the second byte of one of the first four.
        let bytes = self.has_bytes();
        let both = |n: u8| 1u16 << (n & 15) | if bytes { 1 << (n & 3) } else { 0 };
        if self.map == Map::One && self.opcode & 0xf0 == 0xb0 {
            return both(self.rm);
        }
        if self.entry & SETS_ANY != 0 || self.is_implicit() {
            return u16::MAX;
        }
        let mut set = 0;
        if self.entry & SETS_REG != 0 {
            set |= both(self.reg);
        }
        if self.entry & SETS_RM != 0 && !self.mem {
            set |= both(self.rm);
        }
        set
    }
}

/// An instruction is decoded from this many bytes. It and the next byte fit into them.
pub(crate) const WINDOW: usize = 16;

/// Reads an instruction byte by byte. After the end of the bytes it starts again at the first. The caller finds out
/// later that the instruction was too long.
struct Reader<'a> {
    code: &'a [u8; WINDOW],
    at: usize,
}

impl Reader<'_> {
    #[inline(always)]
    fn byte(&mut self) -> u8 {
        let b = self.code[self.at % WINDOW];
        self.at += 1;
        b
    }

    #[inline(always)]
    fn peek(&self) -> u8 {
        self.code[self.at % WINDOW]
    }
}

/// The first bytes of `code`, with zeros after its end.
#[inline(always)]
pub(crate) fn window(code: &[u8]) -> [u8; WINDOW] {
    match code.first_chunk() {
        Some(whole) => *whole,
        None => {
            let mut padded = [0; WINDOW];
            padded[..code.len()].copy_from_slice(code);
            padded
        }
    }
}

/// The extensions of register numbers, and W, as bits of a REX prefix.
#[derive(Clone, Copy, Default)]
struct Rex {
    w: bool,
    r: u8,
    x: u8,
    b: u8,
    /// The extension of a vector register as index.
    v: u8,
}

/// Decodes the instruction at the start of `code`. `None`: it is not on the list, or it is encoded in a way that no
/// translated code needs.
pub fn decode(code: &[u8]) -> Option<Instr> {
    among(&window(code), code.len())
}

/// The same for the first `len` bytes of `code`.
#[inline(always)]
pub(crate) fn among(code: &[u8; WINDOW], len: usize) -> Option<Instr> {
    let i = read(code)?;
    (i.len as usize <= len.min(15)).then_some(i)
}

#[inline(always)]
fn read(code: &[u8; WINDOW]) -> Option<Instr> {
    let mut r = Reader { code, at: 0 };
    let mut prefixes = 0;
    let mut first = r.byte();
    loop {
        let p = match first {
            0x66 => prefix::OPERAND,
            0x67 => prefix::ADDRESS,
            0x64 => prefix::FS,
            0x65 => prefix::GS,
            0xf0 => prefix::LOCK,
            0xf2 => prefix::REPNE,
            0xf3 => prefix::REP,
            _ => break,
        };
        const SEGMENT: u8 = prefix::FS | prefix::GS;
        const REPEAT: u8 = prefix::REP | prefix::REPNE;
        let group = match p {
            prefix::FS | prefix::GS => SEGMENT,
            prefix::REP | prefix::REPNE => REPEAT,
            _ => p,
        };
        if prefixes & group != 0 {
            return None;
        }
        prefixes |= p;
        first = r.byte();
    }
    if matches!(first, 0xc4 | 0xc5 | 0x62) {
        if prefixes & !(prefix::ADDRESS | prefix::FS | prefix::GS) != 0 {
            return None;
        }
        return match first {
            0x62 => evex(r, prefixes),
            _ => vex(r, prefixes, first),
        };
    }
    let mut rex = Rex::default();
    if first & 0xf0 == 0x40 {
        rex = Rex {
            w: first & 8 != 0,
            r: (first & 4) << 1,
            x: (first & 2) << 2,
            b: (first & 1) << 3,
            v: 0,
        };
        first = r.byte();
    }
    if first != 0x0f {
        return finish(r, prefixes, Map::One, 0, rex, first, ONE[first as usize]);
    }
    let pp = match prefixes & (prefix::REP | prefix::REPNE | prefix::OPERAND) {
        p if p & prefix::REP != 0 => 2,
        p if p & prefix::REPNE != 0 => 3,
        p => p & prefix::OPERAND,
    };
    let opcode = r.byte();
    let (map, table, opcode) = match opcode {
        0x38 => (2, &MAP_38, r.byte()),
        0x3a => (3, &MAP_3A, r.byte()),
        _ => (1, &MAP_0F, opcode),
    };
    let entry = match special_0f(opcode, pp) {
        special if map == 1 && special != 0 => special,
        _ => table[pp as usize][opcode as usize],
    };
    finish(r, prefixes, Map::Legacy(map), pp, rex, opcode, entry)
}

#[inline(never)]
fn vex(mut r: Reader, prefixes: u8, first: u8) -> Option<Instr> {
    let a = r.byte();
    let (map, rex, b) = if first == 0xc5 {
        let rex = Rex {
            r: (!a & 0x80) >> 4,
            ..Rex::default()
        };
        (1, rex, a & 0x7f)
    } else {
        let b = r.byte();
        let rex = Rex {
            w: b & 0x80 != 0,
            r: (!a & 0x80) >> 4,
            x: (!a & 0x40) >> 3,
            b: (!a & 0x20) >> 2,
            v: 0,
        };
        (a & 0x1f, rex, b)
    };
    let table = match map {
        1 => &VEX_0F,
        2 => &VEX_38,
        3 => &VEX_3A,
        _ => return None,
    };
    let (pp, length) = (b & 3, b >> 2 & 1);
    let opcode = r.byte();
    let entry = match (map, opcode, pp) {
        (1, 0xf7, 1) => MASKED,
        _ => table[pp as usize][opcode as usize],
    };
    let fits = entry & W0 << rex.w as u32 != 0 && entry & L0 << length != 0;
    // vzeroupper and vzeroall
    let entry = match (map, opcode, pp) {
        (1, 0x77, 0) => BARE,
        _ if fits => entry,
        _ => return None,
    };
    let mut i = finish(r, prefixes, Map::Vex(map), pp, rex, opcode, entry)?;
    i.length = length;
    Some(i)
}

#[inline(never)]
fn evex(mut r: Reader, prefixes: u8) -> Option<Instr> {
    let (a, b, c) = (r.byte(), r.byte(), r.byte());
    if a & 8 != 0 || b & 4 == 0 {
        return None;
    }
    let rex = Rex {
        w: b & 0x80 != 0,
        r: (!a & 0x80) >> 4,
        x: (!a & 0x40) >> 3,
        b: (!a & 0x20) >> 2,
        v: (!c & 8) << 1,
    };
    let table = match a & 7 {
        1 => &EVEX_0F,
        2 => &EVEX_38,
        3 => &EVEX_3A,
        5 => &EVEX_5,
        6 => &EVEX_6,
        _ => return None,
    };
    let (pp, length) = (b & 3, c >> 5 & 3);
    let opcode = r.byte();
    let entry = table[pp as usize][opcode as usize];
    // With registers only, the length may be a rounding mode.
    let rounds = c & 0x10 != 0 && r.peek() >= 0xc0;
    if entry & W0 << rex.w as u32 == 0 || !rounds && (length > 2 || entry & L0 << length == 0) {
        return None;
    }
    let mut i = finish(r, prefixes, Map::Evex(a & 7), pp, rex, opcode, entry)?;
    i.length = length;
    if i.disp_len == 1 {
        // The byte counts operands.
        i.disp_len = 2;
    }
    Some(i)
}

/// Reads what follows the opcode.
#[inline(always)]
fn finish(
    mut r: Reader,
    prefixes: u8,
    map: Map,
    pp: u8,
    rex: Rex,
    opcode: u8,
    entry: u32,
) -> Option<Instr> {
    if entry == 0 {
        return None;
    }
    let mut i = Instr {
        len: 0,
        prefixes,
        map,
        pp,
        wide: rex.w,
        opcode,
        modrm: 0,
        reg: 0,
        rm: rex.b | opcode & 7,
        mem: false,
        base: NONE,
        index: NONE,
        scale: 0,
        disp: 0,
        disp_len: 0,
        length: 0,
        entry,
        imm_at: 0,
        imm_len: 0,
    };
    if entry & BARE == 0 {
        operand(&mut r, &mut i, rex)?;
        let digits = if i.mem { i.entry } else { i.entry >> 8 };
        let listed = digits as u8 >> i.digit() & 1 != 0;
        let x87 = map == Map::One && opcode & 0xf8 == 0xd8 && !i.mem;
        let good = match x87 {
            true => X87[opcode as usize & 7] >> (i.modrm & 0x3f) & 1 != 0,
            false => listed,
        };
        if !good {
            return None;
        }
    }
    i.imm_at = r.at as u8;
    i.imm_len = immediate(&i)?;
    i.len = i.imm_at + i.imm_len;
    Some(i)
}

/// Reads the ModRM byte, and the SIB byte and displacement that belong to it.
#[inline(always)]
fn operand(r: &mut Reader, i: &mut Instr, rex: Rex) -> Option<()> {
    i.modrm = r.byte();
    i.reg = rex.r | i.modrm >> 3 & 7;
    let (mode, low) = (i.modrm >> 6, i.modrm & 7);
    i.rm = rex.b | low;
    if mode == 3 {
        return Some(());
    }
    i.mem = true;
    i.base = i.rm;
    i.disp_len = [0, 1, 4][mode as usize];
    if low == 4 {
        let sib = r.byte();
        i.scale = sib >> 6;
        let index = rex.x | sib >> 3 & 7;
        i.index = match index {
            _ if i.entry & VSIB != 0 => index | rex.v,
            4 => NONE,
            _ => index,
        };
        i.base = rex.b | sib & 7;
        if sib & 7 == 5 && mode == 0 {
            (i.base, i.disp_len) = (NONE, 4);
        }
    } else if i.entry & VSIB != 0 {
        return None;
    } else if low == 5 && mode == 0 {
        (i.base, i.disp_len) = (IP, 4);
    }
    i.disp = match i.disp_len {
        0 => 0,
        1 => r.byte() as i8 as i32,
        _ => i32::from_le_bytes([r.byte(), r.byte(), r.byte(), r.byte()]),
    };
    Some(())
}

/// The length of the immediate operand in bytes.
#[inline(always)]
fn immediate(i: &Instr) -> Option<u8> {
    let word = i.has(prefix::OPERAND) && !i.wide;
    Some(match i.map {
        Map::One => match i.entry & IMMEDIATE {
            IB => 1,
            // A jump's distance has four bytes here.
            IZ if i.entry & JUMP != 0 => match i.has(prefix::OPERAND) {
                true => return None,
                false => 4,
            },
            IZ if word => 2,
            IZ => 4,
            IV if i.wide => 8,
            IV if word => 2,
            IV => 4,
            IWB => 3,
            TEST if i.digit() > 1 => 0,
            TEST if i.opcode == 0xf6 => 1,
            TEST if word => 2,
            TEST => 4,
            _ => 0,
        },
        Map::Legacy(1) if i.entry & JUMP != 0 => match i.has(prefix::OPERAND) {
            true => return None,
            false => 4,
        },
        // extrq and insertq have two bytes.
        Map::Legacy(1) if i.opcode == 0x78 => 2,
        Map::Legacy(1) | Map::Vex(1) | Map::Evex(1) => immediate_0f(i.opcode) as u8,
        Map::Legacy(3) | Map::Vex(3) | Map::Evex(3) => 1,
        _ => 0,
    })
}
