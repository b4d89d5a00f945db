//! A place in a recording in terms of the program's source: functions, lines, call stacks,
//! variables, disassembly. What [`hindsight_timeline`] knows of bytes and [`hindsight_symbols`] of
//! files, together; every front end shows places through it.

use hindsight_symbols::{
    CallFrame, Class, DebugPaths, Frame, Location, Module, Place, Registers, Signature, SourceLine,
    Space, Variable,
};
use hindsight_timeline::{Call, Cursor, ModuleHash, Position, Timeline};
use iced_x86::{
    Decoder, DecoderOptions, Formatter, FormatterOutput, FormatterTextKind, Instruction,
    IntelFormatter, SymbolResolver, SymbolResult,
};
use std::collections::HashMap;
use std::sync::Arc;

mod waits;

pub use hindsight_symbols as symbols;
pub use waits::{For, Lock, Wait, waits};

/// Longest call stack.
pub const MAX_FRAMES: usize = 1000;
/// Longest x86 instruction.
const LONGEST: usize = 15;

/// Why a place cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Timeline(#[from] hindsight_timeline::Error),
    #[error(transparent)]
    Symbols(#[from] hindsight_symbols::Error),
}

/// The result of what can fail for one of these reasons.
pub type Result<T> = std::result::Result<T, Error>;

/// An instruction as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub addr: u64,
    pub bytes: Vec<u8>,
    /// In Intel's notation, targets with their function.
    pub text: String,
}

/// A variable with its value, where that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    pub variable: Variable,
    /// Its bytes, as many as its size says, each known or not. Empty where it has no place.
    pub bytes: Vec<Option<u8>>,
}

impl Value {
    /// The value as an integer, if it has at most 8 bytes and all are known.
    pub fn integer(&self) -> Option<u64> {
        if !(1..=8).contains(&self.bytes.len()) {
            return None;
        }
        let bytes = self.bytes.iter().rev();
        bytes
            .into_iter()
            .try_fold(0, |acc, b| Some(acc << 8 | (*b)? as u64))
    }
}

/// An argument of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// Of the parameter; of the register where parameters are not known.
    pub name: String,
    pub type_name: Option<String>,
    /// `None`: it is passed in a way that is not looked into.
    pub value: Option<Passed>,
}

/// A value that is passed to a function or returned by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    Integer(u64),
    /// The bits of a `double`.
    Double(u64),
    /// The bits of a `float`.
    Float(u32),
}

/// Shows places of one recording. Files are read once.
pub struct Inspector {
    timeline: Timeline,
    paths: DebugPaths,
    modules: HashMap<ModuleHash, Option<Arc<Module>>>,
    /// The last address space that was asked for.
    last: Option<(u32, Position, Arc<Space>)>,
}

impl Inspector {
    /// Separate debug files are looked for in the usual places.
    pub fn new(timeline: Timeline) -> Inspector {
        Inspector::with_paths(timeline, DebugPaths::default())
    }

    /// Separate debug files are looked for there.
    pub fn with_paths(timeline: Timeline, paths: DebugPaths) -> Inspector {
        Inspector {
            timeline,
            paths,
            modules: HashMap::new(),
            last: None,
        }
    }

    /// The modules of a program image at a position.
    pub fn space(&mut self, image: u32, at: Position) -> Result<Arc<Space>> {
        if let Some((i, p, s)) = &self.last
            && (*i, *p) == (image, at)
        {
            return Ok(Arc::clone(s));
        }
        let hashes: HashMap<String, ModuleHash> = (self.timeline.modules(image)?.into_iter())
            .filter_map(|m| Some((m.path, m.hash?)))
            .collect();
        let mut space = Space::new();
        for m in self.timeline.mappings(image, at)? {
            if let Some(hash) = hashes.get(&m.path)
                && let Some(module) = self.module(&m.path, *hash)
            {
                space.map(&module, m.start, m.end - m.start, m.offset);
            }
        }
        let space = Arc::new(space);
        self.last = Some((image, at, Arc::clone(&space)));
        Ok(space)
    }

    /// Addresses of a function (`name` or `module!name`, as in [`Space::find`]) in all files that a
    /// program image had mapped at any time, and what is called so.
    pub fn functions(&mut self, image: u32, name: &str) -> Result<Vec<(u64, String)>> {
        let mut out: Vec<(u64, String)> = Vec::new();
        for m in self.timeline.modules(image)? {
            let (Some(hash), Some(first)) = (m.hash, m.parts.first().cloned()) else {
                continue;
            };
            if let Some(module) = self.module(&m.path, hash) {
                let mut space = Space::new();
                space.map(&module, first.start, first.end - first.start, first.offset);
                let bias = space.mappings().first().map_or(0, |p| p.bias);
                let named = |at: u64| {
                    let found = module.function(at.wrapping_sub(bias));
                    (at, found.map_or(name.to_owned(), |f| f.0.demangled()))
                };
                out.extend(space.find(name).into_iter().map(named));
            }
        }
        out.sort_unstable();
        out.dedup_by_key(|f| f.0);
        Ok(out)
    }

