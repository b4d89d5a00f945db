//! Which function a thread called in a gap, and what that may have done to memory.

use super::declared::{At, Declaration, Declarations, Size};
use super::imports::Imports;
use crate::{Inspector, LONGEST, Result, word};
use hindsight_timeline::{CpuState, Cursor, Mapping, ThreadId, Unrecorded, regs};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A format is read up to this many bytes.
const FORMAT: usize = 4096;
/// What memory that is given out may have behind the bytes that were asked for.
const SLACK: u64 = 24;
/// How far the variables of a thread lie before and behind where its FS base points. A page more or less does no harm.
const THREAD_BEFORE: u64 = 64 << 10;
const THREAD_BEHIND: u64 = 4 << 10;

/// What a gap did to memory.
pub struct Effect {
    /// What was called, and the declaration that was used.
    pub declared: Option<(String, String)>,
    /// What may have been written.
    writes: Vec<Range<u64>>,
    /// Memory that is neither a stack nor a file's may have changed.
    heap: bool,
    /// The file whose variables only its own code changes.
    file: Option<String>,
    /// Up from here, the stack still has what it had.
    stack: u64,
    fs_base: u64,
}

impl Effect {
    /// A gap that is assumed to have written nothing.
    pub fn nothing(before: &CpuState, after: &CpuState) -> Effect {
        Effect {
            declared: None,
            writes: Vec::new(),
            heap: false,
            file: None,
            stack: before.gpr[regs::RSP].max(after.gpr[regs::RSP]),
            fs_base: before.fs_base,
        }
    }

    /// Whether a byte still holds behind the gap what it held before. `list` is what was mapped.
    pub fn keeps(&self, address: u64, list: &[Mapping]) -> bool {
        let Some(m) = list.iter().find(|m| m.start <= address && address < m.end) else {
            return false;
        };
        if m.is_shared() || self.writes.iter().any(|w| w.contains(&address)) {
            return false;
        }
        if (m.start..m.end).contains(&self.stack) {
            return address >= self.stack;
        }
        let from = self.fs_base.saturating_sub(THREAD_BEFORE);
        if (from..self.fs_base.saturating_add(THREAD_BEHIND)).contains(&address) {
            return false;
        }
        match &self.file {
            None => true,
            Some(file) if m.path == *file => true,
            Some(_) => !self.heap && (m.path.is_empty() || m.path == "[heap]"),
        }
    }
}

/// Finds out about calls.
pub struct Calls<'a> {
    pub inspector: &'a mut Inspector,
    pub declarations: &'a Declarations,
    imports: HashMap<String, Arc<Imports>>,
}

impl<'a> Calls<'a> {
    pub fn new(inspector: &'a mut Inspector, declarations: &'a Declarations) -> Calls<'a> {
        Calls {
            inspector,
            declarations,
            imports: HashMap::new(),
        }
    }

    /// What a gap did, if in it one function was called that is declared, and returned. The cursor may stand anywhere
    /// afterwards.
    pub fn effect(
        &mut self,
        cursor: &mut Cursor,
        thread: ThreadId,
        gap: &Unrecorded,
    ) -> Result<Option<Effect>> {
        if gap.to == u64::MAX || gap.from == 0 {
            return Ok(None);
        }
        cursor.seek_count(thread, gap.to)?;
        let after = cursor.registers()?;
        // The instruction that went there.
        cursor.seek_count(thread, gap.from - 1)?;
        let jump = cursor.registers()?;
        let code = cursor.code(jump.rip, LONGEST)?;
        let space = self.inspector.here(cursor)?;
        cursor.seek_count(thread, gap.from)?;
        let before = cursor.registers()?;
        let (Some(from), Some(to)) = (space.mapping(jump.rip), space.mapping(before.rip)) else {
            return Ok(None);
        };
        let caller = from.module.path().to_owned();
        let imports = self.imports.entry(caller.clone());
        let imports = Arc::clone(imports.or_insert_with(|| Arc::new(Imports::of(&from.module))));
        let slot = slot_of(&code, jump.rip).map(|at| at.wrapping_sub(from.bias));
        let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let called = file(to.module.path());
        let rsp = before.gpr[regs::RSP];
        let mut top = rsp;
        let mut filled = None;
        let (name, declaration) = match slot.and_then(|s| imports.at(s)) {
            Some(name) => (name.to_owned(), self.declarations.of(&called, name)),
            // The first call: the loader finds the function, and fills the slot. Its number stands above what names the file.
            None if called.starts_with("ld-") && slot.is_some() => {
                let number = word(cursor, rsp.wrapping_add(8))?;
                let Some((slot, name)) = number.and_then(|n| imports.lazy(n)) else {
                    return Ok(None);
                };
                filled = Some(slot.wrapping_add(from.bias));
                top = rsp.wrapping_add(16);
                (name.to_owned(), self.declarations.of_any(name))
            }
            None => {
                let there = to.module.function(before.rip.wrapping_sub(to.bias));
                let Some((function, 0)) = there else {
                    return Ok(None);
                };
                let name = function
                    .name
                    .split('@')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                let d = self.declarations.of(&called, &name);
                (name, d)
            }
        };
        let Some(declaration) = declaration.cloned() else {
            return Ok(None);
        };
        let stack = top.wrapping_add(8);
        let returned = word(cursor, top)? == Some(after.rip) && after.gpr[regs::RSP] == stack;
        if !returned || declaration.stdio && imports.gives_buffers() {
            return Ok(None);
        }
        let mut effect = Effect {
            declared: Some((name, declaration.text.clone())),
            writes: imports.copies.iter().map(|c| moved(c, from.bias)).collect(),
            heap: declaration.heap || declaration.stdio && imports.looks_into_streams(),
            file: Some(caller),
            stack,
            fs_base: before.fs_base,
        };
        effect
            .writes
            .extend(filled.map(|at| at..at.saturating_add(8)));
        let known = self.written(cursor, &declaration, (&before, &after), &mut effect)?;
        Ok(known.then_some(effect))
    }

    /// Adds what the function wrote. The cursor stands where it was called. `false`: that is not known.
    fn written(
        &self,
        cursor: &mut Cursor,
        declaration: &Declaration,
        (before, after): (&CpuState, &CpuState),
        effect: &mut Effect,
    ) -> Result<bool> {
        let argument = |n: usize| before.gpr[regs::CALL_ARGUMENTS[n]];
        if let Some(format) = declaration.format
            && !is_harmless(cursor, argument(format))?
        {
            return Ok(false);
        }
        for w in &declaration.writes {
            let at = match w.at {
                At::Parameter(n) => argument(n),
                At::Result => after.gpr[regs::RAX],
                At::Behind(n) if argument(n) == 0 => 0,
                At::Behind(n) => match word(cursor, argument(n))? {
                    Some(at) => at,
                    None => return Ok(false),
                },
            };
            if at == 0 {
                continue;
            }
            let mut len = match w.size {
                Size::Bytes(n) => n,
                Size::Parameter(n) => argument(n),
                Size::Product(n, m) => argument(n).saturating_mul(argument(m)),
                Size::Times(n, each) => argument(n).saturating_mul(each),
                Size::Open => u64::MAX,
            };
            if w.at == At::Result {
                len = len.saturating_add(SLACK);
            }
            let mut end = at.saturating_add(len);
            if w.size == Size::Open {
                let list = cursor
                    .timeline()
                    .mappings(cursor.image(), cursor.position()?)?;
                // A string may go on into the next mapping.
                for m in list.iter().filter(|m| m.end > at) {
                    if end != u64::MAX && m.start > end {
                        break;
                    }
                    end = m.end;
                }
            }
            effect.writes.push(at..end);
        }
        Ok(true)
    }
}

