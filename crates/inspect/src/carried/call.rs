//! Which function a thread called in a gap, and what that may have done to memory.

use super::declared::{At, Declaration, Declarations, Size};
use super::imports::Imports;
use crate::{Inspector, LONGEST, Result, word};
use hindsight_symbols::{Module, Space};
use hindsight_timeline::{CpuState, Cursor, Mapping, ThreadId, Unrecorded, regs};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A format is read up to this many bytes.
const FORMAT: usize = 4096;
/// The C library and what belongs to it. Nothing else of the program is in them.
const SYSTEM: [&str; 5] = ["libc.so", "ld-", "libpthread.so", "libm.so", "libdl.so"];

/// What a gap did to memory.
pub struct Effect {
    /// What was called, and the declaration that was used.
    pub declared: Option<(String, String)>,
    /// What may have been written.
    writes: Vec<Range<u64>>,
    /// Memory without a name may have changed.
    heap: bool,
    /// The file whose variables only its own code changes, and where they end. `None`: nobody wrote anything.
    file: Option<(String, u64)>,
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

    /// The memory of `from..to` that holds behind the gap what it held before, ascending. `list` is what was mapped.
    pub fn kept(&self, (from, to): (u64, u64), list: &[Mapping]) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        let mut belongs = "";
        let mut end = 0;
        for m in list {
            // What a file's last mapping does not have follows it, without a name.
            if !m.path.is_empty() {
                belongs = &m.path;
            } else if m.start != end {
                belongs = "";
            }
            end = m.end;
            // Behind the file's variables, memory of others may follow in the same mapping.
            let own_end = match &self.file {
                Some((file, end)) if m.path.is_empty() && belongs == file => {
                    (*end).clamp(m.start, m.end)
                }
                _ => m.end,
            };
            for (part, belongs) in [(m.start..own_end, belongs), (own_end..m.end, "")] {
                let (mut low, high) = (part.start.max(from), part.end.min(to));
                if low >= high || m.is_shared() || !self.may_keep(m, belongs) {
                    continue;
                }
                if m.start <= self.stack && self.stack < m.end {
                    low = low.max(self.stack);
                }
                if low < high {
                    out.push(low..high);
                }
            }
        }
        for w in &self.writes {
            out = (out.into_iter())
                .flat_map(|k| [k.start..k.end.min(w.start), k.start.max(w.end)..k.end])
                .filter(|k| k.start < k.end)
                .collect();
        }
        out
    }

    /// Whether a mapping may keep what it has. `belongs` is the name of the file, or of the memory, to which it belongs.
    fn may_keep(&self, m: &Mapping, belongs: &str) -> bool {
        // The C library's variables of the thread are beside what its FS base points to.
        let thread = m.start <= self.fs_base && self.fs_base <= m.end;
        match &self.file {
            _ if thread => false,
            None => true,
            Some((file, _)) if belongs == file => true,
            Some(_) if belongs == "[stack]" => true,
            Some(_) => !self.heap && (belongs.is_empty() || belongs == "[heap]"),
        }
    }
}

/// What is known of the tables of files: by the addresses of the modules, which are held.
pub type Known = HashMap<usize, (Arc<Module>, Option<Arc<Imports>>)>;

/// Finds out about calls.
pub struct Calls<'a> {
    pub inspector: &'a mut Inspector,
    pub declarations: &'a Declarations,
    files: &'a mut Known,
    /// Only whole files are left out of the recording.
    files_only: bool,
}