    /// Names of functions that a program image had and that are nearest to one that no function has.
    pub fn similar(&mut self, image: u32, name: &str) -> Result<Vec<String>> {
        let (of, wanted) = name.split_once('!').map_or(("", name), |(of, n)| (of, n));
        let mut found = Vec::new();
        for m in self.timeline.modules(image)? {
            let is_of =
                of.is_empty() || m.path.rsplit('/').next().is_some_and(|f| f.starts_with(of));
            if let Some(hash) = m.hash.filter(|_| is_of)
                && let Some(module) = self.module(&m.path, hash)
            {
                found.extend(hindsight_timeline::similar(wanted, module.short_names()));
            }
        }
        Ok(hindsight_timeline::similar(wanted, found))
    }

    /// What the function that begins where the cursor is takes and returns.
    pub fn signature(&mut self, cursor: &mut Cursor) -> Result<Option<Signature>> {
        let pc = cursor.registers()?.rip;
        let space = self.here(cursor)?;
        let Some(m) = space.mapping(pc) else {
            return Ok(None);
        };
        Ok(m.module.signature(pc.wrapping_sub(m.bias))?)
    }

    /// The arguments of a call, with the cursor at its beginning. Without debug information the
    /// registers in which integers are passed; whether they are used is not known then.
    pub fn arguments(
        &mut self,
        cursor: &mut Cursor,
        signature: Option<&Signature>,
    ) -> Result<Vec<Argument>> {
        const NAMES: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
        let integers = Call::arguments(&cursor.registers()?);
        let Some(signature) = signature else {
            let one = |(name, v): (&&str, u64)| Argument {
                name: name.to_string(),
                type_name: None,
                value: Some(Passed::Integer(v)),
            };
            return Ok(NAMES.iter().zip(integers).map(one).collect());
        };
        let vectors = cursor.vectors()?;
        let result = signature.result.as_ref();
        // A result in memory takes a register; what is in several pieces takes some.
        let mut clear = result.is_none_or(|r| r.class != Class::Other);
        let (mut general, mut vector) = (integers.into_iter(), vectors.zmm.iter().take(8));
        let mut out = Vec::new();
        for p in &signature.parameters {
            clear &= p.class != Class::Other;
            let size = p.size.unwrap_or(8).clamp(1, 8);
            let value = match p.class {
                _ if !clear => None,
                Class::Integer => (general.next()).map(|v| Passed::Integer(narrow(v, size))),
                Class::Float => vector.next().map(|v| {
                    let bits = u64::from_le_bytes(std::array::from_fn(|i| v[i]));
                    match size {
                        4 => Passed::Float(bits as u32),
                        _ => Passed::Double(bits),
                    }
                }),
                Class::Other => None,
            };
            out.push(Argument {
                name: p.name.clone(),
                type_name: Some(p.type_name.clone()),
                value,
            });
        }
        Ok(out)
    }

    /// What a call returned: rax, as much of it as the result has. `None`: the function returns nothing,
    /// or not in this way.
    pub fn returned(value: u64, signature: Option<&Signature>) -> Option<u64> {
        let Some(signature) = signature else {
            return Some(value);
        };
        let result = signature.result.as_ref()?;
        let size = result.size.unwrap_or(8).clamp(1, 8);
        (result.class == Class::Integer).then(|| narrow(value, size))
    }

    fn module(&mut self, path: &str, hash: ModuleHash) -> Option<Arc<Module>> {
        let (timeline, paths) = (&self.timeline, &self.paths);
        let read = || {
            let data = timeline.module_bytes(hash).ok()?;
            Module::parse(path, data, paths).ok().map(Arc::new)
        };
        self.modules.entry(hash).or_insert_with(read).clone()
    }

    /// The modules where the cursor is.
    pub fn here(&mut self, cursor: &Cursor) -> Result<Arc<Space>> {
        self.space(cursor.image(), cursor.position()?)
    }

    /// What lies at an address at the cursor's position.
    pub fn place(&mut self, cursor: &Cursor, addr: u64) -> Result<Option<Place>> {
        Ok(self.here(cursor)?.place(addr))
    }

