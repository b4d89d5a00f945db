//! From the first byte of a block to its last.

use crate::allowed::{BARE, BOTH, IMMEDIATE, JUMP, MEM, ONE, STACK, STRING};
use crate::decode::{Instr, Map, among, prefix, window};
use crate::facts::{Facts, always_jumps};
use crate::shapes::{finds, flags_through_the_stack, word};
use crate::{Code, Kind, Marks, Refusal, Rules, Wrong};
use crate::{context, operand};
use alloc::vec::Vec;
use hindsight_isa::ctx::d;
use hindsight_isa::{Desc, DescKind};

/// Reads blocks, one at a time, reusing its buffers.
#[derive(Default)]
pub struct Checker {
    /// Instructions that may be entered: a bit for each byte of both parts, the cold one behind the hot one.
    entries: Vec<u64>,
    /// Jumps: where they are, and where they lead.
    jumps: Vec<(u32, u32)>,
    /// Where the distances of jumps in the hot part are, ascending.
    distances: Vec<u32>,
    /// Descriptors that code in the hot part names, ascending.
    named: Vec<u32>,
}

/// A pointer of the context block is jumped through: jmp qword gs:[disp].
const THROUGH: [u8; 4] = [0x65, 0xff, 0x24, 0x25];
/// mov dword gs:[DESC], constant.
const SAYS: [u8; 4] = [0x65, 0xc7, 0x04, 0x25];

/// State while a part is read.
struct Part<'a> {
    rules: &'a Rules,
    code: &'a Code<'a>,
    bytes: &'a [u8],
    cold: bool,
    /// Where the part begins in `entries`.
    first: u32,
    at: usize,
    facts: Facts,
    /// They are followed.
    follow: bool,
}

impl Checker {
    /// Makes one without buffers.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Whether the code of these blocks, which have been placed, does only what `rules` allow.
    pub fn check(&mut self, rules: &Rules, code: &Code) -> Result<(), Refusal> {
        let replay = rules.kind == Kind::Replay;
        let rests = rules.bits != 32 || rules.marks != Marks::None || rules.watch.is_some();
        match self.sweep(rules, code, replay && rests) {
            // What is known of registers takes time to follow, and is rarely needed elsewhere.
            Err(r) if r.what == Wrong::Operand && replay && !rests => self.sweep(rules, code, true),
            done => done,
        }
    }

    /// The same, following what is known of registers or not.
    fn sweep(&mut self, rules: &Rules, code: &Code, follow: bool) -> Result<(), Refusal> {
        let len = code.hot.len() + code.cold.len();
        self.entries.clear();
        self.entries.resize(len / 64 + 1, 0);
        self.jumps.clear();
        self.distances.clear();
        self.named.clear();
        self.part(rules, code, false, follow)?;
        self.part(rules, code, true, follow)?;
        if !self.named.is_empty() {
            return Err(Refusal::new(Wrong::Descriptor, false, 0, code.hot));
        }
        if !self.is_entry(0) {
            return Err(Refusal::new(Wrong::Instruction, false, 0, code.hot));
        }
        for (from, to) in &self.jumps {
            if !self.is_entry(*to) {
                let at = *from as usize;
                return Err(match at.checked_sub(code.hot.len()) {
                    None => Refusal::new(Wrong::Jump, false, at, code.hot),
                    Some(at) => Refusal::new(Wrong::Jump, true, at, code.cold),
                });
            }
        }
        Ok(())
    }

    /// Whether there is an instruction that may be entered at this offset of the hot part of what was checked last.
    pub fn is_entry(&self, at: u32) -> bool {
        let word = self.entries.get(at as usize / 64);
        word.is_some_and(|w| w >> (at % 64) & 1 != 0)
    }

