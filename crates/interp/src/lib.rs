//! A virtual processor that executes guest instructions one by one, on any host.
//!
//! An [`Interpreter`] has the registers of one thread. It decodes code into [`op::Op`]s, keeps them in blocks by
//! address, and executes them. Memory is what implements [`Memory`], code what implements [`Code`]. There is no
//! operating system here, no `unsafe`, and no assumption on the host's byte order, word size or floating-point unit.
//! Nothing here knows of recordings.
//!
//! An instruction that is not supported is a [`Fault`] with its name, never a wrong result.
#![forbid(unsafe_code)]

mod block;
mod core;
mod decode;
mod fault;
mod flags;
mod int;
mod memory;
mod op;
mod operand;
mod run;
mod soft;
mod state;
mod vec;
mod word;
mod x87;

pub use crate::core::Core;
pub use fault::Fault;
pub use memory::{Code, Memory};
pub use run::{Interpreter, Near, Ran};
