//! Reads a block from its first byte to its last.

use crate::allowed::JUMP;
use crate::decode::{Instr, Map, WINDOW, among, prefix, window};
use crate::facts::{Facts, always_jumps};
use crate::operand::{self, may_mark, write_marks};
use crate::part::Part;
use crate::quick::{AHEAD, GROUP, Quick, eight, mark, pads, usual};
use crate::shapes::{
    HALF_ADDRESS, STEP, finds, flags_through_the_stack, half_address, word, write_mark,
};
use crate::{Code, Kind, Marks, Refusal, Rules, Wrong};
use alloc::vec::Vec;
use hindsight_isa::ctx::d;
use hindsight_isa::{Desc, DescKind};

/// Reads blocks, one at a time. It reuses its buffers.
#[derive(Default)]
pub struct Checker {
    /// The groups of both halves. Each half begins with a group of its own.
    groups: Vec<Group>,
    /// Descriptors that code in the hot half names, ascending.
    named: Vec<u32>,
    /// A second pass looks for the jump that leads to this place.
    wanted: Option<usize>,
}

/// [`GROUP`] bytes of code, with one bit for each.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Instructions that may be entered.
    entries: u64,
    /// Where jumps lead.
    targets: u64,
    /// In the hot half, the distances of jumps that may be linked.
    distances: u64,
}

/// jmp qword gs:[disp]: a jump through a pointer of the context block
const THROUGH: [u8; 4] = [0x65, 0xff, 0x24, 0x25];
/// mov dword gs:[DESC], constant
const SAYS: [u8; 4] = [0x65, 0xc7, 0x04, 0x25];
/// The first four bytes of an instruction, and its displacement.
const fn with(begin: [u8; 4], disp: i32) -> u64 {
    u32::from_le_bytes(begin) as u64 | (disp as u32 as u64) << 32
}

/// The same with the displacement of `DESC`.
const SAYS_WHICH: u64 = with(SAYS, d::DESC);

/// The end of a half, with zeros after it.
type Padded = [u8; GROUP + AHEAD];

/// The bytes of the group at `start`, and those after it.
#[inline(always)]
fn ahead<'a>(bytes: &'a [u8], start: usize, end: &'a Padded) -> Option<&'a [u8; AHEAD]> {
    match bytes.get(start..)?.first_chunk() {
        Some(whole) => Some(whole),
        // It is the last group, or the one before.
        None => end.get(start - last_groups(bytes.len())..)?.first_chunk(),
    }
}

/// The start of the first group after which fewer bytes follow than are looked at.
fn last_groups(len: usize) -> usize {
    (len + GROUP).saturating_sub(AHEAD) / GROUP * GROUP
}

impl Checker {
    /// A checker without buffers.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Checks a block that has been placed: its code must do only what `rules` allow.
    ///
    /// # Errors
    /// The first violation that was found.
    pub fn check(&mut self, rules: &Rules, code: &Code) -> Result<(), Refusal> {
        let groups = code.hot.len() / GROUP + code.cold.len() / GROUP + 2;
        self.groups.clear();
        self.groups.resize(groups, Group::default());
        self.named.clear();
        self.part(rules, code, false)?;
        self.part(rules, code, true)?;
        if !self.named.is_empty() {
            return Err(Refusal::new(Wrong::Descriptor, false, 0, code.hot));
        }
        if !self.is_entry(0) {
            return Err(Refusal::new(Wrong::Instruction, false, 0, code.hot));
        }
        match self.groups.iter().any(|g| g.targets & !g.entries != 0) {
            true => Err(self.stray(rules, code)),
            false => Ok(()),
        }
    }

    /// The refusal for a jump that leads to no instruction.
    #[cold]
    fn stray(&mut self, rules: &Rules, code: &Code) -> Refusal {
        let mut groups = self.groups.iter().map(|g| g.targets & !g.entries);
        self.wanted = groups.position(|g| g != 0).map(|n| {
            let g = &self.groups[n];
            n * GROUP + (g.targets & !g.entries).trailing_zeros() as usize
        });
        self.named.clear();
        let found = self.part(rules, code, false);
        let found = found.and_then(|()| self.part(rules, code, true));
        self.wanted = None;
        let unknown = Refusal::new(Wrong::Jump, false, 0, code.hot);
        found.err().unwrap_or(unknown)
    }

