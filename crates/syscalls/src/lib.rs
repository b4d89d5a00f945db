//! What is known of Linux's system calls on x86-64: their names, their arguments, and what memory they write.
//!
//! The recorder's quiet regime relies on the memory that they write. The kernel changes it without the program's doing,
//! so it must be recorded when the call returns. What is recorded is the content after the call. So a range that is too
//! large is never wrong. A range that is too small is. A call that is not completely known is [`Class::Unknown`], and
//! the quiet regime ends there.
#![no_std]
#![deny(missing_docs)]

pub mod abi;
mod arguments;
mod control;
mod outputs;
mod overlap;
mod signatures;
mod table;
mod written;

pub use arguments::{Arg, Set, Shape};
pub use outputs::{indirections, may_write, outputs};
pub use overlap::overwrites_its_buffers;
pub use signatures::{Returns, Signature, signature};
pub use table::{
    CHANGES_FILES, DESCRIPTOR, DIRECT, MAPS, OWN, PASSED, PATH, PINS, REPEATABLE, RIGHTS, Traits,
    WATCHED, arguments, has, name, names, number,
};
pub use written::{Class, Memory, Range};
