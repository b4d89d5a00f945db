//! What is known of Linux's system calls on x86-64: their names, and what memory they write.
//!
//! The recorder's quiet regime rests on the second: memory that the kernel writes behind a
//! program's back must be recorded when the call returns. What is recorded is what memory then
//! holds, so a range that is too large is never wrong; one that is too small is. A call of which
//! not everything is known is [`Class::Unknown`], and the regime ends there.
#![no_std]

mod control;
mod names;
mod outputs;
mod overlap;
mod signatures;

pub use names::{arguments, name, names, number};
pub use outputs::{Class, Memory, Range, indirections, may_write, outputs};
pub use overlap::overwrites_its_buffers;
pub use signatures::{Arg, Returns, Set, Shape, Signature, signature};
