//! Chunks: the frames in which everything in a trace file is stored.

use crate::Error;
use crate::repeat::Frame;
use xxhash_rust::xxh3::xxh3_64;

/// Version of the format. Raise it with every change that an older reader would misread.
pub const VERSION: u8 = 12;

/// The oldest version that can be read. Its files mean the same in the current version.
pub const OLDEST: u8 = 6;

/// First bytes of each chunk, followed by the version.
pub const MAGIC: [u8; 7] = *b"HSTRACE";

/// Bytes of a chunk's header.
pub const HEADER_LEN: usize = 64;

/// Longest payload in bytes, stored or decompressed.
pub const MAX_RAW: usize = 64 << 20;

/// Longest content of a chunk of events in bytes, decompressed. A chunk ends at
/// [`CHUNK_BYTES`](crate::columns::CHUNK_BYTES), so real chunks are far shorter.
const MAX_EVENTS: usize = 8 << 20;

/// Longest piece of a module in bytes. The writer's pieces have a quarter of that.
const MAX_PIECE: usize = 4 << 20;

/// Longest description in bytes. It describes a stream, a module or the end of a recording, and holds a few
/// paths or arguments.
const MAX_DESCRIPTION: usize = 1 << 20;

/// Longest module whose content is in a trace, in bytes.
pub const MAX_MODULE: u64 = 1 << 30;

/// [`ChunkHeader::flags`]: the first event is a key frame.
pub const FLAG_KEY_FRAME: u16 = 1;

/// What a chunk holds.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// JSON of [`crate::Header`]; the first chunk.
    Header = 1,
    /// Events of one stream.
    Stream = 2,
    /// JSON of [`crate::ModuleInfo`]. Pieces of its content may follow.
    Module = 3,
    /// A part of the content of the last module that was described.
    Piece = 4,
    /// JSON of [`crate::Summary`]; the last chunk of a finished recording.
    Summary = 5,
    /// JSON of [`crate::StreamInfo`]; comes before the chunks of its stream.
    Begin = 6,
    /// JSON of [`crate::StreamSummary`]. No chunk of its stream follows.
    End = 7,
    /// Names of the pages of a content. Occurs only in the files that recordings share.
    Pages = 8,
    /// JSON of [`crate::Taken`].
    Taken = 9,
}

impl Kind {
    /// Most bytes that the content of a chunk of this kind may have, decompressed. A reader compares the
    /// header's claim with it before it allocates memory.
    pub(crate) fn longest(self) -> usize {
        match self {
            // They hold a program's arguments and environment, and the names of all its marks.
            Kind::Header | Kind::End => MAX_RAW,
            Kind::Stream => MAX_EVENTS,
            Kind::Piece => MAX_PIECE,
            Kind::Module | Kind::Begin | Kind::Summary | Kind::Taken => MAX_DESCRIPTION,
            // A page of 4096 bytes has a name of 16 bytes.
            Kind::Pages => MAX_MODULE as usize / 256,
        }
    }
}

/// How a payload is stored.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// The payload itself.
    Plain = 0,
    /// One zstd frame.
    Zstd = 1,
    /// The XXH3-64 of the content in 8 bytes, the length of a frame of [`crate::repeat`] in 4, and that frame as one zstd frame. Only
    /// for events.
    Copies = 2,
}

/// The header of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// What the chunk holds.
    pub kind: Kind,
    /// How the payload is stored.
    pub codec: Codec,
    /// [`FLAG_KEY_FRAME`] or 0.
    pub flags: u16,
    /// Stream of a [`Kind::Stream`], [`Kind::Begin`] or [`Kind::End`]. Otherwise 0.
    pub stream: u32,
    /// Number of this chunk in its stream, or among the chunks of its kind, from 0. [`Kind::End`]: the number
    /// of the stream's chunks of events.
    pub sequence: u32,
    /// Number of events in a [`Kind::Stream`]. Otherwise 0.
    pub events: u32,
    /// Position of the first event. [`Kind::Piece`]: offset in the module, in bytes.
    pub first_pos: u64,
    /// Position of the last event. [`Kind::Piece`]: length of the module, in bytes.
    pub last_pos: u64,
    /// Length of the payload in the file, in bytes.
    pub stored_len: u32,
    /// Length of the payload after decompression, in bytes.
    pub raw_len: u32,
    /// XXH3-64 of the payload as it is stored.
    pub checksum: u64,
}

