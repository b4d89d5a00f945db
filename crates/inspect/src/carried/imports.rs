//! What a file takes from others: which function stands in which slot of its table, and which variables it has a copy of.

use hindsight_symbols::Module;
use object::elf::{R_X86_64_COPY, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

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
    /// A file that cannot be read takes nothing.
    pub fn of(module: &Module) -> Imports {
        let mut all = Imports::default();
        let Ok(file) = object::File::parse(module.data()) else {
            return all;
        };
        let (Some(table), Some(relocations)) =
            (file.dynamic_symbol_table(), file.dynamic_relocations())
        else {
            return all;
        };
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
            all.names.insert(name.into());
        }
        all
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

    /// Whether code of the file may look into the buffers of the C library's streams: only the macros do so, and these call a
    /// function when a buffer is empty or full.
    pub fn looks_into_streams(&self) -> bool {
        let calls = [
            "__uflow",
            "__underflow",
            "__overflow",
            "__wuflow",
            "__wunderflow",
            "__woverflow",
        ];
        calls.iter().any(|c| self.names.contains(*c))
    }

    /// Whether streams of the C library may have buffers that the program made.
    pub fn gives_buffers(&self) -> bool {
        let calls = [
            "setvbuf",
            "setbuf",
            "setbuffer",
            "fmemopen",
            "open_memstream",
        ];
        calls.iter().any(|c| self.names.contains(*c))
    }
}
