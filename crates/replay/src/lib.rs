//! Replay: virtual processors that play the streams of a trace.
//!
//! A [`Machine`] plays one thread. Its only memory is the window: translation rewrites each memory operand to
//! an address in it. So replayed code touches nothing else, whoever recorded it. No system call is made on
//! its behalf. Events stand at known positions. Between two events translated code runs at full speed,
//! limited by a budget of instructions.
//!
//! Every replay checks itself: the arguments of system calls, the positions of all events, and the registers
//! at key frames and digests. The crate `verify` does this for all threads of a trace, in parallel between
//! key frames.

// Some of it serves the native processor only, which other machines do not have.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]

pub mod access;
mod access_marks;
mod apply;
pub mod chain;
mod code;
mod compare;
mod cost;
mod cpu;
mod error;
mod expression;
mod features;
mod interpreted;
mod library;
mod lines;
mod machine;
mod maps;
#[cfg(unix)]
mod memory;
#[cfg(not(unix))]
#[path = "memory/none.rs"]
mod memory;
#[cfg(target_arch = "x86_64")]
mod native;
#[cfg(unix)]
mod pagemap;
mod processor;
mod queue;
mod restated;
mod runs;
mod sequence;
mod state;
mod stream;
mod string;
mod sweep;
mod window;

pub use access_marks::{LineMarks, ShowPage};
pub use code::Code;
pub use compare::differing;
pub use cost::Ticks;
pub use error::{Difference, Error};
pub use expression::{Binary, Expression, Look, Operand, Step};
pub use features::{features, is_looked_for, leave_out};
pub use library::Library;
pub use lines::{Lines, MadePages, PageSource, SharedPage};
pub use machine::{Machine, Stop, StreamEnd};
pub use maps::AddressMap;
pub use memory::page_faults;
#[cfg(not(unix))]
pub use memory::prepare;
#[cfg(unix)]
pub use pagemap::prepare;
pub use processor::{Choice, Model, is_native_possible};
pub use queue::{Counts, Numbers, Source};
pub use runs::{Run, Taken};
pub use sequence::Sequence;
pub use state::{Checkpoint, Gap, State};
pub use stream::{excerpt, stream};
pub use window::AccessKind;
