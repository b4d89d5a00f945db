//! Where a recording goes: into a trace as it comes, or into a ring that keeps its latest part.

use hindsight_trace::columns::Content;
use hindsight_trace::files::State;
use hindsight_trace::{
    ChunkBuilder, ModuleHash, Ring, StreamId, StreamInfo, StreamSummary, Summary, Taken, Text,
    Told, Writer,
};
use std::io::{self, Write};

/// Takes what is recorded. All functions fail if the trace cannot be written.
pub enum Output<W: Write> {
    /// All of it is written.
    Trace(Box<Writer<W>>),
    /// The latest part is kept.
    Ring(Box<Ring>),
}

impl<W: Write> Output<W> {
    /// Writes all of it.
    pub fn trace(writer: Writer<W>) -> Output<W> {
        Output::Trace(Box::new(writer))
    }

    /// Keeps the latest part.
    pub fn ring(ring: Ring) -> Output<W> {
        Output::Ring(Box::new(ring))
    }

    /// Begins a stream.
    pub fn begin(&mut self, info: &StreamInfo) -> io::Result<()> {
        match self {
            Output::Trace(writer) => writer.begin(info),
            Output::Ring(r) => {
                r.begin(info);
                Ok(())
            }
        }
    }

    /// Takes a chunk. `told` is what is known of it.
    pub fn stream(
        &mut self,
        stream: StreamId,
        b: &mut ChunkBuilder,
        told: &Told,
    ) -> io::Result<()> {
        match self {
            Output::Trace(writer) => writer.stream(stream, b),
            Output::Ring(r) => r.stream(stream, b, told),
        }
    }

    /// Notes a lock of atomic operations that was taken away.
    pub fn taken(&mut self, taken: &Taken) -> io::Result<()> {
        match self {
            Output::Trace(writer) => writer.taken(taken),
            Output::Ring(r) => {
                r.taken(taken);
                Ok(())
            }
        }
    }

    /// Notes that a stream is complete.
    pub fn end(&mut self, s: StreamSummary) -> io::Result<()> {
        match self {
            Output::Trace(writer) => writer.end(s),
            Output::Ring(r) => {
                r.end(s);
                Ok(())
            }
        }
    }

    /// Hands over what waits in the sink, so whoever reads the trace meanwhile finds it.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Trace(writer) => writer.flush(),
            Output::Ring(_) => Ok(()),
        }
    }

    /// Takes a file that was mapped.
    pub fn module(&mut self, path: Text, content: &[u8]) -> io::Result<ModuleHash> {
        match self {
            Output::Trace(writer) => writer.module(path, content),
            Output::Ring(r) => r.module(path, content),
        }
    }

    /// Takes a file, if its content is known without reading it. Returns the hashes of its content
    /// and of its pages.
    pub fn known_module(
        &mut self,
        path: Text,
        state: &State,
    ) -> io::Result<Option<(ModuleHash, Vec<ModuleHash>)>> {
        match self {
            Output::Trace(writer) => writer.known_module(path, state),
            Output::Ring(_) => Ok(None),
        }
    }

    /// Remembers what a file in this state holds.
    pub fn note_module(&self, state: &State, hash: ModuleHash) {
        if let Output::Trace(writer) = self {
            writer.note_module(state, hash);
        }
    }

    /// Ends the trace. Returns the sink, and the summary as it was written.
    pub fn finish(self, summary: Summary) -> io::Result<(Option<W>, Summary)> {
        match self {
            Output::Trace(writer) => {
                let (sink, summary) = writer.finish(summary)?;
                Ok((Some(sink), summary))
            }
            Output::Ring(_) => Ok((None, summary)),
        }
    }
}

/// Drops a chunk, when there is nowhere to write. Events are still cut, since they tell how
/// programs ended.
pub fn discard(b: &mut ChunkBuilder) {
    b.take(&mut Content::default());
}
