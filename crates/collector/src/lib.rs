//! Drains the rings of a recorded process into a trace.
//!
//! The recorded process only writes its rings. [`Collector::run`] cuts them into chunks,
//! compresses and writes them on a thread of its own, so that the recorded program pays for none
//! of it and loses nothing that reached a ring when it dies. When the trace can no longer be
//! written the collector goes on emptying the rings: the program must not stop because of it.

mod alive;
mod collect;
mod collected;
mod control;
mod futex;
mod images;
mod lane;
mod locks;
mod modules;
mod output;

pub use collect::Collector;
pub use collected::{Collected, MappedFile, Refusal, Requests};
pub use control::Control;