    fn part(
        &mut self,
        rules: &Rules,
        code: &Code,
        cold: bool,
        follow: bool,
    ) -> Result<(), Refusal> {
        let mut p = Part {
            rules,
            code,
            bytes: if cold { code.cold } else { code.hot },
            cold,
            first: if cold { code.hot.len() as u32 } else { 0 },
            at: 0,
            facts: Facts::new(),
            follow,
        };
        // Whether execution comes from what is before: not to the first instruction.
        let mut comes = false;
        while p.at < p.bytes.len() {
            if !comes {
                p.facts.forget();
                if cold && self.descriptor(&mut p)? {
                    continue;
                }
                // Between blocks.
                if p.bytes[p.at] == 0xcc {
                    p.at += 1;
                    continue;
                }
            }
            let here = p.here();
            self.entries[here as usize / 64] |= 1 << (here % 64);
            comes = self.instruction(&mut p)?;
        }
        match comes {
            true => Err(p.refuse(Wrong::End)),
            false => Ok(()),
        }
    }

    /// Reads one instruction, or some that belong together; whether execution comes to what is behind.
    #[inline(always)]
    fn instruction(&mut self, p: &mut Part) -> Result<bool, Refusal> {
        let rest = &p.bytes[p.at..];
        let first = window(rest);
        if first[0] == 0x65 {
            if first[1] == 0xc7 && says_which(&first) {
                return self.says(p);
            }
            if let Some(len) = p.spills(&first) {
                p.at += len;
                return p.within();
            }
        }
        if !p.follow
            && let Some(len) = quick(p.rules, &first)
        {
            p.at += len;
            return p.within();
        }
        self.any(p, &first)
    }

    /// The same of what is not the most frequent.
    fn any(&mut self, p: &mut Part, first: &[u8; 16]) -> Result<bool, Refusal> {
        let rest = &p.bytes[p.at..];
        let replay = p.rules.kind == Kind::Replay;
        match first[0] {
            0x65 if replay && first[3] == 0x24 => {
                if let Some(len) = flags_through_the_stack(rest) {
                    p.at += len;
                    return Ok(true);
                }
            }
            0x41 if first[3] == 0xca => {
                if let Some((len, miss)) = finds(rest, replay) {
                    self.jump(p, miss as usize - 4, miss as usize, false)?;
                    p.at += len;
                    return Ok(false);
                }
            }
            0x4c if first[1] == 0x8d && first[2] == 0x15 && !replay => {
                // lea r10, [rip + …]: where an atomic operation goes on.
                self.jump(p, 3, 7, false)?;
                p.at += 7;
                return Ok(true);
            }
            _ => {}
        }
        let Some(i) = among(first, rest.len()) else {
            return Err(p.refuse(Wrong::Instruction));
        };
        let Some(rests_on) = operand::check(p.rules, &p.facts, &i, rest) else {
            return Err(p.refuse(Wrong::Operand));
        };
        if i.entry & JUMP != 0 {
            // A jump's distance is short, or has four bytes.
            self.jump(p, i.imm_at as usize, i.len as usize, true)?;
        }
        if let Some(from) = rests_on {
            self.bar(from, p.here());
        }
        if p.follow {
            p.facts.pass(p.rules, &i, rest, p.here());
        }
        p.at += i.len as usize;
        Ok(!always_jumps(&i) && !leaves(&i))
    }

    /// Notes a jump, whose distance is at `field` of the instruction at hand and counts from `end` of it; `links`: it may
    /// be redirected to another block.
    fn jump(&mut self, p: &Part, field: usize, end: usize, links: bool) -> Result<(), Refusal> {
        let bytes = &p.bytes[p.at..];
        let distance = match bytes.get(field..end) {
            Some([b]) => *b as i8 as i64,
            Some(&[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]) as i64,
            _ => return Err(p.refuse(Wrong::Jump)),
        };
        if links && end - field == 4 && !p.cold {
            self.distances.push((p.at + field) as u32);
        }
        let base = if p.cold {
            p.code.cold_at
        } else {
            p.code.hot_at
        };
        let to = base as i64 + (p.at + end) as i64 + distance;
        let Some(to) = p.code.index(to) else {
            return Err(p.refuse(Wrong::Jump));
        };
        self.jumps.push((p.here(), to));
        Ok(())
    }

