//! One executable file: its functions and source lines.

use crate::debugfile::DebugPaths;
use crate::dwarf::{self, Context, Reader};
use crate::globals::Globals;
use crate::tailcalls::Tails;
use crate::unwind::Tables;
use crate::{Error, demangle, names};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// A function of a module, from its symbol table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name as in the file.
    pub name: String,
    /// File address.
    pub addr: u64,
    /// Its size in bytes. 0 if the file does not say.
    pub size: u64,
}

impl Function {
    /// Its name in readable form; see [`demangle`].
    pub fn demangled(&self) -> String {
        demangle(&self.name)
    }
}

/// A place in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// Path of the source file, as the debug information has it.
    pub file: String,
    /// From 1. 0 if unknown.
    pub line: u32,
    /// From 1. 0 if unknown.
    pub column: u32,
}

/// What a file's line table says.
#[derive(Clone, Default, Debug)]
pub struct Lines {
    /// Paths of sources.
    pub files: Vec<String>,
    /// By address.
    pub ranges: Vec<LineRange>,
}

/// Code that was made of a source line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineRange {
    /// File address.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its source: an index in [`Lines::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
}

/// A line table may have this many ranges.
const MOST_RANGES: usize = 1 << 24;

/// A function that executes at an address. Inlined functions come first, the innermost one before the others. The last
/// one exists as code of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InlineFrame {
    /// Its demangled name, if known.
    pub function: Option<String>,
    /// Where it is in the source. For all but the innermost function this is the place of the inlined call.
    pub source: Option<SourceLine>,
    /// It is inlined in the next function of the list.
    pub inlined: bool,
}

/// A part of the file, and where it is loaded.
#[derive(Clone, Copy, Debug)]
struct LoadSegment {
    offset: u64,
    len: u64,
    addr: u64,
    /// Bytes in memory. Those that the file does not have are zero at first.
    memory_len: u64,
}

/// Debug information: a context that one thread at a time may ask, and the raw form.
type Loaded = (Mutex<Context>, Arc<gimli::Dwarf<Reader>>);

/// One executable file.
pub struct Module {
    path: String,
    data: Vec<u8>,
    paths: DebugPaths,
    segments: Vec<LoadSegment>,
    /// Sorted by address.
    functions: Vec<Function>,
    entry: u64,
    /// Read when somebody needs it first: it may be large.
    dwarf: OnceLock<Option<Loaded>>,
    globals: OnceLock<Globals>,
    /// Tail calls that were found.
    pub(crate) tails: Mutex<Tails>,
    tables: OnceLock<Option<Tables>>,
}

impl Module {
    /// Reads the symbols of an ELF file with this content. `path` is where the program had it. A symbol table that
    /// cannot be read counts as empty.
    ///
    /// # Errors
    /// If the content is no ELF file.
    pub fn parse(path: &str, data: Vec<u8>, paths: &DebugPaths) -> Result<Module, Error> {
        let file = object::File::parse(&*data)?;
        let segments = file
            .segments()
            .map(|s| {
                let (offset, len) = s.file_range();
                LoadSegment {
                    offset,
                    len,
                    addr: s.address(),
                    memory_len: s.size(),
                }
            })
            .collect();
        let mut functions = functions(&file);
        // A stripped file's own functions are in its separate debug file.
        if file.symbols().next().is_none()
            && let Some(debug) = paths.find(path, &file)
            && let Ok(debug) = object::File::parse(&*debug)
        {
            functions.extend(self::functions(&debug));
        }
        functions.sort_by(|a, b| {
            // A function may have several names. The global one is the best, then the shortest.
            (a.addr, std::cmp::Reverse(a.size), a.name.len(), &a.name).cmp(&(
                b.addr,
                std::cmp::Reverse(b.size),
                b.name.len(),
                &b.name,
            ))
        });
        functions.dedup_by(|a, b| a.addr == b.addr && a.name == b.name);
        let entry = file.entry();
        Ok(Module {
            path: path.into(),
            paths: paths.clone(),
            segments,
            functions,
            entry,
            dwarf: OnceLock::new(),
            globals: OnceLock::new(),
            tails: Mutex::default(),
            tables: OnceLock::new(),
            data,
        })
    }

