//! Functions, source lines, inlined calls, variables and call stacks, from the executable files
//! of a program and their separate debug files.
//!
//! A [`Module`] is one file; [`Space`] is the address space of a process into which modules are
//! mapped. Nothing here knows of traces: registers and memory come from whoever asks.
//!
//! Addresses come in two kinds: *file addresses* are those of the ELF file's segments and symbols;
//! the *bias* is what must be added for the place where the file is mapped.

mod debugfile;
mod demangle;
mod dwarf;
mod globals;
mod locations;
mod module;
mod names;
mod passed;
mod prologue;
mod signature;
mod space;
mod tailcalls;
mod types;
mod unwind;
mod variables;

pub use debugfile::DebugPaths;
pub use demangle::demangle;
pub use globals::Global;
pub use locations::{AtEntry, Location, Registers};
pub use module::{Frame, Function, Module, SourceLine};
pub use signature::{Class, Parameter, Signature};
pub use space::{CallFrame, Mapping, Place, Space};
pub use types::{Field, Shape, Target, Type};
pub use variables::Variable;

/// Why a file has no symbols to offer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("not an ELF file: {0}")]
    Elf(#[from] object::Error),
    #[error("unreadable debug information: {0}")]
    Dwarf(#[from] gimli::Error),
}