    /// `mov dword gs:[DESC], constant`, in replay with the exit that it is for.
    fn says(&mut self, p: &mut Part) -> Result<bool, Refusal> {
        const LEN: usize = 12;
        let rest = &p.bytes[p.at..];
        let Some(desc) = word(rest, 8) else {
            return Err(p.refuse(Wrong::Instruction));
        };
        const EXIT: u64 = u32::from_le_bytes(THROUGH) as u64 | (d::EXIT_PTR as u32 as u64) << 32;
        let exit = rest.get(LEN..).and_then(|e| e.first_chunk());
        let leaves = exit.is_some_and(|e| u64::from_le_bytes(*e) == EXIT);
        let end = p.at + LEN + THROUGH.len() + 4;
        if leaves && desc as u64 == Desc::NOT_FOUND {
            p.at = end;
            return Ok(false);
        }
        if leaves && p.cold {
            // Its descriptor is behind it.
            if desc.wrapping_sub(p.code.cold_at) as usize != end {
                return Err(p.refuse(Wrong::Descriptor));
            }
            p.at = end;
            self.describe(p)?;
            return Ok(false);
        }
        if leaves || p.cold || p.rules.kind == Kind::Replay {
            return Err(p.refuse(Wrong::Descriptor));
        }
        if self.named.last().is_some_and(|last| *last >= desc) {
            return Err(p.refuse(Wrong::Descriptor));
        }
        self.named.push(desc);
        p.at += LEN;
        Ok(true)
    }

