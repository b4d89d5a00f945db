use crate::chunk::{ChunkHeader, Kind};
use crate::columns::ChunkBuilder;
use crate::pack::{self, Packer, blank};
use crate::{
    Header, ModuleHash, ModuleInfo, StreamId, StreamInfo, StreamSummary, Summary, Text, Totals,
};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

/// What was written of one stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StreamTotals {
    pub chunks: u32,
    pub events: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    /// Position of the last event.
    pub last_pos: u64,
}

/// Writes a trace from front to end; the sink needs no seeking. After an error nothing more
/// should be written: a chunk may have been cut. Of streams that have ended nothing is kept.
pub struct Writer<W: Write> {
    out: W,
    packer: Packer,
    /// The streams that have not ended.
    streams: BTreeMap<StreamId, StreamTotals>,
    totals: Totals,
    modules: u32,
    known: HashSet<ModuleHash>,
    module_bytes: u64,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    pub fn new(out: W, header: &Header) -> io::Result<Writer<W>> {
        let mut w = Writer {
            out,
            packer: Packer::new()?,
            streams: BTreeMap::new(),
            totals: Totals::default(),
            modules: 0,
            known: HashSet::new(),
            module_bytes: 0,
            written: 0,
        };
        w.chunk(blank(Kind::Header), &serde_json::to_vec(header)?)?;
        w.out.flush()?;
        Ok(w)
    }

    /// Describes a stream; to be called before its first events.
    pub fn begin(&mut self, info: &StreamInfo) -> io::Result<()> {
        let header = ChunkHeader {
            stream: info.stream,
            ..blank(Kind::Begin)
        };
        self.streams.insert(info.stream, StreamTotals::default());
        self.chunk(header, &serde_json::to_vec(info)?)
    }

    /// Says that nothing follows of a stream. Sizes that the writer knows are filled in.
    pub fn end(&mut self, mut s: StreamSummary) -> io::Result<()> {
        let t = self.streams.remove(&s.stream).unwrap_or_default();
        s.chunks = t.chunks as u64;
        s.events = t.events;
        s.raw_bytes = t.raw_bytes;
        s.stored_bytes = t.stored_bytes;
        self.totals.add(&s);
        let header = ChunkHeader {
            stream: s.stream,
            sequence: t.chunks,
            ..blank(Kind::End)
        };
        self.chunk(header, &serde_json::to_vec(&s)?)
    }

    /// Writes what `b` has gathered as a chunk of `stream`, if anything.
    pub fn stream(&mut self, stream: StreamId, b: &mut ChunkBuilder) -> io::Result<()> {
        if b.events() == 0 {
            return Ok(());
        }
        let sequence = self.totals(stream).chunks;
        let (out, written) = (&mut self.out, &mut self.written);
        let header = self.packer.events(stream, sequence, b, |h, stored| {
            append(out, written, &h, stored)?;
            Ok(h)
        })?;
        self.count(&header);
        Ok(())
    }

    /// Appends a chunk that was packed before.
    pub(crate) fn packed(&mut self, h: &ChunkHeader, stored: &[u8]) -> io::Result<()> {
        append(&mut self.out, &mut self.written, h, stored)?;
        match h.kind {
            Kind::Stream => self.count(h),
            Kind::Piece => self.module_bytes += frame_len(h),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, h: &ChunkHeader) {
        let totals = self.streams.entry(h.stream).or_default();
        totals.chunks += 1;
        totals.events += h.events as u64;
        totals.raw_bytes += h.raw_len as u64;
        totals.stored_bytes += frame_len(h);
        totals.last_pos = h.last_pos;
    }

    /// Writes that the program uses the file `path`, and its content unless it is known.
    pub fn module(&mut self, path: Text, content: &[u8]) -> io::Result<ModuleHash> {
        let hash = ModuleHash::of(content);
        let info = ModuleInfo {
            path,
            hash,
            size: content.len() as u64,
        };
        self.describe(&info)?;
        if self.known.insert(hash) {
            let before = self.written;
            for (header, piece) in pack::pieces(content) {
                self.chunk(header, piece)?;
            }
            self.module_bytes += self.written - before;
        }
        Ok(hash)
    }

    /// Writes that the program uses a file whose pieces follow or are known.
    pub(crate) fn describe(&mut self, info: &ModuleInfo) -> io::Result<()> {
        let before = self.written;
        let header = ChunkHeader {
            sequence: self.modules,
            ..blank(Kind::Module)
        };
        self.chunk(header, &serde_json::to_vec(info)?)?;
        self.modules += 1;
        self.module_bytes += self.written - before;
        Ok(())
    }

    /// Ends the trace, and the streams that have not ended. Sizes and totals that the writer knows are
    /// filled in.
    pub fn finish(mut self, mut summary: Summary) -> io::Result<(W, Summary)> {
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            self.end(StreamSummary {
                stream,
                ..StreamSummary::default()
            })?;
        }
        summary.totals = self.totals;
        summary.module_bytes = self.module_bytes;
        summary.trace_bytes = self.written;
        self.chunk(blank(Kind::Summary), &serde_json::to_vec(&summary)?)?;
        self.out.flush()?;
        Ok((self.out, summary))
    }

    /// Hands everything to the sink's destination.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Bytes written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What was written of `stream`, unless it has ended.
    pub fn totals(&self, stream: StreamId) -> StreamTotals {
        self.streams.get(&stream).copied().unwrap_or_default()
    }

    fn chunk(&mut self, h: ChunkHeader, raw: &[u8]) -> io::Result<()> {
        let (out, written) = (&mut self.out, &mut self.written);
        self.packer
            .chunk(h, raw, |h, stored| append(out, written, &h, stored))
    }
}

fn append(
    out: &mut impl Write,
    written: &mut u64,
    h: &ChunkHeader,
    stored: &[u8],
) -> io::Result<()> {
    out.write_all(&h.to_bytes())?;
    out.write_all(stored)?;
    *written += frame_len(h);
    Ok(())
}

/// Bytes of a chunk in the file.
fn frame_len(h: &ChunkHeader) -> u64 {
    crate::chunk::HEADER_LEN as u64 + h.stored_len as u64
}