    /// Whether the hot half of the last block has an instruction at this offset that may be entered.
    pub fn is_entry(&self, at: u32) -> bool {
        let group = self.groups.get(at as usize / GROUP);
        group.is_some_and(|g| g.entries >> (at as usize % GROUP) & 1 != 0)
    }

    fn part(&mut self, rules: &Rules, code: &Code, cold: bool) -> Result<(), Refusal> {
        let mut p = Part::new(rules, code, cold);
        let quick = Quick::new(rules);
        let bytes = p.bytes;
        let mut end: Padded = [0; GROUP + AHEAD];
        let rest = &bytes[last_groups(bytes.len())..];
        end[..rest.len()].copy_from_slice(rest);
        if !self.lands(&mut p)? {
            return Ok(());
        }
        let mut at = p.at;
        while at < bytes.len() {
            let start = at - at % GROUP;
            let Some(ahead) = ahead(bytes, start, &end) else {
                break;
            };
            let group = (p.first + start) / GROUP;
            let next = GROUP.min(bytes.len() - start);
            let (mut here, mut entries) = (at - start, 0);
            while here < next {
                let word = eight(ahead, here);
                entries |= 1 << here;
                if let Some(len) = quick.len(word, ahead[here + 8]) {
                    here += len;
                    continue;
                }
                at = start + here;
                // jmp and jcc
                let goes_on = if word as u16 & 0xf0ff == 0x800f {
                    at = self.leaps(&p, at, 6, (word >> 16) as i32)?;
                    true
                } else if word as u8 == 0xe9 {
                    at = self.leaps(&p, at, 5, (word >> 8) as i32)?;
                    false
                } else if word == SAYS_WHICH && cold {
                    at = self.exits(&p, at)?;
                    false
                } else if word as u8 == 0xe3 {
                    at = self.hops(&p, at, (word >> 8) as i8)?;
                    true
                } else if let Some(len) = pads(word) {
                    at += len;
                    true
                } else {
                    self.groups[group].entries |= core::mem::take(&mut entries);
                    p.at = at;
                    let goes_on = self.any(&mut p)?;
                    at = p.at;
                    goes_on
                };
                if !goes_on {
                    p.at = at;
                    if !self.lands(&mut p)? {
                        self.groups[group].entries |= entries;
                        return Ok(());
                    }
                    at = p.at;
                }
                here = at - start;
            }
            self.groups[group].entries |= entries;
            at = start + here;
        }
        let cut = (at > bytes.len()).then(|| (0..bytes.len()).rfind(|at| self.entered(&p, *at)));
        Err(match cut.flatten() {
            Some(last) => p.refuse_at(last, Wrong::Instruction),
            None => p.refuse_at(bytes.len(), Wrong::End),
        })
    }

    /// Notes the jump at `at`. It has `len` bytes, of which the last four are the distance. Returns its end.
    #[inline(always)]
    fn leaps(&mut self, p: &Part, at: usize, len: usize, distance: i32) -> Result<usize, Refusal> {
        let end = at + len;
        if end > p.bytes.len() || !self.leads(p, end as i64 + distance as i64) {
            return Err(p.refuse_at(at, Wrong::Jump));
        }
        if !p.cold {
            let field = end - 4;
            self.groups[field / GROUP].distances |= 1 << (field % GROUP);
        }
        Ok(end)
    }

    /// Notes the `jrcxz` at `at`, which cannot be linked. Returns its end.
    #[inline(always)]
    fn hops(&mut self, p: &Part, at: usize, distance: i8) -> Result<usize, Refusal> {
        let end = at + 2;
        match end <= p.bytes.len() && self.leads(p, end as i64 + distance as i64) {
            true => Ok(end),
            false => Err(p.refuse_at(at, Wrong::Jump)),
        }
    }

