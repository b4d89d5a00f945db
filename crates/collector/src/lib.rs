//! Drains the rings of a recorded process into a trace.
//!
//! The recorded process only writes its rings. [`Collector::run`] cuts them into chunks,
//! compresses and writes them on a thread of its own, so that the recorded program pays for none
//! of it and loses nothing that reached a ring when it dies. When the trace can no longer be
//! written the collector goes on emptying the rings: the program must not stop because of it.
//!
//! The program can write anything into the memory that it shares with the collector, and some programs do. So
//! what is there is only asked for: words are read once and checked (`hindsight_events::consumer`), bytes are copied
//! before they are parsed, and what decides how the collector goes on stands in its own memory (`lane`, `images`).
//! Whatever the rings hold, the collector takes bounded memory, ends when the processes have ended
//! ([`Control::is_left`]), and when it is told to.

mod alive;
mod collect;
mod collected;
mod control;
mod discard;
mod futex;
mod handed;
mod images;
mod lane;
mod locks;
mod modules;
mod output;

pub use collect::Collector;
pub use collected::{Collected, MappedFile, Refusal, Requests};
pub use control::{Control, Producer};
pub use discard::discard;