    /// The functions at an address with their source lines, innermost first.
    pub fn frames(&mut self, cursor: &Cursor, addr: u64) -> Result<Vec<Frame>> {
        Ok(self.here(cursor)?.frames(addr))
    }

    /// Source line of an address.
    pub fn line(&mut self, cursor: &Cursor, addr: u64) -> Result<Option<SourceLine>> {
        let frames = self.frames(cursor, addr)?;
        Ok(frames.into_iter().next().and_then(|f| f.source))
    }

    /// The call stack at the cursor, as far as the stack's memory is known.
    pub fn backtrace(&mut self, cursor: &mut Cursor) -> Result<Vec<CallFrame>> {
        let space = self.here(cursor)?;
        let r = cursor.registers()?;
        let mut failed = None;
        let mut read = |addr: u64| {
            word(cursor, addr).unwrap_or_else(|e| {
                failed = Some(e);
                None
            })
        };
        let out = space.backtrace(r.rip, r.gpr[4], r.gpr[5], &mut read, MAX_FRAMES);
        match failed {
            Some(e) => Err(e),
            None => Ok(out),
        }
    }

    /// The parameters and variables in scope at the cursor, with their values.
    pub fn variables(&mut self, cursor: &mut Cursor) -> Result<Vec<Value>> {
        let space = self.here(cursor)?;
        let r = cursor.registers()?;
        let Some(m) = space.mapping(r.rip) else {
            return Ok(Vec::new());
        };
        let registers = Registers {
            gpr: r.gpr,
            rip: r.rip,
            fs_base: r.fs_base,
        };
        let mut read = |addr: u64| word(cursor, addr).unwrap_or(None);
        let found = m.module.variables(&registers, m.bias, &mut read)?;
        let mut out = Vec::new();
        for variable in found {
            let len = variable.size.unwrap_or(0).min(1 << 16) as usize;
            let known = |v: u64| {
                let bytes = v.to_le_bytes().map(Some);
                bytes[..len.min(8)].to_vec()
            };
            let bytes = match variable.location {
                Location::Memory(addr) => {
                    let m = cursor.peek(addr, len)?;
                    m.bytes.iter().map(|b| b.map(|k| k.value)).collect()
                }
                Location::Register(n) => known(r.gpr[n as usize & 15]),
                Location::Value(v) => known(v),
                _ => Vec::new(),
            };
            out.push(Value { variable, bytes });
        }
        Ok(out)
    }

    /// At most `count` instructions from `addr` on, as far as their bytes are known.
    pub fn disassemble(
        &mut self,
        cursor: &mut Cursor,
        addr: u64,
        count: usize,
    ) -> Result<Vec<Line>> {
        let space = self.here(cursor)?;
        let bytes = cursor.code(addr, count.saturating_mul(LONGEST))?;
        let mut decoder = Decoder::with_ip(64, &bytes, addr, DecoderOptions::NONE);
        let mut formatter =
            IntelFormatter::with_options(Some(Box::new(Names(Arc::clone(&space)))), None);
        let options = formatter.options_mut();
        options.set_space_after_operand_separator(true);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_rip_relative_addresses(false);
        options.set_branch_leading_zeros(false);
        let mut out = Vec::new();
        let mut at = 0;
        while out.len() < count && decoder.can_decode() {
            let i = decoder.decode();
            if i.is_invalid() {
                break;
            }
            let mut text = Text(String::new());
            formatter.format(&i, &mut text);
            out.push(Line {
                addr: i.ip(),
                bytes: bytes[at..at + i.len()].to_vec(),
                text: text.0,
            });
            at += i.len();
        }
        Ok(out)
    }
}

/// The low bytes of a value.
fn narrow(value: u64, size: u64) -> u64 {
    value & (u64::MAX >> (64 - 8 * size))
}

/// The 8 bytes at an address, if they are known.
fn word(cursor: &mut Cursor, addr: u64) -> Result<Option<u64>> {
    let bytes = cursor.peek(addr, 8)?.whole();
    Ok(bytes.and_then(|b| Some(u64::from_le_bytes(b.try_into().ok()?))))
}

struct Text(String);

impl FormatterOutput for Text {
    fn write(&mut self, text: &str, _: FormatterTextKind) {
        self.0.push_str(text);
    }
}

/// Names the targets of branches and of addresses.
struct Names(Arc<Space>);

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        _: &Instruction,
        _: u32,
        _: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        let place = self.0.place(address)?;
        let (name, distance) = place.function?;
        Some(SymbolResult::with_string(
            address.wrapping_sub(distance),
            name,
        ))
    }
}
