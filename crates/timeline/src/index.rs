//! The index makes travel fast. It has states from which replay can begin, and says which memory was accessed between
//! them.
//!
//! A *part* is a thread's stream from one key frame of the recording to the next. It is replayed once, with marks of
//! all accesses, and cut into *intervals*. The index has of each interval
//!
//! * a frame: the registers at its start, and the pages that the interval accesses. It has the lines of them that the
//!   interval reads, with their contents at the start. A replay of the interval needs no more;
//! * its history: for each page the words (8 bytes) that were read and that were written;
//! * its summary (`summary`): how each byte was accessed last, and what it then held. Questions about memory read it
//!   there, without a replay, however long ago the access was.
//!
//! Pages and lines are those of the window: addresses modulo 2^32.

mod budget;
mod build;
mod by_page;
mod coarse;
mod codec;
mod differences;
mod draft;
mod frame;
mod given;
mod held;
mod history;
mod maker;
mod packer;
mod page_access;
mod pages;
mod part;
mod pieces;
mod ranges;
pub mod sidecar;
mod spans;
mod split;
mod steps;
mod stored;
mod summary;
mod told;
mod tracks;

pub use budget::Budget;
pub use build::{Progress, Start, build, start_of};
pub use by_page::SECTION;
pub use codec::{LINE, PAGE};
pub use differences::Differences;
pub use draft::Draft;
pub use frame::IndexFrame;
pub use page_access::PageAccess;
pub use part::{Body, IndexPart, IntervalSet, Pages, Past, Touching, in_memory};
pub use ranges::{Level, PartRange, SPAN, chunk_of, coarse_span, part_ranges, span};
pub use sidecar::{For, Limits, MAX_RECORD, Sidecar, Stream};
pub use split::{affordable_coarse, by_several, within_memory};
pub use summary::{IntervalSummary, OpenedSummary};
pub use tracks::{MOST as MOST_CALLS, NEVER, Track, Tracks};