fn moved(range: &Range<u64>, bias: u64) -> Range<u64> {
    let from = range.start.wrapping_add(bias);
    from..from.saturating_add(range.end.saturating_sub(range.start))
}

/// The slot of a table through which this code calls or jumps.
fn slot_of(code: &[u8], rip: u64) -> Option<u64> {
    let mut i = Instruction::default();
    let mut decoder = Decoder::with_ip(64, code, rip, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return None;
    }
    decoder.decode_out(&mut i);
    let indirect = matches!(
        i.flow_control(),
        FlowControl::IndirectCall | FlowControl::IndirectBranch
    );
    let by_slot = indirect && i.op0_kind() == OpKind::Memory && i.memory_base() == Register::RIP;
    by_slot.then(|| i.memory_displacement64())
}

/// Whether a format is known and has no conversion that writes to memory.
fn is_harmless(cursor: &mut Cursor, at: u64) -> Result<bool> {
    let known = cursor.known_memory(at, FORMAT)?.prefix();
    let text = known.iter().position(|b| *b == 0).map(|n| &known[..n]);
    Ok(text.is_some_and(|t| !has_n(t)))
}

/// Whether a format has `%n`, in any form.
fn has_n(format: &[u8]) -> bool {
    let mut rest = format.iter();
    while rest.any(|b| *b == b'%') {
        // Flags, width, precision and size stand before the conversion.
        let conversion = rest.find(|b| !b"-+ #'0123456789.*$IhlLqjzt".contains(b));
        if conversion == Some(&b'n') {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_write() {
        assert!(
            [&b"%n"[..], b"%hhn", b"%1$n", b"a%d%*.3lln"]
                .iter()
                .all(|f| has_n(f))
        );
        assert!(
            [&b""[..], b"n", b"%d n %s\n", b"%%n", b"%"]
                .iter()
                .all(|f| !has_n(f))
        );
    }

    #[test]
    fn slots() {
        // jmp *0x10(%rip), call *0x10(%rip), jmp *%rax, call *0x10(%rax)
        let at = |code: &[u8]| slot_of(code, 0x1000);
        assert_eq!(at(b"\xff\x25\x10\0\0\0"), Some(0x1016));
        assert_eq!(at(b"\xff\x15\x10\0\0\0"), Some(0x1016));
        // With a prefix, as linkers write it for control-flow protection.
        assert_eq!(at(b"\xf2\xff\x25\x10\0\0\0"), Some(0x1017));
        assert_eq!(at(b"\xff\xe0"), None);
        assert_eq!(at(b"\xff\x50\x10"), None);
        assert_eq!(at(b""), None);
    }
}
