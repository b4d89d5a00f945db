mod brief;
mod copies;
mod images;
mod modules;
mod pace;

use crate::chunk::{self, ChunkHeader, Codec, FLAG_KEY_FRAME, HEADER_LEN, Kind};
use crate::{
    Error, Header, ModuleHash, ModuleInfo, StreamInfo, StreamKind, StreamSummary, Summary, Taken,
    Text, columns, files, live, repeat, walk,
};
use hindsight_guard::{outside, place};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicU64;

pub use brief::Brief;

/// About how much memory the descriptions of a trace may take: this, and [`PER_BYTE`] for each byte of the
/// trace. Descriptions that compress better than that are not of a real recording.
const DESCRIPTIONS: u64 = 128 << 20;
const PER_BYTE: u64 = 16;

/// A part of a recording may have this many bytes, and [`CUT_TIMES`] for each byte of the recording.
const CUT_MOST: u64 = 1 << 30;
const CUT_TIMES: u64 = 64;

/// Number of a stream. Streams are counted from 1 in the order in which they began.
pub type StreamId = u32;

/// One chunk of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkMeta {
    /// Number of the chunk in its stream, from 0.
    pub index: usize,
    /// The stream to which it belongs.
    pub stream: StreamId,
    /// Position of the first event.
    pub first_pos: u64,
    /// Position of the last event.
    pub last_pos: u64,
    /// The first event is a key frame.
    pub keyframe: bool,
    /// Number of events.
    pub events: u32,
    /// Bytes in the file, including the header.
    pub stored_len: u64,
    /// Offset of the chunk in the file.
    pub offset: u64,
    header: ChunkHeader,
}

impl ChunkMeta {
    /// Bytes of the content before compression.
    pub fn raw_len(&self) -> u64 {
        self.header.raw_len as u64
    }

    /// Bytes that are unpacked to read it, at most, or as in recordings that are made here.
    fn work(&self) -> u64 {
        let others = match self.header.codec {
            Codec::Copies => repeat::SOURCES as u64 * 2 * columns::CHUNK_BYTES as u64,
            _ => 0,
        };
        self.raw_len() + others
    }
}

/// A program image: a process from `fork` or `execve` to its end or the next `execve`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// Number of the image. A child has a higher one than its parent.
    pub number: u32,
    /// The image from which it came; 0 for the first.
    pub parent: u32,
    /// Process id on the recording machine.
    pub pid: i32,
    /// The streams with its mappings and code. There is one, unless the trace is cut before it.
    pub streams: Vec<StreamId>,
    /// The streams of its threads: that of the process's first thread, then the others in the order in which they were seen.
    pub threads: Vec<StreamId>,
    /// It came from its parent by `execve`, not by `fork`.
    pub by_exec: bool,
}

/// Whether the trace has all of its recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completeness {
    /// It ends with its summary.
    Complete,
    /// It is still being written, as its writer's lock said when it was opened ([`crate::live`]).
    Growing,
    /// It ends with a whole chunk that is not the summary. The collector was killed, or could not write any
    /// more.
    Unfinished,
    /// It is cut within the chunk that begins at this byte.
    Cut {
        /// Offset of the chunk in the file.
        offset: u64,
    },
    /// The chunk that begins at this byte is damaged. It and everything behind it is not read.
    Damaged {
        /// Offset of the chunk in the file.
        offset: u64,
        /// What is wrong, as text for people.
        what: &'static str,
    },
}

impl std::fmt::Display for Completeness {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Completeness::Complete => f.write_str("complete"),
            Completeness::Growing => {
                f.write_str("being recorded: what is written so far can be read")
            }
            Completeness::Unfinished => {
                f.write_str("unfinished: the recording was not ended in order")
            }
            Completeness::Cut { offset } => write!(f, "cut: readable up to byte {offset}"),
            Completeness::Damaged { offset, what } => write!(f, "damaged at byte {offset}: {what}"),
        }
    }
}

enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