impl<'a> Calls<'a> {
    pub fn new(
        inspector: &'a mut Inspector,
        declarations: &'a Declarations,
        files: &'a mut Known,
        files_only: bool,
    ) -> Calls<'a> {
        Calls {
            inspector,
            declarations,
            files,
            files_only,
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
        // The instruction that went there is recorded.
        let before = self.inspector.timeline.gap_before(thread, gap.from)?;
        if gap.to == u64::MAX || gap.from == 0 || before.is_some_and(|b| b.to >= gap.from) {
            return Ok(None);
        }
        cursor.seek_count(thread, gap.to)?;
        let after = cursor.registers()?;
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
        let Some(imports) = self.imports_of(&from.module) else {
            return Ok(None);
        };
        let Some(went) = Went::by(&code, jump.rip) else {
            return Ok(None);
        };
        let slot = went.slot.map(|at| at.wrapping_sub(from.bias));
        let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let called = file(to.module.path());
        let rsp = before.gpr[regs::RSP];
        let mut top = rsp;
        let mut filled = None;
        let (name, declaration) = match slot.and_then(|s| imports.at(s)) {
            Some(name) if is_called(&to.module, before.rip.wrapping_sub(to.bias), name) => {
                (name.to_owned(), self.declarations.of(&called, name))
            }
            Some(_) => return Ok(None),
            // The first call: the loader finds the function, and fills the slot. Its number stands above what names the file.
            None if called.starts_with("ld-") && slot.is_some() => {
                let number = word(cursor, rsp.wrapping_add(8))?;
                let Some((slot, name)) = number.and_then(|n| imports.lazy(n)) else {
                    return Ok(None);
                };
                filled = Some(slot.wrapping_add(from.bias));
                top = rsp.wrapping_add(16);
                (name.to_owned(), self.of_all(&space, name))
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
        if !returned || !self.is_alone(&space, &from.module, declaration.stdio) {
            return Ok(None);
        }
        let mut effect = Effect {
            declared: Some((name, declaration.text.clone())),
            writes: imports.copies.iter().map(|c| moved(c, from.bias)).collect(),
            heap: declaration.heap || declaration.stdio,
            file: Some((caller, from.bias.wrapping_add(from.module.memory_end()))),
            stack,
            fs_base: before.fs_base,
        };
        effect
            .writes
            .extend(filled.map(|at| at..at.saturating_add(8)));
        let known = self.written(cursor, &declaration, &before, &mut effect)?;
        Ok(known.then_some(effect))
    }

    fn imports_of(&mut self, module: &Arc<Module>) -> Option<Arc<Imports>> {
        let key = Arc::as_ptr(module) as usize;
        let its = self.files.entry(key);
        let its = its.or_insert_with(|| (Arc::clone(module), Imports::of(module).map(Arc::new)));
        its.1.clone()
    }

    /// Whether nothing but the function can have run in the gap, or been told to write elsewhere: no handler of a signal that is
    /// not recorded, and no stream with a buffer of the program.
    fn is_alone(&mut self, space: &Space, caller: &Arc<Module>, stdio: bool) -> bool {
        let modules: Vec<Arc<Module>> = (space.mappings().iter())
            .map(|m| Arc::clone(&m.module))
            .collect();
        modules.iter().all(|m| {
            let file = m.path().rsplit('/').next().unwrap_or_default();
            if SYSTEM.iter().any(|l| file.starts_with(l)) {
                return true;
            }
            let recorded = Arc::ptr_eq(m, caller) && self.files_only;
            self.imports_of(m).is_some_and(|its| {
                (recorded || !its.handles_signals()) && !(stdio && its.gives_buffers())
            })
        })
    }

    /// The declaration of a function that the loader looks up. All files that have one of this name must have the same: it is
    /// not known which one the loader found.
    fn of_all(&self, space: &Space, name: &str) -> Option<&'a Declaration> {
        let mut found = None;
        for at in space.find(name) {
            let m = space.mapping(at)?;
            let file = m.module.path().rsplit('/').next().unwrap_or_default();
            if file.starts_with("ld-") {
                // The loader has functions of its own, which others do not get.
                continue;
            }
            let its = self.declarations.of(file, name)?;
            if found.is_some_and(|f| f != its) {
                return None;
            }
            found = Some(its);
        }
        found
    }

    /// Adds what the function wrote. The cursor stands where it was called. `false`: that is not known.
    fn written(
        &self,
        cursor: &mut Cursor,
        declaration: &Declaration,
        before: &CpuState,
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
                At::Behind(n) if argument(n) == 0 => 0,
                At::Behind(n) => match word(cursor, argument(n))? {
                    Some(at) => at,
                    None => return Ok(false),
                },
            };
            if at == 0 {
                continue;
            }
            let len = match w.size {
                Size::Bytes(n) => n,
                Size::Parameter(n) => argument(n),
                Size::Product(n, m) => argument(n).saturating_mul(argument(m)),
                Size::Times(n, each) => argument(n).saturating_mul(each),
                Size::Open => u64::MAX,
            };
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

/// How an instruction goes elsewhere.
struct Went {
    /// The slot of a table through which it goes.
    slot: Option<u64>,
}

impl Went {
    /// `None`: the code calls nothing, and does not jump.
    fn by(code: &[u8], rip: u64) -> Option<Went> {
        let mut i = Instruction::default();
        let mut decoder = Decoder::with_ip(64, code, rip, DecoderOptions::NONE);
        if !decoder.can_decode() {
            return None;
        }
        decoder.decode_out(&mut i);
        let indirect = match i.flow_control() {
            FlowControl::IndirectCall | FlowControl::IndirectBranch => true,
            FlowControl::Call | FlowControl::UnconditionalBranch => false,
            _ => return None,
        };
        let by_slot =
            indirect && i.op0_kind() == OpKind::Memory && i.memory_base() == Register::RIP;
        Some(Went {
            slot: by_slot.then(|| i.memory_displacement64()),
        })
    }
}

/// Whether the function at an address may have a name. What the loader chose for this processor has another one, which begins
/// with two underscores, or none at all.
fn is_called(module: &Module, address: u64, name: &str) -> bool {
    let all = module.functions();
    let first = all.partition_point(|f| f.addr < address);
    let mut here = all[first..]
        .iter()
        .take_while(|f| f.addr == address)
        .peekable();
    here.peek().is_none()
        || here.any(|f| f.name.starts_with("__") || f.name.split('@').next() == Some(name))
}

/// Whether a format is known and has no conversion that writes to memory.
fn is_harmless(cursor: &mut Cursor, at: u64) -> Result<bool> {
    let known = cursor.known_memory(at, FORMAT)?.prefix();
    let text = known.iter().position(|b| *b == 0).map(|n| &known[..n]);
    Ok(text.is_some_and(|t| !has_n(t)))
}

/// Whether a format has a conversion that writes, or one that is not known.
fn has_n(format: &[u8]) -> bool {
    let mut rest = format.iter();
    while rest.any(|b| *b == b'%') {
        // Flags, width, precision and size stand before the conversion.
        let conversion = rest.find(|b| !b"-+ #'0123456789.*$hlLqjzt".contains(b));
        if conversion.is_some_and(|c| !b"diouxXeEfFgGaAcsCSpm%".contains(c)) {
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
            [
                &b"%n"[..],
                b"%hhn",
                b"%1$n",
                b"a%d%*.3lln",
                b"%w32n",
                b"%Zn"
            ]
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
    fn only_a_files_own_variables_belong_to_it() {
        const ANONYMOUS: u32 = 0x22;
        let mapping = |start, end, path: &str| Mapping {
            start,
            end,
            prot: 3,
            flags: if path.is_empty() { ANONYMOUS } else { 2 },
            offset: 0,
            path: path.into(),
        };
        // The kernel made one mapping of the variables and of what was mapped behind them.
        let list = [
            mapping(0x1000, 0x2000, "/lib/a"),
            mapping(0x2000, 0x9000, ""),
            mapping(0x9000, 0xa000, ""),
        ];
        let effect = |heap| Effect {
            declared: None,
            writes: Vec::new(),
            heap,
            file: Some(("/lib/a".into(), 0x4800)),
            stack: 0xf000,
            fs_base: 0xe000,
        };
        let all = (0, u64::MAX);
        let parts = |e: &Effect, all| e.kept(all, &list);
        assert_eq!(parts(&effect(true), all), [0x1000..0x2000, 0x2000..0x4800]);
        let across = parts(&effect(true), (0x4000, 0x6000));
        assert_eq!((across.len(), &across[0]), (1, &(0x4000..0x4800)));
        assert_eq!(parts(&effect(true), (0x5000, 0x6000)), []);
        let kept = parts(&effect(false), all);
        assert_eq!((kept[0].start, kept.last().unwrap().end), (0x1000, 0xa000));
    }

    #[test]
    fn slots() {
        // jmp *0x10(%rip), call *0x10(%rip), jmp *%rax, call *0x10(%rax)
        let at = |code: &[u8]| Went::by(code, 0x1000).and_then(|w| w.slot);
        assert_eq!(at(b"\xff\x25\x10\0\0\0"), Some(0x1016));
        assert_eq!(at(b"\xff\x15\x10\0\0\0"), Some(0x1016));
        // With a prefix, as linkers write it for control-flow protection.
        assert_eq!(at(b"\xf2\xff\x25\x10\0\0\0"), Some(0x1017));
        assert_eq!(at(b"\xff\xe0"), None);
        assert_eq!(at(b"\xff\x50\x10"), None);
        assert_eq!(at(b""), None);
        // call, jmp; then ret, nop and je, which call nothing.
        let went = |code: &[u8]| Went::by(code, 0x1000).is_some();
        assert!(went(b"\xe8\0\0\0\0") && went(b"\xeb\0"));
        assert!(!went(b"\xc3") && !went(b"\x90") && !went(b"\x74\0"));
    }
}
