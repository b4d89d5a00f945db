//! What names stand for in an address space.

use crate::{SourceLine, Space};

/// A function or a variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// A function's demangled name; a variable's name as it was asked for, without the module.
    pub name: String,
    /// Guest address.
    pub address: u64,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// Path of the module.
    pub module: String,
    /// File address.
    pub file_address: u64,
    /// Where it is declared, or else where a function's code begins.
    pub source: Option<SourceLine>,
}

impl Space {
    /// The functions and variables with this name, by address. `name` is as for [`Space::find`]: `name` or `module!name`.
    /// Local variables are not found.
    pub fn symbols(&self, name: &str) -> Vec<Symbol> {
        let mut out = Vec::new();
        let (modules, name) = self.modules_of(name);
        for m in modules {
            let symbol = |name: String, addr: u64, size, source| Symbol {
                name,
                address: addr.wrapping_add(m.bias),
                size,
                module: m.module.path().into(),
                file_address: addr,
                source,
            };
            // A function may begin with code that is inlined. The last frame is the function's own.
            let begin = |addr| m.module.frames(addr).pop().and_then(|f| f.source);
            let declared = |addr| m.module.signature(addr).ok().flatten()?.source;
            out.extend(m.module.find(name).into_iter().map(|f| {
                let size = Some(f.size).filter(|s| *s > 0);
                let source = declared(f.addr).or_else(|| begin(f.addr));
                symbol(f.demangled(), f.addr, size, source)
            }));
            out.extend(m.module.globals_called(name).into_iter().map(|g| {
                let source = g.source.or_else(|| begin(g.addr));
                symbol(name.into(), g.addr, g.size, source)
            }));
        }
        out.sort_by_key(|s: &Symbol| s.address);
        out.dedup_by_key(|s| s.address);
        out
    }
}
