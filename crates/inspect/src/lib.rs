//! A place in a recording, in terms of the program's source: functions, lines, call stacks, variables, disassembly.
//!
//! It puts together what [`hindsight_timeline`] knows of bytes and what [`hindsight_symbols`] knows of files. All front
//! ends show places through it.
//!
//! ```
//! # let (_scene, trace) = hindsight_lab::example();
//! use hindsight_inspect::Inspector;
//! use hindsight_timeline::{Options, Timeline};
//!
//! let timeline = Timeline::open(&trace, Options::default())?;
//! let mut cursor = timeline.cursor()?;
//! cursor.seek(timeline.range()?.1)?;
//! let mut inspector = Inspector::new(timeline);
//! # assert!(!inspector.backtrace(&mut cursor)?.is_empty());
//! for frame in inspector.backtrace(&mut cursor)? {
//!     println!("{:#x} {:?}", frame.pc, frame.frames);
//! }
//! # Ok::<(), hindsight_inspect::Error>(())
//! ```

#![deny(missing_docs)]

use hindsight_symbols::{
    CallFrame, CodeLocation, DebugPaths, InlineFrame, Module, SourceLine, Space, Symbol, Variable,
};
use hindsight_timeline::{Cursor, ModuleHash, Position, Timeline};
use iced_x86::{
    Decoder, DecoderOptions, Formatter, FormatterOutput, FormatterTextKind, Instruction,
    IntelFormatter, SymbolResolver, SymbolResult,
};
use std::collections::HashMap;
use std::sync::Arc;

mod arguments;
mod assets;
mod auxiliary;
mod carried;
mod code;
mod coredump;
mod expression;
mod grep;
mod heap;
mod lines;
mod mappings;
mod show;
mod siginfo;
pub mod state;
mod variables;
mod waits;

pub use arguments::Callee;
pub use assets::{Asset, Assets, Content, Uses, assets};
pub use auxiliary::{InitialStack, auxiliary_vector, dynamic, initial_stack};
use carried::View;
pub use carried::{
    Assumption, Carried, Carrier, Declarations, Fault, NEAR_GAPS, NoAssumption, PassedGap, Rule,
    declared,
};
pub use coredump::{CoreDump, core_dump};
pub use expression::{Evaluated, Named};
pub use grep::{Match, grep};
pub use heap::{Allocation, Handed, allocations};
pub use hindsight_symbols as symbols;
pub use mappings::mappings;
pub use siginfo::{SIGNAL_INFO_LEN, SignalInfo};
pub use state::{ProcessState, process_state};
pub use waits::{For, Lock, Wait, waits};

/// The most frames of a call stack.
pub const MAX_FRAMES: usize = 1000;
/// The longest x86 instruction, in bytes.
const LONGEST: usize = 15;

/// Why a place cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The recording does not answer.
    #[error(transparent)]
    Timeline(#[from] hindsight_timeline::Error),
    /// A file has no symbols to offer.
    #[error(transparent)]
    Symbols(#[from] hindsight_symbols::Error),
    /// A file cannot be written.
    #[error("cannot write")]
    Write(#[from] std::io::Error),
    /// An expression cannot be understood, or means nothing there.
    #[error("{0}")]
    Expression(String),
}

/// The result of a question.
pub type Result<T> = std::result::Result<T, Error>;

/// An instruction as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The guest address.
    pub addr: u64,
    /// The bytes of the instruction.
    pub bytes: Vec<u8>,
    /// In Intel's notation. Targets are shown with their functions.
    pub text: String,
}

/// A variable with its value, if that is known.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// The variable, and where it is.
    pub variable: Variable,
    /// As many bytes as its size says; each may be unknown. Empty if it has no place.
    pub bytes: Vec<Option<u8>>,
    /// Its value, as debuggers show it.
    pub text: String,
    /// For a parameter: what was passed, in the same form, if the caller says that.
    pub passed: Option<String>,
    /// The value, completed with bytes that are carried over gaps. `None`: none of them say more, or nobody asked.
    pub carried: Option<Completed>,
    /// The same of what was passed.
    pub passed_carried: Option<Completed>,
}

/// A value of which some bytes are carried over gaps: they are not known from the recording.
#[derive(Clone, PartialEq, Debug)]
pub struct Completed {
    /// Its bytes, known and carried ones.
    pub bytes: Vec<Option<u8>>,
    /// Its value, as debuggers show it.
    pub text: String,
    /// What is carried, of its bytes and of those where it points, as far as they were looked at.
    pub from: Vec<Carried>,
}

impl Value {
    /// The value as an integer. `None`: it has more than 8 bytes, or some are not known.
    pub fn integer(&self) -> Option<u64> {
        integer(&self.bytes)
    }
}

/// Bytes as an integer, the lowest first. `None`: there are more than 8, or none, or some are not known.
pub fn integer(bytes: &[Option<u8>]) -> Option<u64> {
    if !(1..=8).contains(&bytes.len()) {
        return None;
    }
    let high = bytes.iter().rev();
    high.into_iter()
        .try_fold(0, |acc, b| Some(acc << 8 | (*b)? as u64))
}