    /// Reads a descriptor that code in the hot part names, if one is here.
    fn descriptor(&mut self, p: &mut Part) -> Result<bool, Refusal> {
        let here = p.code.cold_at.wrapping_add(p.at as u32);
        match self.named.binary_search(&here) {
            Ok(k) => {
                self.named.remove(k);
                self.describe(p)?;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// Reads the descriptor that is here.
    fn describe(&mut self, p: &mut Part) -> Result<(), Refusal> {
        let bytes = &p.bytes[p.at..];
        let bad = || Err(p.refuse(Wrong::Descriptor));
        let Some(desc) = Desc::decode(bytes) else {
            return bad();
        };
        use DescKind::*;
        let replay = p.rules.kind == Kind::Replay;
        let (allowed, goes_on) = match desc.kind() {
            Exit | Raise | Syscall => (true, false),
            Slow | PreCheck => (true, true),
            Surprise | SurpriseValue | Order => (!replay, true),
            Budget => (replay, false),
            Watch => (replay, true),
            Stale => (!replay, false),
            Indirect => (false, false),
        };
        if !allowed || desc.ilen as usize > desc.bytes.len() || goes_on != (desc.resume != 0) {
            return bad();
        }
        if goes_on {
            let Some(to) = p.code.index(desc.resume as i64) else {
                return bad();
            };
            self.jumps.push((p.here(), to));
        }
        if desc.patch != 0 {
            let at = desc.patch.wrapping_sub(p.code.hot_at);
            let links = desc.kind() == Exit && self.distances.binary_search(&at).is_ok();
            if !links {
                return bad();
            }
        }
        p.at += if desc.is_long() {
            Desc::LONG
        } else {
            Desc::SHORT
        };
        Ok(())
    }

    /// Nothing behind `from`, up to `to`, may be entered.
    fn bar(&mut self, from: u32, to: u32) {
        for at in from + 1..=to {
            self.entries[at as usize / 64] &= !(1 << (at % 64));
        }
    }
}

/// Whether it says which descriptor an exit has: mov dword gs:[DESC], constant.
fn says_which(first: &[u8; 16]) -> bool {
    const BEGIN: u64 = u32::from_le_bytes(SAYS) as u64 | (d::DESC as u32 as u64) << 32;
    first.first_chunk().map(|b| u64::from_le_bytes(*b)) == Some(BEGIN)
}

impl Part<'_> {
    /// A register and a field of the context block, which is what translated code does most: mov gs:[disp], register, and
    /// the other way round. Its length; `None` if it is something else, or not allowed.
    #[inline(always)]
    fn spills(&mut self, first: &[u8; 16]) -> Option<usize> {
        const LEN: usize = 9;
        let [_, rex, opcode, modrm, sib, a, b, c, d, ..] = *first;
        let form = rex & 0xfb == 0x48 && modrm & 0xc7 == 4 && sib == 0x25;
        if !form || opcode & 0xfd != 0x89 {
            return None;
        }
        let write = opcode == 0x89;
        let disp = i32::from_le_bytes([a, b, c, d]);
        if !context::may_word(disp, write, self.rules.kind == Kind::Replay) {
            return None;
        }
        if !write {
            self.facts.drop((rex & 4) << 1 | modrm >> 3);
        }
        Some(LEN)
    }

    /// Execution goes on, if the instruction that has been read is not cut.
    #[inline(always)]
    fn within(&self) -> Result<bool, Refusal> {
        match self.at <= self.bytes.len() {
            true => Ok(true),
            false => Err(Refusal::new(
                Wrong::End,
                self.cold,
                self.bytes.len(),
                self.bytes,
            )),
        }
    }

    /// Where the present instruction is in `entries`.
    fn here(&self) -> u32 {
        self.first + self.at as u32
    }

    fn refuse(&self, what: Wrong) -> Refusal {
        Refusal::new(what, self.cold, self.at, self.bytes)
    }
}

impl Code<'_> {
    /// Where an offset from the cache's base is in `entries`.
    fn index(&self, at: i64) -> Option<u32> {
        let within = |start: u32, part: &[u8]| {
            let offset = usize::try_from(at - start as i64).ok()?;
            (offset < part.len()).then_some(offset)
        };
        match within(self.hot_at, self.hot) {
            Some(hot) => Some(hot as u32),
            None => Some((self.hot.len() + within(self.cold_at, self.cold)?) as u32),
        }
    }
}

/// Opcodes of one byte that have nothing behind their operands, with memory or without: 1; those of `lea`: 2.
static QUICK: [u8; 256] = {
    let mut quick = [0; 256];
    let mut k = 0;
    while k < 256 {
        let operands = ONE[k] & 0xffff;
        let more = ONE[k] & (IMMEDIATE | BARE | STACK | STRING | JUMP) != 0;
        // Not what `operand` has rules for.
        if operands == BOTH && !more && !(k >= 0xd8 && k <= 0xdf) {
            quick[k] = 1;
        }
        if operands == MEM && !more {
            quick[k] = 2;
        }
        k += 1;
    }
    quick
};

/// Length of the instruction at the start of `first`, if it is one of the most frequent kind and allowed: of one byte
/// besides its operands, with registers, an operand in a window of 2^32 cells or, in a recording, any.
#[inline(always)]
fn quick(rules: &Rules, first: &[u8; 16]) -> Option<usize> {
    let window = first[0] == 0x65 && first[1] == 0x67;
    let mut k = if window { 2 } else { 0 };
    if first[k] & 0xf0 == 0x40 {
        k += 1;
    }
    let kind = QUICK[first[k] as usize];
    let modrm = first[k + 1];
    let mode = modrm >> 6;
    if kind == 0 || mode == 3 {
        return (kind == 1 && !window && mode == 3).then_some(k + 2);
    }
    let good = match (kind, window) {
        (1, true) => rules.bits == 32 && rules.kind != Kind::Plain,
        (1, false) => rules.kind != Kind::Replay,
        (_, window) => !window,
    };
    let sib = modrm & 7 == 4;
    let bare = mode == 0 && if sib { first[k + 2] & 7 } else { modrm & 7 } == 5;
    if !good || bare {
        return None;
    }
    Some(k + 2 + sib as usize + [0, 1, 4, 0][mode as usize])
}

/// Whether `i` leaves through the context block.
fn leaves(i: &Instr) -> bool {
    i.is(Map::One, 0xff) && i.digit() == 4 && i.has(prefix::GS)
}
