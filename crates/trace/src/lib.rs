//! The trace file of a recording.
//!
//! A trace is a sequence of [`chunk`]s, appended and never changed, so that it can be written to a
//! pipe and is readable up to its last whole chunk wherever it is cut. `docs/trace-format.md`
//! describes it byte by byte. [`Writer`] makes one, [`Trace`] reads one.
//!
//! Reading is total: whatever the bytes, it ends with a result or an [`Error`], and no length
//! found in a file makes it allocate more than [`chunk::MAX_RAW`] bytes at a time.

pub mod chunk;
pub mod columns;
mod error;
mod export;
mod few;
pub mod files;
pub mod meta;
mod pack;
mod reader;
pub mod ring;
mod spill;
mod walk;
mod writer;

pub use columns::{ChunkBuilder, Pushed};
pub use error::Error;
pub use export::export;
pub use meta::{
    Header, ModuleHash, ModuleInfo, StreamEnd, StreamInfo, StreamKind, StreamSummary, Summary,
    Taken, Text, Totals,
};
pub use reader::{Brief, ChunkMeta, Completeness, Image, StreamId, Trace};
pub use ring::{Limit, Ring, Snapshot, Told};
pub use writer::Writer;
