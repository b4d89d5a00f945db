//! Replay: virtual processors that play the streams of a trace.
//!
//! A [`Machine`] plays one thread. Its memory is the predictor's window alone: every memory operand of
//! translated code has been rewritten to it, so that replayed code, whoever recorded it, touches
//! nothing else, and no system call is made on its behalf. Events stand at known positions; between
//! two of them translated code runs at full speed, held by a budget of instructions.
//!
//! Every replay checks itself: system calls and their arguments, the places of all events, and
//! the registers at key frames and digests. The crate `verify` does this for all threads of a trace, in parallel
//! between key frames.

pub mod access;
mod apply;
mod blocks;
mod cache;
mod code;
mod compare;
mod cost;
mod cpu;
mod error;
mod executable;
mod host;
mod library;
mod lines;
mod machine;
mod marks;
mod memory;
mod order;
mod pagemap;
mod queue;
mod restated;
mod slow;
mod state;
mod stream;
mod sweep;
mod window;

pub use code::Code;
pub use cost::Ticks;
pub use error::{Difference, Error};
pub use library::Library;
pub use lines::Lines;
pub use machine::{End, Machine, Stop};
pub use marks::{LineMarks, ShowPage};
pub use order::Order;
pub use pagemap::prepare;
pub use queue::{Counts, Numbers, Source};
pub use state::{Gap, Snapshot, State};
pub use stream::{excerpt, stream};
pub use window::Marks;
