//! Functions, source lines, inlined calls, variables and call stacks. They come from the executable files of a program
//! and from their separate debug files.
//!
//! A [`Module`] is one file. A [`Space`] is the address space of a process, into which modules are mapped. This crate
//! does not know of traces: the caller supplies registers and memory.
//!
//! There are two kinds of addresses. A *file address* is one of the ELF file's segments and symbols. A *guest address*
//! is one of the process. The *bias* of a mapping is the guest address minus the file address.
//!
//! ```
//! use hindsight_symbols::{DebugPaths, Module, Space};
//! use std::sync::Arc;
//!
//! let data = std::fs::read("/bin/true")?;
//! let module = Arc::new(Module::parse("/bin/true", data, &DebugPaths::default())?);
//! let mut space = Space::new();
//! space.map(&module, 0x5555_0000_0000, 1 << 16, 0);
//! # assert_eq!(space.mappings().len(), 1);
//! for address in space.find("main") {
//!     println!("{address:#x}: {:?}", space.frames(address));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]

mod debugfile;
mod demangle;
mod dwarf;
mod globals;
mod locations;
mod module;
mod names;
mod offset;
mod passed;
mod prologue;
mod signature;
mod space;
mod symbol;
mod tailcalls;
mod types;
mod unwind;
mod variables;

pub use debugfile::DebugPaths;
pub use demangle::demangle;
pub use globals::Global;
pub use locations::{AtEntry, Location, Registers};
pub use module::{Function, InlineFrame, LineRange, Lines, Module, SourceLine};
pub use offset::function_at_offset;
pub use signature::{Class, Parameter, Signature};
pub use space::{CallFrame, CodeLocation, Mapping, Space};
pub use symbol::Symbol;
pub use types::{Field, Shape, Target, Type};
pub use variables::Variable;

/// Why a file has no symbols to offer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read as an ELF file.
    #[error("not an ELF file: {0}")]
    Elf(#[from] object::Error),
    /// The debug information is damaged or not supported.
    #[error("unreadable debug information: {0}")]
    Dwarf(#[from] gimli::Error),
}
