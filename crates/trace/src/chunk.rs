//! The frame around everything in a trace file.

use crate::Error;
use xxhash_rust::xxh3::xxh3_64;

/// Version of the format. Raise it with every change that an older reader would misread.
pub const VERSION: u8 = 7;

/// The first version that is read: nothing in it means anything else by now.
pub const OLDEST: u8 = 6;

/// First bytes of each chunk, followed by the version.
pub const MAGIC: [u8; 7] = *b"HSTRACE";

/// Bytes of a chunk's header.
pub const HEADER_LEN: usize = 64;

/// Longest payload, stored or decompressed.
pub const MAX_RAW: usize = 64 << 20;

/// Longest content of a chunk of events, decompressed: a chunk ends when it has
/// [`CHUNK_BYTES`](crate::columns::CHUNK_BYTES), so this is far more than any has.
const MAX_EVENTS: usize = 8 << 20;

/// Longest piece of a module: four times what is written.
const MAX_PIECE: usize = 4 << 20;

/// Longest description of a stream, of a module, or of the end of a recording, each of which holds a few paths or
/// arguments.
const MAX_DESCRIPTION: usize = 1 << 20;

/// Longest module whose content is in a trace.
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
    /// JSON of [`crate::ModuleInfo`].
    Module = 3,
    /// Part of the content of the module whose description came last.
    Piece = 4,
    /// JSON of [`crate::Summary`]; the last chunk of a recording that was finished.
    Summary = 5,
    /// JSON of [`crate::StreamInfo`]; comes before the chunks of its stream.
    Begin = 6,
    /// JSON of [`crate::StreamSummary`]; nothing of its stream follows.
    End = 7,
    /// Names of the pages of a content; only in the files that recordings share.
    Pages = 8,
    /// JSON of [`crate::Taken`].
    Taken = 9,
}

impl Kind {
    /// Bytes that the content of such a chunk may have at most, decompressed. What a header claims is compared with
    /// this before memory is taken for it.
    pub(crate) fn longest(self) -> usize {
        match self {
            // Arguments and environment of a program, and the names of all its marks.
            Kind::Header | Kind::End => MAX_RAW,
            Kind::Stream => MAX_EVENTS,
            Kind::Piece => MAX_PIECE,
            Kind::Module | Kind::Begin | Kind::Summary | Kind::Taken => MAX_DESCRIPTION,
            // 16 bytes for each page of 4096.
            Kind::Pages => MAX_MODULE as usize / 256,
        }
    }
}

/// How a payload is stored.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    Plain = 0,
    /// One zstd frame.
    Zstd = 1,
}

/// The header of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    pub kind: Kind,
    pub codec: Codec,
    pub flags: u16,
    /// Stream of a [`Kind::Stream`], [`Kind::Begin`] or [`Kind::End`]; otherwise 0.
    pub stream: u32,
    /// Number of this chunk among those of its stream (or of its kind), from 0. [`Kind::End`]: how many
    /// chunks of events the stream has.
    pub sequence: u32,
    /// Events in a [`Kind::Stream`]; otherwise 0.
    pub events: u32,
    /// Position of the first event. [`Kind::Piece`]: offset in the module.
    pub first_pos: u64,
    /// Position of the last event. [`Kind::Piece`]: length of the module.
    pub last_pos: u64,
    /// Bytes of the payload in the file.
    pub stored_len: u32,
    /// Bytes of the payload after decompression.
    pub raw_len: u32,
    /// XXH3-64 of the payload as stored.
    pub checksum: u64,
}

impl ChunkHeader {
    /// The header's bytes.
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
        // 56..60 is zero: room for a later use that older readers may ignore.
        let crc = crc32fast::hash(&b[..60]);
        b[60..].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Reads a header found at `offset` of a file.
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
        // Before the checksum: another version may lay out the rest differently.
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

/// Checks and decompresses the payload `stored` of the chunk `h` at `offset`.
pub fn unpack(h: &ChunkHeader, offset: u64, stored: Vec<u8>) -> Result<Vec<u8>, Error> {
    let damaged = |what| Error::Damaged { offset, what };
    if xxh3_64(&stored) != h.checksum {
        return Err(damaged("the checksum of a chunk's content is wrong"));
    }
    let raw = match h.codec {
        Codec::Plain => stored,
        // A single call into a buffer of the stated size: no window is allocated.
        Codec::Zstd => zstd::bulk::decompress(&stored, h.raw_len as usize)
            .map_err(|_| damaged("a chunk cannot be decompressed"))?,
    };
    if raw.len() != h.raw_len as usize {
        return Err(damaged("a chunk has not the length it states"));
    }
    Ok(raw)
}
