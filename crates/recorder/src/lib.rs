//! The half of the recorder that lives in the recorded process.
//!
//! It needs no C library, no thread-local storage and no threads of its own. The command line has the kernel
//! execute it (the program is the crate `image`) with exactly the program's arguments and environment. It loads
//! the program into the same address space, onto the same stack, and runs translated copies of the program's
//! code until it exits.
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_op_in_unsafe_fn)]
extern crate alloc;

mod actions;
mod arena;
mod attach;
mod backing;
mod birth;
mod bpf;
mod brk;
mod cache;
mod call;
mod channel;
mod chaos;
mod clone;
mod code;
mod config;
mod confined;
mod context;
mod cores;
mod death;
mod descriptor;
mod detach;
mod dispatch;
mod doom;
mod end;
mod exceptions;
mod exec;
mod fail;
mod far;
mod features;
mod filterlist;
mod filters;
mod forbidden;
mod gap;
mod generation;
pub mod guard;
mod handing;
pub mod heap;
mod host;
mod inbox;
mod joined;
mod joint;
mod kept;
mod limits;
mod loader;
mod lock;
mod many;
mod maps;
mod mark;
mod memcalls;
mod nondet;
mod observe;
pub mod operand;
mod order;
mod pass;
mod pathcalls;
mod pending;
mod place;
mod plan;
pub mod precheck;
mod process;
pub mod processor;
mod procfiles;
mod program;
mod quiet;
mod regime;
mod resources;
mod ring;
mod rseq;
mod script;
mod select;
pub mod shadow;
mod sigcalls;
mod sigframe;
mod sighandler;
mod signals;
mod sigstate;
mod sigtable;
mod slow;
mod stack;
mod start;
mod stepping;
mod stop;
mod stub;
mod symtab;
mod sys;
mod syscalls;
mod thread;
mod threads;
mod timing;
mod traced;
mod trap;
mod trapflag;
mod vsib;
mod vsyscall;
mod wanted;
mod xstate;

pub use crate::attach::keep_entries;
pub use crate::start::{abort, begin, panicked};
