use crate::chunk::{ChunkHeader, Codec, FLAG_KEY_FRAME, Kind};
use crate::columns::{ChunkBuilder, Content};
use crate::{Header, ModuleHash, ModuleInfo, StreamId, StreamInfo, Summary, Text};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a module in one chunk.
const PIECE: usize = 1 << 20;

/// Shorter content is stored as it is: streams begin by the thousand.
const WORTH_PACKING: usize = 256;

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
/// should be written: a chunk may have been cut.
pub struct Writer<W: Write> {
    out: W,
    zstd: zstd::bulk::Compressor<'static>,
    packed: Vec<u8>,
    content: Content,
    streams: BTreeMap<StreamId, StreamTotals>,
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
            zstd: zstd::bulk::Compressor::new(1)?,
            packed: Vec::new(),
            content: Content::default(),
            streams: BTreeMap::new(),
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
        self.chunk(header, &serde_json::to_vec(info)?)
    }

    /// Writes what `b` has gathered as a chunk of `stream`, if anything.
    pub fn stream(&mut self, stream: StreamId, b: &mut ChunkBuilder) -> io::Result<()> {
        if b.events() == 0 {
            return Ok(());
        }
        let mut content = std::mem::take(&mut self.content);
        b.take(&mut content);
        let totals = self.streams.entry(stream).or_default();
        let header = ChunkHeader {
            flags: if content.keyframe { FLAG_KEY_FRAME } else { 0 },
            stream,
            sequence: totals.chunks,
            events: content.events,
            first_pos: content.first_pos,
            last_pos: content.last_pos,
            ..blank(Kind::Stream)
        };
        totals.chunks += 1;
        totals.events += content.events as u64;
        totals.raw_bytes += content.raw.len() as u64;
        totals.last_pos = content.last_pos;
        let before = self.written;
        let result = self.chunk(header, &content.raw);
        self.content = content;
        if let Some(t) = self.streams.get_mut(&stream) {
            t.stored_bytes += self.written - before;
        }
        result
    }

    /// Writes that the program uses the file `path`, and its content unless it is known.
    pub fn module(&mut self, path: Text, content: &[u8]) -> io::Result<ModuleHash> {
        let hash = ModuleHash::of(content);
        let before = self.written;
        let info = ModuleInfo {
            path,
            hash,
            size: content.len() as u64,
        };
        let header = ChunkHeader {
            sequence: self.modules,
            ..blank(Kind::Module)
        };
        self.chunk(header, &serde_json::to_vec(&info)?)?;
        self.modules += 1;
        if self.known.insert(hash) {
            for (i, piece) in content.chunks(PIECE).enumerate() {
                let header = ChunkHeader {
                    sequence: i as u32,
                    first_pos: (i * PIECE) as u64,
                    last_pos: content.len() as u64,
                    ..blank(Kind::Piece)
                };
                self.chunk(header, piece)?;
            }
        }
        self.module_bytes += self.written - before;
        Ok(hash)
    }

    /// Ends the trace. Sizes that the writer knows are filled in.
    pub fn finish(mut self, mut summary: Summary) -> io::Result<(W, Summary)> {
        summary.module_bytes = self.module_bytes;
        summary.trace_bytes = self.written;
        for (id, t) in &self.streams {
            let i = match summary.streams.iter().position(|s| s.stream == *id) {
                Some(i) => i,
                None => {
                    summary.streams.push(crate::StreamSummary {
                        stream: *id,
                        ..Default::default()
                    });
                    summary.streams.len() - 1
                }
            };
            let s = &mut summary.streams[i];
            s.chunks = t.chunks as u64;
            s.events = t.events;
            s.raw_bytes = t.raw_bytes;
            s.stored_bytes = t.stored_bytes;
        }
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

    /// What was written of `stream`.
    pub fn totals(&self, stream: StreamId) -> StreamTotals {
        self.streams.get(&stream).copied().unwrap_or_default()
    }

    fn chunk(&mut self, mut h: ChunkHeader, raw: &[u8]) -> io::Result<()> {
        if raw.len() > crate::chunk::MAX_RAW {
            return Err(io::Error::other("a chunk of the trace would be too long"));
        }
        self.packed.clear();
        if raw.len() >= WORTH_PACKING {
            self.packed
                .reserve(zstd::zstd_safe::compress_bound(raw.len()));
            self.zstd.compress_to_buffer(raw, &mut self.packed)?;
        }
        let stored = if !self.packed.is_empty() && self.packed.len() < raw.len() {
            h.codec = Codec::Zstd;
            &self.packed[..]
        } else {
            raw
        };
        h.stored_len = stored.len() as u32;
        h.raw_len = raw.len() as u32;
        h.checksum = xxh3_64(stored);
        self.out.write_all(&h.to_bytes())?;
        self.out.write_all(stored)?;
        self.written += (crate::chunk::HEADER_LEN + stored.len()) as u64;
        Ok(())
    }
}

fn blank(kind: Kind) -> ChunkHeader {
    ChunkHeader {
        kind,
        codec: Codec::Plain,
        flags: 0,
        stream: 0,
        sequence: 0,
        events: 0,
        first_pos: 0,
        last_pos: 0,
        stored_len: 0,
        raw_len: 0,
        checksum: 0,
    }
}
