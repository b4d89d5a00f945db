use crate::chunk::{self, ChunkHeader, FLAG_KEY_FRAME, HEADER_LEN, Kind, MAX_MODULE};
use crate::{Error, Header, ModuleHash, ModuleInfo, Summary, columns};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Number of a stream: 0 carries what concerns the whole process, the others one thread each.
pub type StreamId = u32;

/// One chunk of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkMeta {
    /// Number among the stream's chunks.
    pub index: usize,
    pub stream: StreamId,
    /// Position of the first event.
    pub first_pos: u64,
    /// Position of the last event.
    pub last_pos: u64,
    /// The first event is a key frame.
    pub keyframe: bool,
    /// Number of events.
    pub events: u32,
    /// Bytes in the file, header included.
    pub stored_len: u64,
    /// Where the chunk begins in the file.
    pub offset: u64,
    header: ChunkHeader,
}

impl ChunkMeta {
    /// Bytes of the content before compression.
    pub fn raw_len(&self) -> u64 {
        self.header.raw_len as u64
    }
}

/// Whether the trace is all of its recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completeness {
    /// It ends with its summary.
    Complete,
    /// It ends with a whole chunk that is not the summary: the collector was killed, or could not
    /// write any more.
    Unfinished,
    /// It was cut within the chunk that begins at this byte.
    Cut { offset: u64 },
    /// The chunk that begins at this byte is damaged; it and what follows is not read.
    Damaged { offset: u64, what: &'static str },
}

impl std::fmt::Display for Completeness {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Completeness::Complete => f.write_str("complete"),
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

    fn read(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        match self {
            Bytes::File(f) => f.read_exact_at(buf, offset),
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

/// A trace that can be read from several threads at once.
pub struct Trace {
    bytes: Bytes,
    len: u64,
    header: Header,
    streams: BTreeMap<StreamId, Vec<ChunkMeta>>,
    modules: Vec<ModuleInfo>,
    pieces: BTreeMap<ModuleHash, Vec<(u64, ChunkHeader)>>,
    summary: Option<Summary>,
    completeness: Completeness,
}

impl Trace {
    /// Opens a trace file and reads the headers of its chunks.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, Error> {
        Trace::scan(Bytes::File(File::open(path)?))
    }

    /// Reads a trace that is in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Trace, Error> {
        Trace::scan(Bytes::Memory(bytes))
    }

    /// What was recorded, and how.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Counts made at the end of the recording, if it was finished.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Whether the trace is all of its recording.
    pub fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file is empty: never, since an empty file is no trace.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The streams that have chunks, in ascending order.
    pub fn streams(&self) -> Vec<StreamId> {
        self.streams.keys().copied().collect()
    }

    /// The chunks of a stream, in order.
    pub fn chunks(&self, stream: StreamId) -> &[ChunkMeta] {
        self.streams.get(&stream).map_or(&[], |v| v)
    }

    /// The whole events of a chunk in wire form; a fresh [`hindsight_events::Decoder`] reads them.
    pub fn load(&self, c: &ChunkMeta) -> Result<Vec<u8>, Error> {
        columns::merge(&self.payload(c.offset, &c.header)?).ok_or(Error::Damaged {
            offset: c.offset,
            what: "the columns of a chunk do not fit together",
        })
    }

    /// The files that the program mapped executable.
    pub fn modules(&self) -> &[ModuleInfo] {
        &self.modules
    }

    /// The content of a module.
    pub fn module_bytes(&self, hash: ModuleHash) -> Result<Vec<u8>, Error> {
        let info = self.modules.iter().find(|m| m.hash == hash);
        let (Some(info), Some(pieces)) = (info, self.pieces.get(&hash)) else {
            return Err(Error::NoModule(hash));
        };
        let offset = pieces.first().map_or(0, |p| p.0);
        let damaged = || Error::Damaged {
            offset,
            what: "a module is not whole",
        };
        let mut out = Vec::new();
        for (offset, h) in pieces {
            let end = out.len() as u64 + h.raw_len as u64;
            if h.first_pos != out.len() as u64 || end > info.size.min(MAX_MODULE) {
                return Err(damaged());
            }
            out.extend_from_slice(&self.payload(*offset, h)?);
        }
        if ModuleHash::of(&out) != hash {
            return Err(damaged());
        }
        Ok(out)
    }

    fn payload(&self, offset: u64, h: &ChunkHeader) -> Result<Vec<u8>, Error> {
        let mut stored = vec![0; h.stored_len as usize];
        self.bytes.read(offset + HEADER_LEN as u64, &mut stored)?;
        chunk::unpack(h, offset, stored)
    }

    fn scan(bytes: Bytes) -> Result<Trace, Error> {
        let mut t = Trace {
            len: bytes.len()?,
            bytes,
            header: Header::default(),
            streams: BTreeMap::new(),
            modules: Vec::new(),
            pieces: BTreeMap::new(),
            summary: None,
            completeness: Completeness::Unfinished,
        };
        let mut offset = 0;
        loop {
            match t.next(offset) {
                Ok(Some(next)) => offset = next,
                Ok(None) => break,
                Err(Error::Damaged { what, .. }) if offset > 0 => {
                    t.completeness = Completeness::Damaged { offset, what };
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        match t.completeness {
            Completeness::Cut { offset: 0 } | Completeness::Unfinished if offset == 0 => {
                Err(Error::NoHeader)
            }
            Completeness::Unfinished if t.summary.is_some() => {
                t.completeness = Completeness::Complete;
                Ok(t)
            }
            _ => Ok(t),
        }
    }

    /// Takes the chunk at `offset`; the offset behind it, or `None` at the end.
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
            Kind::Header => self.header = self.json(offset, &h)?,
            Kind::Module => {
                let info: ModuleInfo = self.json(offset, &h)?;
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
            Kind::Stream => {
                let list = self.streams.entry(h.stream).or_default();
                if h.sequence as usize != list.len() {
                    return damaged("a chunk is missing before this one");
                }
                if h.last_pos < h.first_pos || list.last().is_some_and(|p| p.last_pos > h.first_pos)
                {
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
            }
        }
        Ok(Some(offset + stored_len))
    }

    fn json<T: serde::de::DeserializeOwned>(
        &self,
        offset: u64,
        h: &ChunkHeader,
    ) -> Result<T, Error> {
        let raw = self.payload(offset, h)?;
        serde_json::from_slice(&raw).map_err(|_| Error::Damaged {
            offset,
            what: "a description is not as expected",
        })
    }
}