    /// Called where execution does not continue from the code before. Skips descriptors and the space between blocks.
    /// Returns whether anything follows.
    #[inline(always)]
    fn lands(&mut self, p: &mut Part) -> Result<bool, Refusal> {
        match p.bytes.get(p.at) {
            Some(0xcc) => self.passes(p),
            Some(_) if p.cold && !self.named.is_empty() => self.passes(p),
            Some(_) => {
                p.since = p.at;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// The same, where there may be something to skip.
    #[inline(never)]
    fn passes(&mut self, p: &mut Part) -> Result<bool, Refusal> {
        while let Some(next) = p.bytes.get(p.at) {
            if p.cold && self.descriptor(p)? {
                continue;
            }
            if *next != 0xcc {
                p.since = p.at;
                return Ok(true);
            }
            p.at += 1;
        }
        Ok(false)
    }

    /// Reads one instruction, or several that belong together. Returns whether execution continues after it.
    #[inline(never)]
    fn any(&mut self, p: &mut Part) -> Result<bool, Refusal> {
        let rest = &p.bytes[p.at..];
        let first = &window(rest);
        let replay = p.rules.kind == Kind::Replay;
        match first[0] {
            0x65 if !p.cold && first[..8] == SAYS_WHICH.to_le_bytes() => return self.says(p),
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
                // lea r10, [rip + …]: where an atomic operation goes on
                self.jump(p, 3, 7, false)?;
                p.at += 7;
                return Ok(true);
            }
            _ => {}
        }
        let usual = match first[0] {
            0x65 if p.rules.marks == Marks::Beside && self.marks_writes(p, first) => {
                return Ok(true);
            }
            0x64 => mark(p.rules, first),
            _ => usual(p.rules, first),
        };
        if let Some(len) = usual {
            p.at += len;
            return Ok(true);
        }
        self.by_the_rules(p, first)
    }

    /// Reads marks of writes, if they begin here in their usual form: an address in `r10d`, the steps to where marks
    /// are, and one mark or more. Nothing after the first of these instructions may be entered. Returns false if that is
    /// not so, and has read nothing then.
    fn marks_writes(&mut self, p: &mut Part, first: &[u8; WINDOW]) -> bool {
        const STEPS: usize = write_marks().0 as usize;
        let mut ends = p.at;
        let mut last = p.at;
        let mut code = *first;
        while let Some((len, size, disp)) = write_mark(&code)
            && may_mark(disp, size)
            && ends + len <= p.bytes.len()
        {
            (last, ends) = (ends, ends + len);
            code = window(&p.bytes[ends..]);
        }
        let Some(begin) = p.at.checked_sub(STEPS * STEP.len()) else {
            return false;
        };
        if last == ends
            || begin < p.since
            || p.bytes[begin..p.at].chunks(STEP.len()).any(|s| *s != STEP)
        {
            return false;
        }
        let near = begin.saturating_sub(HALF_ADDRESS).max(p.since);
        let address = (near..begin).rev().find(|at| self.entered(p, *at));
        let Some(from) = address.filter(|from| half_address(&p.bytes[*from..begin])) else {
            return false;
        };
        let from = (p.first + from) as u32;
        debug_assert_eq!(
            among(first, WINDOW).map(|i| self.operand(p, &i)),
            Some(Some(Some(from))),
            "a short cut finds what the rules find"
        );
        self.bar(from, (p.first + last) as u32);
        p.at = ends;
        true
    }

    /// The same for one instruction, by its rules.
    fn by_the_rules(&mut self, p: &mut Part, first: &[u8; WINDOW]) -> Result<bool, Refusal> {
        let rest = &p.bytes[p.at..];
        let Some(i) = among(first, rest.len()) else {
            return Err(p.refuse(Wrong::Instruction));
        };
        let Some(rests_on) = self.operand(p, &i) else {
            return Err(p.refuse(Wrong::Operand));
        };
        if i.entry & JUMP != 0 {
            // A jump's distance has one byte or four.
            self.jump(p, i.imm_at as usize, i.len as usize, true)?;
        }
        if let Some(from) = rests_on {
            self.bar(from, p.here());
        }
        p.at += i.len as usize;
        Ok(!always_jumps(&i) && !leaves(&i))
    }

    /// Whether the operand of `i`, the present instruction, is allowed, and on what that relies. Facts about registers
    /// are collected only if an operand needs them, at first from a few instructions before it.
    fn operand(&self, p: &Part, i: &Instr) -> operand::Allowed {
        let code = &p.bytes[p.at..];
        let check = |facts: &Facts| operand::check(p.rules, facts, i, code);
        let allowed = check(&Facts::new());
        if allowed.is_some() || p.rules.kind != Kind::Replay {
            return allowed;
        }
        // Marks beside the window need three instructions before them.
        let near = match p.rules.marks {
            Marks::Beside => 24,
            _ => 9,
        };
        let mut last = p.at;
        [near, 64, usize::MAX].into_iter().find_map(|distance| {
            let from = p.at.saturating_sub(distance).max(p.since);
            let from = (from..p.at).find(|at| self.entered(p, *at))?;
            (from != last).then(|| {
                last = from;
                check(&p.facts(from))
            })?
        })
    }

    /// Whether an instruction was found at this offset of the half.
    fn entered(&self, p: &Part, at: usize) -> bool {
        let at = p.first + at;
        self.groups[at / GROUP].entries >> (at % GROUP) & 1 != 0
    }

    /// Notes a jump. Its distance is at `field` of the present instruction, and counts from `end` of it. `links`: it
    /// may be linked to another block.
    fn jump(&mut self, p: &Part, field: usize, end: usize, links: bool) -> Result<(), Refusal> {
        let bytes = &p.bytes[p.at..];
        let distance = match bytes.get(field..end) {
            Some([b]) => *b as i8 as i64,
            Some(&[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]) as i64,
            _ => return Err(p.refuse(Wrong::Jump)),
        };
        if links && end - field == 4 && !p.cold {
            let at = p.at + field;
            self.groups[at / GROUP].distances |= 1 << (at % GROUP);
        }
        match self.leads(p, (p.at + end) as i64 + distance) {
            true => Ok(()),
            false => Err(p.refuse(Wrong::Jump)),
        }
    }

    /// Notes where something leads, as an offset in this half. `false`: that is in neither half, or it is the place
    /// that the second pass looks for.
    #[inline(always)]
    fn leads(&mut self, p: &Part, to: i64) -> bool {
        let at = if (to as usize) < p.bytes.len() {
            p.first + to as usize
        } else if ((to + p.distance) as usize) < p.other_len {
            p.other + (to + p.distance) as usize
        } else {
            return false;
        };
        self.groups[at / GROUP].targets |= 1 << (at % GROUP);
        self.wanted != Some(at)
    }

    /// Reads `mov dword gs:[DESC], constant` at `at` in the cold half, with the exit and the descriptor that follow.
    /// Returns the end.
    #[inline(always)]
    fn exits(&mut self, p: &Part, at: usize) -> Result<usize, Refusal> {
        const LEN: usize = 12;
        const EXIT: u64 = with(THROUGH, d::EXIT_PTR);
        let whole: Option<&[u8; LEN + 8]> = p.bytes.get(at..).and_then(|e| e.first_chunk());
        if let Some(&[_, _, _, _, _, _, _, _, a, b, c, d, ref exit @ ..]) = whole
            && u64::from_le_bytes(*exit) == EXIT
        {
            let end = at + LEN + 8;
            let desc = u32::from_le_bytes([a, b, c, d]);
            if desc.wrapping_sub(p.code.cold_at) as usize == end {
                return self.describe(p, end);
            }
            if desc as u64 == Desc::NOT_FOUND {
                return Ok(end);
            }
        }
        Err(p.refuse_at(at, Wrong::Descriptor))
    }

    /// The same in the hot half, where the exit may be elsewhere. Returns whether execution continues after it.
    fn says(&mut self, p: &mut Part) -> Result<bool, Refusal> {
        const LEN: usize = 12;
        let rest = &p.bytes[p.at..];
        let Some(desc) = word(rest, 8) else {
            return Err(p.refuse(Wrong::Instruction));
        };
        let exit = with(THROUGH, d::EXIT_PTR).to_le_bytes();
        if rest[LEN..].starts_with(&exit) && desc as u64 == Desc::NOT_FOUND {
            p.at += LEN + exit.len();
            return Ok(false);
        }
        let order = self.named.last().is_none_or(|last| *last < desc);
        if rest[LEN..].starts_with(&exit) || p.rules.kind == Kind::Replay || !order {
            return Err(p.refuse(Wrong::Descriptor));
        }
        self.named.push(desc);
        p.at += LEN;
        Ok(true)
    }

    /// Reads the descriptor at the present place, if code in the hot half names it.
    #[inline(never)]
    fn descriptor(&mut self, p: &mut Part) -> Result<bool, Refusal> {
        let here = p.code.cold_at.wrapping_add(p.at as u32);
        match self.named.binary_search(&here) {
            Ok(k) => {
                self.named.remove(k);
                p.at = self.describe(p, p.at)?;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// Reads the descriptor at `at`. Returns its end.
    #[inline(always)]
    fn describe(&mut self, p: &Part, at: usize) -> Result<usize, Refusal> {
        let bad = || Err(p.refuse_at(at, Wrong::Descriptor));
        let Some(desc) = p.bytes.get(at..).and_then(Desc::leads) else {
            return bad();
        };
        use DescKind::*;
        const fn set(kinds: &[DescKind]) -> u16 {
            let (mut set, mut k) = (0, 0);
            while k < kinds.len() {
                set |= 1 << kinds[k] as u8;
                k += 1;
            }
            set
        }
        // The kinds that may stand in code, and those after which execution goes on.
        const BOTH: u16 = set(&[Exit, Raise, Syscall, Slow, PreCheck]);
        const REPLAY: u16 = BOTH | set(&[Budget, Watch]);
        const RECORDING: u16 = BOTH | set(&[Mispredicted, MispredictedValue, Sequence, Stale]);
        const GOES_ON: u16 = set(&[
            Slow,
            PreCheck,
            Mispredicted,
            MispredictedValue,
            Sequence,
            Watch,
        ]);
        let kind = 1 << desc.kind as u8;
        let kinds = match p.rules.kind {
            Kind::Replay => REPLAY,
            _ => RECORDING,
        };
        let goes_on = kind & GOES_ON != 0;
        if kind & kinds == 0 || desc.ilen > 15 || goes_on != (desc.resume != 0) {
            return bad();
        }
        if goes_on && !self.leads(p, desc.resume as i64 - p.place()) {
            // In the second pass all of them lead to somewhere in the block.
            return match self.wanted {
                Some(_) => Err(p.refuse_at(at, Wrong::Jump)),
                None => bad(),
            };
        }
        if desc.patch != 0 {
            let field = desc.patch.wrapping_sub(p.code.hot_at) as usize;
            let links = field < p.code.hot.len()
                && self.groups[field / GROUP].distances >> (field % GROUP) & 1 != 0;
            if !links || desc.kind != Exit {
                return bad();
            }
        }
        Ok(at + desc.len)
    }

    /// Forbids to enter anything after `from`, up to `to`.
    fn bar(&mut self, from: u32, to: u32) {
        let (first, last) = (from as usize + 1, to as usize);
        for group in first / GROUP..=last / GROUP {
            let low = first.saturating_sub(group * GROUP);
            let high = (last - group * GROUP).min(GROUP - 1);
            let bits = u64::MAX << low & u64::MAX >> (GROUP - 1 - high);
            self.groups[group].entries &= !bits;
        }
    }
}

/// Whether `i` leaves the block through the context block.
fn leaves(i: &Instr) -> bool {
    i.is(Map::One, 0xff) && i.digit() == 4 && i.has(prefix::GS)
}