    /// The path at which the program had the file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The file's content.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// File address of the program's first instruction.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// All functions of the symbol table, sorted by address.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The file address of the byte at `offset` of the file. `None`: no segment loads it.
    pub fn address_of_offset(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|s| {
            let d = offset.wrapping_sub(s.offset);
            (d < s.len).then(|| s.addr.wrapping_add(d))
        })
    }

    /// One past the last file address that any segment takes up in memory, with what the file does not have (`.bss`). 0: none.
    pub fn memory_end(&self) -> u64 {
        (self.segments.iter())
            .map(|s| s.addr.saturating_add(s.memory_len))
            .max()
            .unwrap_or(0)
    }

    /// The file's bytes at a file address. `None`: no single segment loads all of them.
    pub fn bytes(&self, addr: u64, len: usize) -> Option<&[u8]> {
        self.segments.iter().find_map(|s| {
            let d = addr.wrapping_sub(s.addr);
            if d >= s.len || len as u64 > s.len - d {
                return None;
            }
            let from = usize::try_from(s.offset.checked_add(d)?).ok()?;
            self.data.get(from..from.checked_add(len)?)
        })
    }

    /// The bias of the lowest mapping of this file. It begins at guest address `start` with `offset` of the file. A
    /// mapping begins at the start of a page; a segment need not. `None`: no segment fits.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        self.biases(start, 1, offset).first().copied()
    }

    /// The biases that a mapping of `len` bytes may have, the likeliest first. There may be several: some linkers
    /// (`lld`) end one segment and begin the next in the same page of the file. That page is then mapped for both.
    pub(crate) fn biases(&self, start: u64, len: u64, offset: u64) -> Vec<u64> {
        const PAGE: u64 = 4096;
        let mut out = Vec::new();
        for s in &self.segments {
            let before = s.offset % PAGE;
            let (from, to) = (s.offset - before, s.offset.saturating_add(s.len));
            if offset < from || to <= offset {
                continue;
            }
            let at = s.addr.wrapping_sub(before).wrapping_add(offset - from);
            let fits =
                offset.saturating_add(len) <= to.checked_next_multiple_of(PAGE).unwrap_or(to);
            out.push(((!fits, offset != from), start.wrapping_sub(at)));
        }
        out.sort_by_key(|(unlikely, _)| *unlikely);
        out.into_iter().map(|(_, bias)| bias).collect()
    }

    /// The function at a file address, and the distance from its start in bytes. A function without a size reaches to the
    /// next one, but not out of its segment: otherwise data would belong to the last function before it.
    pub fn function(&self, addr: u64) -> Option<(&Function, u64)> {
        let segment = |of: u64| {
            let is = |s: &LoadSegment| of.wrapping_sub(s.addr) < s.len;
            self.segments.iter().position(is)
        };
        let after = self.functions.partition_point(|f| f.addr <= addr);
        // Functions may nest or overlap. The right one need not be the last before the address.
        let near = self.functions[..after].iter().rev().take(16);
        let first = self.functions[..after].last()?.addr;
        let inside = near
            .clone()
            .filter(|f| match f.size {
                0 => f.addr == first && segment(addr).is_some_and(|s| segment(first) == Some(s)),
                size => addr - f.addr < size,
            })
            .max_by_key(|f| (f.addr, f.size, std::cmp::Reverse(f.name.len())))?;
        Some((inside, addr - inside.addr))
    }

    /// The functions with this name. It is compared with the name in the file, and with the demangled name. Parameters,
    /// template arguments, ABI tags, namespaces and classes may be left out: `run` also finds `a::run` and `b::run`.
    pub fn find(&self, name: &str) -> Vec<&Function> {
        let is = |f: &&Function| {
            // `memcpy@@GLIBC_2.14`
            let own = f.name == name || f.name.split('@').next() == Some(name);
            own || f.name.starts_with('_') && names::is_called(&f.demangled(), name)
        };
        self.functions.iter().filter(is).collect()
    }

    /// The short names of the file's functions: their names in the file, and the last parts of demangled names.
    pub fn short_names(&self) -> impl Iterator<Item = String> {
        self.functions.iter().map(|f| {
            let own = f.name.split('@').next().unwrap_or_default();
            match own.starts_with('_') {
                true => names::short(&f.demangled()),
                false => own.to_owned(),
            }
        })
    }

    fn debug(&self) -> Option<&Loaded> {
        let load = || {
            let loaded = dwarf::load(&self.path, &self.data, &self.paths);
            let (context, raw) = loaded.ok().flatten()?;
            Some((Mutex::new(context), raw))
        };
        self.dwarf.get_or_init(load).as_ref()
    }

    pub(crate) fn dwarf(&self) -> Option<MutexGuard<'_, Context>> {
        // A panic in the library leaves nothing half done that matters.
        (self.debug()).map(|m| m.0.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// The raw debug information.
    pub(crate) fn raw(&self) -> Option<&gimli::Dwarf<Reader>> {
        self.debug().map(|d| &*d.1)
    }

    /// Variables by name.
    pub(crate) fn globals(&self) -> &Globals {
        self.globals.get_or_init(|| self.find_globals())
    }

    /// Searches the file's symbols, then those of its separate debug file.
    pub(crate) fn symbol_files<T>(&self, find: impl Fn(&object::File) -> Option<T>) -> Option<T> {
        let file = object::File::parse(&*self.data).ok()?;
        find(&file).or_else(|| {
            let debug = self.paths.find(&self.path, &file)?;
            find(&object::File::parse(&*debug).ok()?)
        })
    }

    /// The unwind tables.
    pub(crate) fn tables(&self) -> Option<&Tables> {
        let read = || Tables::read(&self.data);
        self.tables.get_or_init(read).as_ref()
    }

    /// Whether there is debug information, also in a separate file.
    pub fn has_lines(&self) -> bool {
        self.dwarf().is_some()
    }

    /// The functions that execute at a file address, innermost first. Without debug information it is the one of the
    /// symbol table.
    pub fn frames(&self, addr: u64) -> Vec<InlineFrame> {
        let mut out = self.dwarf().map_or(Vec::new(), |d| frames(&d, addr));
        let symbol = || self.function(addr).map(|(f, _)| f.demangled());
        match out.last_mut() {
            Some(last) if last.function.is_none() => last.function = symbol(),
            Some(_) => {}
            None => out.extend(symbol().map(|name| InlineFrame {
                function: Some(name),
                source: None,
                inlined: false,
            })),
        }
        out
    }

    /// The source line of a file address.
    pub fn line(&self, addr: u64) -> Option<SourceLine> {
        let dwarf = self.dwarf()?;
        source(dwarf.find_location(addr).ok()??)
    }

    /// All that the line table says. It is empty where there is no debug information. `None`: it has more than 16 million ranges.
    pub fn lines(&self) -> Option<Lines> {
        let mut all = Lines::default();
        let Some(dwarf) = self.dwarf() else {
            return Some(all);
        };
        let Ok(ranges) = dwarf.find_location_range(0, u64::MAX) else {
            return Some(all);
        };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        for (addr, len, location) in ranges {
            let (Some(file), Some(line @ 1..)) = (location.file, location.line) else {
                continue;
            };
            let file = match numbers.get(file) {
                Some(n) => *n,
                None => {
                    let n = all.files.len() as u32;
                    numbers.insert(file.into(), n);
                    all.files.push(file.into());
                    n
                }
            };
            if all.ranges.len() >= MOST_RANGES {
                return None;
            }
            all.ranges.push(LineRange {
                addr,
                len,
                file,
                line,
            });
        }
        Some(all)
    }

    /// The file addresses at which code for a line begins. If the line has no code, the next one that has some counts.
    /// `file` is a whole path or the end of one; `line` counts from 1.
    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<u64> {
        let Some(dwarf) = self.dwarf() else {
            return Vec::new();
        };
        let Ok(ranges) = dwarf.find_location_range(0, u64::MAX) else {
            return Vec::new();
        };
        let wanted = Path::new(file);
        let mut best = u32::MAX;
        let mut found = Vec::new();
        for (addr, _, location) in ranges {
            let (Some(f), Some(l)) = (location.file, location.line) else {
                continue;
            };
            if l < line || l > best || !Path::new(f).ends_with(wanted) {
                continue;
            }
            if l < best {
                best = l;
                found.clear();
            }
            found.push(addr);
        }
        found.sort_unstable();
        // One address for each stretch of code: the rows of a line follow each other.
        let mut last = None;
        found.retain(|a| {
            let frame = dwarf.find_frames(*a).skip_all_loads().ok();
            let function = frame
                .and_then(|mut f| f.next().ok().flatten())
                .and_then(|f| f.dw_die_offset.map(|o| o.0));
            let new = function.is_none() || last != function;
            last = function;
            new
        });
        found
    }
}