impl Bytes {
    fn len(&self) -> std::io::Result<u64> {
        match self {
            Bytes::File(f) => Ok(f.metadata()?.len()),
            Bytes::Memory(m) => Ok(m.len() as u64),
        }
    }

    /// Whether somebody still writes it.
    fn is_growing(&self) -> bool {
        match self {
            Bytes::File(f) => live::is_held(f),
            Bytes::Memory(_) => false,
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        match self {
            Bytes::File(f) => place::read(f, buf, offset),
            Bytes::Memory(m) => {
                let part = usize::try_from(offset)
                    .ok()
                    .and_then(|o| m.get(o..)?.get(..buf.len()));
                buf.copy_from_slice(part.ok_or(std::io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

/// A trace. Several threads can read it at once.
pub struct Trace {
    bytes: Bytes,
    len: u64,
    /// Somebody held its lock when it was opened.
    growing: bool,
    header: Header,
    streams: BTreeMap<StreamId, Vec<ChunkMeta>>,
    infos: BTreeMap<StreamId, StreamInfo>,
    ends: BTreeMap<StreamId, StreamSummary>,
    images: Vec<Image>,
    /// For each image, the image that has its command line.
    origins: Vec<u32>,
    /// Bytes of events that were unpacked to find out what images execute.
    looked: AtomicU64,
    /// About how many bytes of memory the descriptions take.
    described: u64,
    modules: Vec<ModuleInfo>,
    pieces: BTreeMap<ModuleHash, Vec<(u64, ChunkHeader)>>,
    contents: modules::Contents,
    copied: copies::Kept,
    taken: Vec<Taken>,
    summary: Option<Summary>,
    completeness: Completeness,
}

impl Trace {
    /// Opens a trace file and reads the headers of its chunks.
    ///
    /// # Errors
    /// The file cannot be read, is not a trace, has another version of the format, or ends within its first
    /// chunk. A trace that is cut or damaged later is no error: see [`Trace::completeness`].
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, Error> {
        let path = path.as_ref();
        let mut trace = Trace::scan(Bytes::File(outside::open(path)?))?;
        trace.contents.folder = files::beside(path);
        Ok(trace)
    }

    /// Reads the file anew, through the descriptor that is open: it may have grown since. Streams and chunks keep their
    /// numbers.
    ///
    /// # Errors
    /// As for [`Trace::open`].
    pub fn renewed(&self) -> Result<Trace, Error> {
        let bytes = match &self.bytes {
            Bytes::File(f) => Bytes::File(f.try_clone()?),
            Bytes::Memory(m) => Bytes::Memory(m.clone()),
        };
        let mut trace = Trace::scan(bytes)?;
        trace.contents.folder.clone_from(&self.contents.folder);
        Ok(trace)
    }

    /// Reads a trace that is in memory.
    ///
    /// # Errors
    /// As for [`Trace::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Trace, Error> {
        Trace::scan(Bytes::Memory(bytes))
    }

    /// What was recorded, and how.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The locks for atomic operations that were taken from their threads, each once.
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// Counts from the end of the recording. `None` if it was not finished.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Whether the trace has all of its recording.
    pub fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// Size of the file in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file is empty. Never true: an empty file is not a trace.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A hash that identifies the recording: of its description, and of the header of its first chunk with events, which
    /// has a checksum. It is the same while the trace is being written, and when it has ended.
    pub fn identity(&self) -> u128 {
        let mut h = xxhash_rust::xxh3::Xxh3Default::new();
        h.update(&serde_json::to_vec(&self.header).unwrap_or_default());
        let firsts = self.streams.values().filter_map(|s| s.first());
        if let Some(c) = firsts.min_by_key(|c| c.offset) {
            h.update(&c.header.to_bytes());
        }
        h.digest128()
    }

    /// The streams that have chunks, in ascending order.
    pub fn streams(&self) -> Vec<StreamId> {
        self.streams.keys().copied().collect()
    }

    /// What a stream carries.
    pub fn stream_info(&self, stream: StreamId) -> Option<&StreamInfo> {
        self.infos.get(&stream)
    }

    /// Whether a stream has its end.
    pub fn has_ended(&self, stream: StreamId) -> bool {
        self.ends.contains_key(&stream)
    }

    /// All streams that were begun.
    pub fn all_streams(&self) -> impl Iterator<Item = &StreamInfo> {
        self.infos.values()
    }

    /// Counts of each stream. A stream without an end is counted by its chunks.
    pub fn counts(&self) -> Vec<StreamSummary> {
        let count = |info: &StreamInfo| {
            if let Some(end) = self.ends.get(&info.stream) {
                return end.clone();
            }
            let c = self.chunks(info.stream);
            StreamSummary {
                stream: info.stream,
                pid: info.pid,
                tid: info.tid,
                instructions: c.last().map_or(0, |l| l.last_pos - c[0].first_pos),
                events: c.iter().map(|c| c.events as u64).sum(),
                chunks: c.len() as u64,
                raw_bytes: c.iter().map(|c| c.raw_len()).sum(),
                stored_bytes: c.iter().map(|c| c.stored_len).sum(),
                ..StreamSummary::default()
            }
        };
        self.infos.values().map(count).collect()
    }

    /// The streams of threads that have chunks, in ascending order.
    pub fn threads(&self) -> Vec<StreamId> {
        let thread = |s: &StreamId| {
            self.stream_info(*s)
                .is_some_and(|i| i.kind == StreamKind::Thread)
        };
        self.streams.keys().copied().filter(thread).collect()
    }

    /// All program images, in the order of their numbers.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// The program image with this number.
    pub fn image(&self, number: u32) -> Option<&Image> {
        let i = self.images.binary_search_by_key(&number, |i| i.number);
        Some(&self.images[i.ok()?])
    }

    /// The chunks of a stream, in order.
    pub fn chunks(&self, stream: StreamId) -> &[ChunkMeta] {
        self.streams.get(&stream).map_or(&[], |v| v)
    }

    /// The events of a chunk in wire form. A fresh [`hindsight_events::Decoder`] reads them.
    ///
    /// # Errors
    /// The chunk cannot be read or is damaged.
    pub fn load(&self, c: &ChunkMeta) -> Result<Vec<u8>, Error> {
        columns::merge(&self.payload(c.offset, &c.header)?).ok_or(Error::Damaged {
            offset: c.offset,
            what: "the columns of a chunk do not fit together",
        })
    }

    /// The same without patches of words, which are most of what a thread leaves that is hard to predict: see [`columns::outline`].
    ///
    /// # Errors
    /// As [`Trace::load`].
    pub fn load_outline(&self, c: &ChunkMeta) -> Result<Vec<u8>, Error> {
        columns::outline(&self.payload(c.offset, &c.header)?).ok_or(Error::Damaged {
            offset: c.offset,
            what: "the columns of a chunk do not fit together",
        })
    }

    /// Appends a chunk to another trace, as it is stored.
    pub(crate) fn copy<W: std::io::Write>(
        &self,
        c: &ChunkMeta,
        to: &mut crate::Writer<W>,
    ) -> Result<(), Error> {
        let header = ChunkHeader {
            sequence: to.totals(c.stream).chunks,
            ..c.header
        };
        if header.codec == Codec::Copies {
            // What it refers to may not be there. What threads have in common is then there once for each of them.
            if to.written() > self.len.saturating_mul(CUT_TIMES) + CUT_MOST {
                let what = "a part would be far larger than the recording";
                return Err(Error::Damaged {
                    offset: c.offset,
                    what,
                });
            }
            to.again(&header, &self.payload(c.offset, &c.header)?)?;
            return Ok(());
        }
        to.packed(&header, &self.stored_at(c.offset, &c.header)?)?;
        Ok(())
    }

    fn stored_at(&self, offset: u64, h: &ChunkHeader) -> Result<Vec<u8>, Error> {
        let mut stored = vec![0; h.stored_len as usize];
        self.bytes.read(offset + HEADER_LEN as u64, &mut stored)?;
        Ok(stored)
    }

    fn payload(&self, offset: u64, h: &ChunkHeader) -> Result<Vec<u8>, Error> {
        let stored = self.stored_at(offset, h)?;
        match h.codec {
            Codec::Copies => copies::content(self, offset, h, &stored),
            _ => chunk::unpack(h, offset, stored),
        }
    }

    fn scan(bytes: Bytes) -> Result<Trace, Error> {
        Ok(Trace::scan_some(bytes, usize::MAX, DESCRIPTIONS)?.0)
    }

    /// Reads the headers of at most `most` chunks, and says whether these are all. Descriptions may take
    /// about `room` bytes of memory, and [`PER_BYTE`] more for each byte of the trace.
    fn scan_some(bytes: Bytes, most: usize, room: u64) -> Result<(Trace, bool), Error> {
        // Asked first. A writer that ends meanwhile leaves a whole trace, and none that looks like a killed one's.
        let growing = bytes.is_growing();
        let mut t = Trace {
            len: bytes.len()?,
            growing,
            bytes,
            header: Header::default(),
            streams: BTreeMap::new(),
            infos: BTreeMap::new(),
            ends: BTreeMap::new(),
            images: Vec::new(),
            origins: Vec::new(),
            looked: AtomicU64::new(0),
            described: 0,
            modules: Vec::new(),
            pieces: BTreeMap::new(),
            contents: modules::Contents::default(),
            copied: copies::Kept::default(),
            taken: Vec::new(),
            summary: None,
            completeness: Completeness::Unfinished,
        };
        let (mut offset, mut chunks) = (0, 0);
        let mut all = true;
        loop {
            if chunks == most || offset > 0 && t.described > room + offset * PER_BYTE {
                all = false;
                break;
            }
            match t.next(offset) {
                Ok(Some(next)) => (offset, chunks) = (next, chunks + 1),
                Ok(None) => break,
                Err(Error::Damaged { what, .. }) if offset > 0 => {
                    t.completeness = Completeness::Damaged { offset, what };
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        if !all && chunks < most && room == DESCRIPTIONS {
            let what = "its descriptions would take too much memory";
            t.completeness = Completeness::Damaged { offset, what };
        }
        (t.images, t.origins) = images::find(&t.infos);
        match t.completeness {
            Completeness::Cut { offset: 0 } | Completeness::Unfinished if offset == 0 => {
                return Err(Error::NoHeader);
            }
            Completeness::Unfinished if t.summary.is_some() => {
                t.completeness = Completeness::Complete;
            }
            Completeness::Unfinished | Completeness::Cut { .. } if growing => {
                t.completeness = Completeness::Growing;
            }
            _ => {}
        }
        Ok((t, all))
    }

    /// Reads the chunk at `offset`. Returns the offset behind it, or `None` at the end.
    fn next(&mut self, offset: u64) -> Result<Option<u64>, Error> {
        let damaged = |what| Err(Error::Damaged { offset, what });
        let left = self.len - offset;
        let mut b = [0; HEADER_LEN];
        if left < HEADER_LEN as u64 {
            self.bytes.read(offset, &mut b[..left as usize])?;
            let n = (left as usize).min(chunk::MAGIC.len());
            if b[..n] != chunk::MAGIC[..n] {
                return if offset == 0 {
                    Err(Error::NotATrace)
                } else {
                    damaged("no chunk begins here")
                };
            }
            if left > 0 {
                self.completeness = Completeness::Cut { offset };
            }
            return Ok(None);
        }
        self.bytes.read(offset, &mut b)?;
        let h = ChunkHeader::from_bytes(&b, offset)?;
        let stored_len = HEADER_LEN as u64 + h.stored_len as u64;
        if stored_len > left {
            self.completeness = Completeness::Cut { offset };
            return Ok(None);
        }
        if (h.kind == Kind::Header) != (offset == 0) {
            return damaged("a header chunk is not where it belongs");
        }
        if self.summary.is_some() {
            return damaged("something follows the summary");
        }
        match h.kind {
            Kind::Header => {
                self.header = self.json(offset, &h)?;
                self.describe(&h, self.header.argv.len() + self.header.env.len());
            }
            Kind::Module => {
                let info: ModuleInfo = self.json(offset, &h)?;
                self.describe(&h, 1);
                self.pieces.entry(info.hash).or_default();
                self.modules.push(info);
            }
            Kind::Summary => self.summary = Some(self.json(offset, &h)?),
            Kind::Piece => {
                let Some(m) = self.modules.last() else {
                    return damaged("a piece belongs to no module");
                };
                self.pieces.entry(m.hash).or_default().push((offset, h));
            }
            Kind::Pages => return damaged("a chunk has a kind that does not occur in traces"),
            Kind::Taken => {
                let taken = self.json(offset, &h)?;
                self.describe(&h, 0);
                self.taken.push(taken);
            }
            Kind::Begin => {
                let info: StreamInfo = self.json(offset, &h)?;
                if info.stream != h.stream || self.infos.contains_key(&h.stream) {
                    return damaged("the description of a stream is not where it belongs");
                }
                self.describe(&h, info.command.len());
                self.infos.insert(h.stream, info);
            }
            Kind::End => self.end(offset, &h)?,
            Kind::Stream => self.events(offset, h, stored_len)?,
        }
        Ok(Some(offset + stored_len))
    }

    /// Takes in the chunk with the end of a stream.
    fn end(&mut self, offset: u64, h: &ChunkHeader) -> Result<(), Error> {
        let damaged = |what| Err(Error::Damaged { offset, what });
        let chunks = self.streams.get(&h.stream).map_or(0, Vec::len);
        if !self.infos.contains_key(&h.stream) || self.ends.contains_key(&h.stream) {
            return damaged("the end of a stream is not where it belongs");
        }
        if h.sequence as usize != chunks {
            return damaged("a chunk is missing before the end of its stream");
        }
        let end: StreamSummary = self.json(offset, h)?;
        if end.stream != h.stream {
            return damaged("the end of a stream is not where it belongs");
        }
        self.describe(h, 2 * end.marks.len() + end.exits.len() / 4);
        self.ends.insert(h.stream, end);
        Ok(())
    }

    /// Takes in a chunk with events of a stream.
    fn events(&mut self, offset: u64, h: ChunkHeader, stored_len: u64) -> Result<(), Error> {
        let damaged = |what| Err(Error::Damaged { offset, what });
        if self.ends.contains_key(&h.stream) {
            return damaged("a stream goes on after its end");
        }
        if !self.infos.contains_key(&h.stream) {
            return damaged("the description of a stream is missing");
        }
        let list = self.streams.entry(h.stream).or_default();
        if h.sequence as usize != list.len() {
            return damaged("a chunk is missing before this one");
        }
        if h.last_pos < h.first_pos || list.last().is_some_and(|p| p.last_pos > h.first_pos) {
            return damaged("positions go backwards");
        }
        list.push(ChunkMeta {
            index: list.len(),
            stream: h.stream,
            first_pos: h.first_pos,
            last_pos: h.last_pos,
            keyframe: h.flags & FLAG_KEY_FRAME != 0,
            events: h.events,
            stored_len,
            offset,
            header: h,
        });
        Ok(())
    }

    /// Counts the memory of a description with this many strings.
    fn describe(&mut self, h: &ChunkHeader, strings: usize) {
        self.described += h.raw_len as u64 + strings as u64 * size_of::<Text>() as u64;
    }

    fn json<T: serde::de::DeserializeOwned>(
        &self,
        offset: u64,
        h: &ChunkHeader,
    ) -> Result<T, Error> {
        walk::parse(&self.payload(offset, h)?, offset)
    }
}
