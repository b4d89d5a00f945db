//! The trace file of a recording.
//!
//! A trace is a sequence of [`chunk`]s. Chunks are appended and never change. So a trace can be written to a
//! pipe, and a trace that is cut is readable up to its last whole chunk. `docs/trace-format.md` describes
//! every byte. [`Writer`] makes a trace and [`Trace`] reads one.
//!
//! Reading is total: any bytes give a result or an [`Error`]. No length in a file makes the reader allocate
//! more than [`chunk::MAX_RAW`] bytes at a time.

#![deny(missing_docs)]

pub mod chunk;
pub mod columns;
pub mod cut;
mod error;
mod export;
mod few;
pub mod files;
pub mod live;
mod machine;
pub mod meta;
mod pack;
mod reader;
mod repeat;
pub mod ring;
mod spill;
mod walk;
mod writer;

pub use columns::{ChunkBuilder, Pushed};
pub use error::Error;
pub use export::export;
pub use machine::{Guesses, Lines, Machine, Saves};
pub use meta::{
    Header, ModuleHash, ModuleInfo, StreamEnd, StreamInfo, StreamKind, StreamSummary, Summary,
    Taken, Text, Totals,
};
pub use reader::{Brief, ChunkMeta, Completeness, Image, StreamId, Trace};
pub use ring::{Limit, Ring, RingSnapshot, Told};
pub use writer::Writer;
