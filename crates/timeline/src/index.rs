//! What makes travel fast: frames from which replay can begin, and which memory was touched between
//! two of them.
//!
//! A *part* is a thread's stream from one of the recording's own key frames to the next. It is replayed
//! once, with marks of all accesses, in intervals. Of each interval are kept:
//!
//! * a frame: the registers at its start, the pages that the interval accesses, and those lines of them that it
//!   reads, as they were then. A replay of the interval needs no more;
//! * its history: for each page the words (8 bytes) that were read and that were written;
//! * its ends (`ends`): how each byte was accessed last, and what it then held. What was in memory is
//!   read from there, however long ago it was accessed, without replaying.
//!
//! Pages and lines are those of the window: addresses modulo 2^32.

mod build;
mod by_page;
mod codec;
mod draft;
mod ends;
mod frame;
mod given;
mod history;
mod maker;
mod pages;
mod part;
mod pieces;
mod ranges;
pub mod sidecar;
mod split;
mod steps;
mod touched;
mod tracks;

pub use build::{Budget, Progress, build};
pub use by_page::SECTION;
pub use codec::{LINE, PAGE};
pub use draft::Draft;
pub use ends::{IntervalSummary, OpenedSummary};
pub use frame::Frame;
pub use part::{Body, Bytes, Pages, Part, Past, Set, encode};
pub use ranges::{PartRange, SPAN, places, span};
pub use sidecar::{For, Sidecar};
pub use split::by_several;
pub use touched::PageAccess;
pub use tracks::{MOST as MOST_CALLS, NEVER, Track, Tracks};