impl ChunkHeader {
    /// The header of a chunk of this kind without a payload: all numbers are 0.
    pub fn blank(kind: Kind) -> ChunkHeader {
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

    /// The header as it is stored.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..7].copy_from_slice(&MAGIC);
        b[7] = VERSION;
        b[8] = self.kind as u8;
        b[9] = self.codec as u8;
        b[10..12].copy_from_slice(&self.flags.to_le_bytes());
        b[12..16].copy_from_slice(&self.stream.to_le_bytes());
        b[16..20].copy_from_slice(&self.sequence.to_le_bytes());
        b[20..24].copy_from_slice(&self.events.to_le_bytes());
        b[24..32].copy_from_slice(&self.first_pos.to_le_bytes());
        b[32..40].copy_from_slice(&self.last_pos.to_le_bytes());
        b[40..44].copy_from_slice(&self.stored_len.to_le_bytes());
        b[44..48].copy_from_slice(&self.raw_len.to_le_bytes());
        b[48..56].copy_from_slice(&self.checksum.to_le_bytes());
        // Bytes 56 to 59 are zero. A later version may use them for what older readers can ignore.
        let crc = crc32fast::hash(&b[..60]);
        b[60..].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Reads a header that was found at `offset` of a file.
    ///
    /// # Errors
    /// `b` is not a chunk header, is damaged, or has another version of the format.
    pub fn from_bytes(b: &[u8; HEADER_LEN], offset: u64) -> Result<ChunkHeader, Error> {
        let damaged = |what| Error::Damaged { offset, what };
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u32_at(i) as u64 | (u32_at(i + 4) as u64) << 32;
        if b[..7] != MAGIC {
            return Err(if offset == 0 {
                Error::NotATrace
            } else {
                damaged("no chunk begins here")
            });
        }
        // This comes before the checksum: another version may lay out the rest differently.
        if !(OLDEST..=VERSION).contains(&b[7]) && offset == 0 {
            return Err(Error::Version { found: b[7] });
        }
        if crc32fast::hash(&b[..60]) != u32_at(60) {
            return Err(damaged("the checksum of a chunk header is wrong"));
        }
        let kind = match b[8] {
            1 => Kind::Header,
            2 => Kind::Stream,
            3 => Kind::Module,
            4 => Kind::Piece,
            5 => Kind::Summary,
            6 => Kind::Begin,
            7 => Kind::End,
            8 => Kind::Pages,
            9 => Kind::Taken,
            _ => return Err(damaged("a chunk is of an unknown kind")),
        };
        let codec = match b[9] {
            0 => Codec::Plain,
            1 => Codec::Zstd,
            2 if kind == Kind::Stream => Codec::Copies,
            _ => return Err(damaged("a chunk is compressed in an unknown way")),
        };
        let h = ChunkHeader {
            kind,
            codec,
            flags: u16::from_le_bytes([b[10], b[11]]),
            stream: u32_at(12),
            sequence: u32_at(16),
            events: u32_at(20),
            first_pos: u64_at(24),
            last_pos: u64_at(32),
            stored_len: u32_at(40),
            raw_len: u32_at(44),
            checksum: u64_at(48),
        };
        let longest = kind.longest();
        if h.stored_len as usize > longest || h.raw_len as usize > longest {
            return Err(damaged("a chunk is longer than any chunk can be"));
        }
        Ok(h)
    }
}

/// Checks and decompresses `stored`, the payload of the chunk `h` at `offset`.
///
/// # Errors
/// The checksum, the compression or the length is wrong.
pub fn unpack(h: &ChunkHeader, offset: u64, stored: Vec<u8>) -> Result<Vec<u8>, Error> {
    let damaged = |what| Error::Damaged { offset, what };
    if xxh3_64(&stored) != h.checksum {
        return Err(damaged("the checksum of a chunk's content is wrong"));
    }
    let raw = match h.codec {
        Codec::Plain => stored,
        Codec::Zstd => hindsight_compress::unpack(&stored, h.raw_len as usize)
            .map_err(|_| damaged("a chunk cannot be decompressed"))?,
        Codec::Copies => return Err(damaged("a chunk refers to others where there are none")),
    };
    if raw.len() != h.raw_len as usize {
        return Err(damaged("a chunk does not have the length that it states"));
    }
    Ok(raw)
}

/// Checks and decompresses `stored`, the payload of the chunk `h` at `offset`, which refers to others. The number is the XXH3-64 of
/// what it says with these.
///
/// # Errors
/// The checksum, the compression or the frame is wrong.
pub(crate) fn frame(h: &ChunkHeader, offset: u64, stored: &[u8]) -> Result<(Frame, u64), Error> {
    let damaged = |what| Error::Damaged { offset, what };
    if xxh3_64(stored) != h.checksum {
        return Err(damaged("the checksum of a chunk's content is wrong"));
    }
    let read = || {
        let (sum, rest) = stored.split_first_chunk()?;
        let (len, packed) = rest.split_first_chunk()?;
        let len = u32::from_le_bytes(*len) as usize;
        // Its lists are shorter than what they save.
        if len > h.kind.longest() {
            return None;
        }
        let bytes = hindsight_compress::unpack(packed, len).ok()?;
        let frame = (bytes.len() == len).then(|| Frame::read(bytes, h.raw_len as usize))??;
        Some((frame, u64::from_le_bytes(*sum)))
    };
    read().ok_or(damaged(
        "what a chunk copies is not described as it has to be",
    ))
}
