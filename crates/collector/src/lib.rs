//! Drains the rings of a recorded process into a trace.
//!
//! The recorded process only writes its rings. [`Collector::run`] cuts their content into chunks,
//! compresses and writes them. The command line runs it in a process of its own, so the program does
//! not pay for it. What has reached a ring is safe when the program dies. If the trace cannot be
//! written any more, the collector goes on emptying the rings: the program must not stop because of
//! it.
//!
//! The program can write anything into the memory that it shares with the collector, and some
//! programs do. So that memory is never trusted:
//!
//! - Each word is read once and checked (`hindsight_events::consumer`).
//! - Bytes are copied before they are parsed.
//! - What decides how the collector goes on is in its own memory (`lane`, `images`).
//!
//! Whatever the rings hold, the collector takes bounded memory. It ends when the processes have
//! ended ([`Control::is_left`]), and when it is told to.

mod alive;
mod collect;
mod collected;
mod commons;
mod control;
mod discard;
mod futex;
mod handed;
mod images;
mod lane;
mod locks;
mod modules;
mod output;
mod still;

pub use collect::{Collector, StatePoints};
pub use collected::{Collected, MappedFile, Refusal, Requests};
pub use control::{Control, Producer};
pub use discard::discard;
