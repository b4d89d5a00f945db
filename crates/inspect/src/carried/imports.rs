//! What a file takes from others: which function stands in which slot of its table, and which variables it has a copy of.

use hindsight_symbols::Module;
use object::elf::{R_X86_64_COPY, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// A file with more bytes of names, or more copies of variables, is not looked at.
const MOST_NAMES: usize = 64 << 20;
const MOST_COPIES: usize = 4096;

/// What a file takes from others. Addresses are those in the file.
#[derive(Default)]
pub struct Imports {
    /// The names of functions, by the slots that get their addresses.
    slots: BTreeMap<u64, String>,
    /// The slots that are filled at the first call, in their order.
    lazy: Vec<u64>,
    /// Variables of libraries of which the file has the copy that counts.
    pub copies: Vec<Range<u64>>,
    names: HashSet<String>,
}

impl Imports {
    /// `None`: that cannot be read, or is more than files have.
    pub fn of(module: &Module) -> Option<Imports> {
        let mut all = Imports::default();
        let file = object::File::parse(module.data()).ok()?;
        // A file whose section headers were removed has neither.
        let table = file.dynamic_symbol_table()?;
        let relocations = file.dynamic_relocations()?;
        let mut bytes = 0;
        for (at, r) in relocations {
            let (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(symbol)) =
                (r.flags(), r.target())
            else {
                continue;
            };
            let Ok(symbol) = table.symbol_by_index(symbol) else {
                continue;
            };
            let Ok(name) = symbol.name() else { continue };
            bytes += name.len();
            if bytes > MOST_NAMES {
                return None;
            }
            if !all.names.contains(name) {
                all.names.insert(name.into());
            }
            match r_type {
                R_X86_64_COPY => all.copies.push(at..at.saturating_add(symbol.size())),
                R_X86_64_JUMP_SLOT => {
                    all.lazy.push(at);
                    all.slots.insert(at, name.into());
                }
                R_X86_64_GLOB_DAT => {
                    all.slots.insert(at, name.into());
                }
                _ => continue,
            }
        }
        (all.copies.len() <= MOST_COPIES).then_some(all)
    }

    /// The function whose address stands in a slot.
    pub fn at(&self, slot: u64) -> Option<&str> {
        self.slots.get(&slot).map(String::as_str)
    }

    /// The slot, and the function, with this number among those that are filled at the first call.
    pub fn lazy(&self, number: u64) -> Option<(u64, &str)> {
        let slot = *self.lazy.get(usize::try_from(number).ok()?)?;
        Some((slot, self.at(slot)?))
    }

    /// Whether streams of the C library may have buffers that the program made.
    pub fn gives_buffers(&self) -> bool {
        let calls = [
            "setvbuf",
            "setbuf",
            "setbuffer",
            "fmemopen",
            "open_memstream",
            "open_wmemstream",
            "fopencookie",
        ];
        calls.iter().any(|c| self.names.contains(*c))
    }

    /// Whether code of the file may say what is to be done when a signal comes.
    pub fn handles_signals(&self) -> bool {
        let calls = [
            "signal",
            "bsd_signal",
            "sysv_signal",
            "__sysv_signal",
            "ssignal",
            "sigset",
            "sigvec",
            "sigaction",
            "__sigaction",
            "__libc_sigaction",
            "syscall",
        ];
        calls.iter().any(|c| self.names.contains(*c))
    }
}