/// An argument of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// The name of the parameter. Where parameters are not known, that of the register.
    pub name: String,
    /// The type of the parameter, as in the source. `None`: parameters are not known.
    pub type_name: Option<String>,
    /// Its value as a number, if it is one.
    pub value: Option<Passed>,
    /// Its value, as debuggers show it. `None`: it is not known where it is.
    pub text: Option<String>,
}

/// A value that is passed to a function or returned by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// An integer or a pointer. Bits beyond its size are zero.
    Integer(u64),
    /// The bits of a `double`.
    Double(u64),
    /// The bits of a `float`.
    Float(u32),
}

/// Shows places of one recording. Each file is read once.
pub struct Inspector {
    timeline: Timeline,
    paths: DebugPaths,
    modules: HashMap<ModuleHash, Option<Arc<Module>>>,
    /// The address space of the last question: its program image, and how often its mappings had changed.
    last: Option<(u32, usize, Arc<Space>)>,
}

impl Inspector {
    /// Looks for separate debug files in the usual places.
    pub fn new(timeline: Timeline) -> Inspector {
        Inspector::with_paths(timeline, DebugPaths::default())
    }

    /// Looks for separate debug files at these paths.
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
        let changes = self.timeline.mapping_changes(image, at)?;
        if let Some((i, n, s)) = &self.last
            && (*i, *n) == (image, changes)
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
        self.last = Some((image, changes, Arc::clone(&space)));
        Ok(space)
    }

    /// The addresses of a function, each with the function's name. `name` is as for [`Space::find`]: `name` or
    /// `module!name`. All files count that the program image had mapped at any time.
    pub fn functions(&mut self, image: u32, name: &str) -> Result<Vec<(u64, String)>> {
        let mut out: Vec<(u64, String)> = Vec::new();
        for space in self.files(image)? {
            let file = space.mappings().first();
            let named = |at: u64| {
                // It need not lie in the first mapping.
                let found = file.and_then(|m| m.module.function(at.wrapping_sub(m.bias)));
                (at, found.map_or(name.to_owned(), |f| f.0.demangled()))
            };
            out.extend(space.find(name).into_iter().map(named));
        }
        out.sort_unstable();
        out.dedup_by_key(|f| f.0);
        Ok(out)
    }

    /// Names of a program image's functions that are similar to a name that no function has.
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

    /// The files that a program image had mapped at any time, each where it was first.
    fn files(&mut self, image: u32) -> Result<Vec<Space>> {
        let mut all = Vec::new();
        for m in self.timeline.modules(image)? {
            if let (Some(hash), Some(first)) = (m.hash, m.parts.first())
                && let Some(module) = self.module(&m.path, hash)
            {
                let mut space = Space::new();
                space.map(&module, first.start, first.end - first.start, first.offset);
                all.push(space);
            }
        }
        Ok(all)
    }

    fn module(&mut self, path: &str, hash: ModuleHash) -> Option<Arc<Module>> {
        let (timeline, paths) = (&self.timeline, &self.paths);
        let read = || {
            let data = timeline.module_bytes(hash).ok()?;
            Module::parse(path, data, paths).ok().map(Arc::new)
        };
        self.modules.entry(hash).or_insert_with(read).clone()
    }

    /// The modules at the cursor's position.
    pub fn here(&mut self, cursor: &Cursor) -> Result<Arc<Space>> {
        self.space(cursor.image(), cursor.position()?)
    }

    /// What lies at an address, at the cursor's position.
    pub fn location(&mut self, cursor: &Cursor, addr: u64) -> Result<Option<CodeLocation>> {
        Ok(self.here(cursor)?.location(addr))
    }

    /// The functions at an address with their source lines, innermost first.
    pub fn frames(&mut self, cursor: &Cursor, addr: u64) -> Result<Vec<InlineFrame>> {
        Ok(self.here(cursor)?.frames(addr))
    }

    /// The functions and variables with a name, at the cursor's position. `name` is as for [`Space::symbols`].
    pub fn symbols(&mut self, cursor: &Cursor, name: &str) -> Result<Vec<Symbol>> {
        Ok(self.here(cursor)?.symbols(name))
    }

    /// Source line of an address.
    pub fn line(&mut self, cursor: &Cursor, addr: u64) -> Result<Option<SourceLine>> {
        let frames = self.frames(cursor, addr)?;
        Ok(frames.into_iter().next().and_then(|f| f.source))
    }

    /// The call stack at the cursor, as far as the stack's memory is known.
    pub fn backtrace(&mut self, cursor: &mut Cursor) -> Result<Vec<CallFrame>> {
        let space = self.here(cursor)?;
        let r = arguments::registers(cursor)?;
        View::at(cursor, |view| {
            space.backtrace(&r, &mut |at| view.word(at), MAX_FRAMES)
        })
    }

    /// At most `count` instructions from `addr` on. It ends where bytes are not known.
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

/// The low `size` bytes of a value.
fn narrow(value: u64, size: u64) -> u64 {
    value & (u64::MAX >> (64 - 8 * size))
}

/// The 8 bytes at an address, if they are known.
fn word(cursor: &mut Cursor, addr: u64) -> Result<Option<u64>> {
    let bytes = cursor.known_memory(addr, 8)?.whole();
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
        let place = self.0.location(address)?;
        let (name, distance) = place.function?;
        Some(SymbolResult::with_string(
            address.wrapping_sub(distance),
            name,
        ))
    }
}
