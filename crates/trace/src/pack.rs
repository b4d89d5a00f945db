//! Makes chunks from contents.

use crate::chunk::{ChunkHeader, Codec, FLAG_KEY_FRAME, Kind};
use crate::columns::{ChunkBuilder, Content};
use crate::repeat::Repeats;
use hindsight_compress::Compressor;
use std::io;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a module in one chunk.
const PIECE: usize = 1 << 20;

/// Shorter content is stored uncompressed: a recording can have thousands of short chunks.
const WORTH_PACKING: usize = 256;

/// Compresses, and reuses its buffers.
pub struct Packer {
    zstd: Compressor,
    packed: Vec<u8>,
    content: Content,
}

impl Packer {
    pub fn new() -> io::Result<Packer> {
        Ok(Packer {
            zstd: Compressor::new(1)?,
            packed: Vec::new(),
            content: Content::default(),
        })
    }

    /// Packs `raw` as a chunk and hands its header and payload to `to`.
    pub fn chunk<T>(
        &mut self,
        mut h: ChunkHeader,
        raw: &[u8],
        to: impl FnOnce(ChunkHeader, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        if raw.len() > h.kind.longest() {
            return Err(io::Error::other("a chunk of the trace would be too long"));
        }
        self.packed.clear();
        if raw.len() >= WORTH_PACKING {
            self.zstd.append(raw, &mut self.packed)?;
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
        to(h, stored)
    }

    /// Packs a chunk with this content as a frame that refers to others.
    fn frame<T>(
        &mut self,
        mut h: ChunkHeader,
        raw: &[u8],
        frame: &[u8],
        to: impl FnOnce(ChunkHeader, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        self.packed.clear();
        // The checksum in the header is that of the frame. This one is also that of what it copies.
        self.packed.extend_from_slice(&xxh3_64(raw).to_le_bytes());
        self.packed
            .extend_from_slice(&(frame.len() as u32).to_le_bytes());
        self.zstd.append(frame, &mut self.packed)?;
        h.codec = Codec::Copies;
        h.stored_len = self.packed.len() as u32;
        h.raw_len = raw.len() as u32;
        h.checksum = xxh3_64(&self.packed);
        to(h, &self.packed)
    }

    /// The same for the events that `b` has gathered of `stream`, as chunk number `sequence`. With `repeats` it may refer to
    /// chunks that were packed before.
    pub fn events<T>(
        &mut self,
        stream: u32,
        sequence: u32,
        b: &mut ChunkBuilder,
        repeats: Option<&mut Repeats>,
        to: impl FnOnce(ChunkHeader, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut content = std::mem::take(&mut self.content);
        b.take(&mut content);
        let header = ChunkHeader {
            flags: if content.keyframe { FLAG_KEY_FRAME } else { 0 },
            stream,
            sequence,
            events: content.events,
            first_pos: content.first_pos,
            last_pos: content.last_pos,
            ..ChunkHeader::blank(Kind::Stream)
        };
        let found = repeats.as_ref().map(|r| r.find(&content));
        let result = match found.as_ref().and_then(|f| f.frame.as_ref()) {
            Some(frame) => self.frame(header, &content.raw, frame, to),
            None => self.chunk(header, &content.raw, to),
        };
        if let (Some(repeats), Some(found), Ok(_)) = (repeats, &found, &result) {
            repeats.written((stream, sequence), found);
        }
        self.content = content;
        result
    }
}

/// The content of a module in parts, with the headers of their chunks.
pub fn pieces(content: &[u8]) -> impl Iterator<Item = (ChunkHeader, &[u8])> {
    content.chunks(PIECE).enumerate().map(|(i, piece)| {
        let header = ChunkHeader {
            sequence: i as u32,
            first_pos: (i * PIECE) as u64,
            last_pos: content.len() as u64,
            ..ChunkHeader::blank(Kind::Piece)
        };
        (header, piece)
    })
}