fn functions(file: &object::File) -> Vec<Function> {
    let all = file.symbols().chain(file.dynamic_symbols());
    all.filter(|s| s.kind() == SymbolKind::Text && s.address() != 0)
        .filter_map(|s| {
            let name = s.name().ok()?;
            (!name.is_empty()).then(|| Function {
                name: name.into(),
                addr: s.address(),
                size: s.size(),
            })
        })
        .collect()
}

fn source(l: addr2line::Location) -> Option<SourceLine> {
    Some(SourceLine {
        file: l.file?.into(),
        line: l.line.unwrap_or(0),
        column: l.column.unwrap_or(0),
    })
}

fn frames(dwarf: &Context, addr: u64) -> Vec<InlineFrame> {
    let mut out = Vec::new();
    let Ok(mut iter) = dwarf.find_frames(addr).skip_all_loads() else {
        return out;
    };
    let unit = dwarf.find_dwarf_and_unit(addr).skip_all_loads();
    while let Ok(Some(f)) = iter.next() {
        let name = f.function.as_ref().and_then(|n| n.raw_name().ok());
        // A function that no other file can call has a plain name, but no linkage name.
        let full = match (&name, unit, f.dw_die_offset) {
            (Some(n), Some(unit), Some(at)) if demangle(n) == **n => names::qualified(unit, at),
            _ => None,
        };
        out.push(InlineFrame {
            function: full.or(name.map(|n| demangle(&n))),
            source: f.location.and_then(source),
            inlined: true,
        });
    }
    if let Some(last) = out.last_mut() {
        last.inlined = false;
    }
    // A compilation unit without functions at the address gives a frame without a name.
    out.retain(|f| f.function.is_some() || f.source.is_some());
    out
}
