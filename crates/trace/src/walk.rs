//! Walks through the chunks of a file.

use crate::Error;
use crate::chunk::{self, ChunkHeader, HEADER_LEN};
use hindsight_guard::place;
use std::fs::File;

/// The chunks of a file with their offsets. The walk ends at the file's end, at a cut, or with the error of
/// the first damaged chunk.
pub struct Walk<'f> {
    file: &'f File,
    at: u64,
    len: u64,
}

impl<'f> Walk<'f> {
    pub fn new(file: &'f File) -> Result<Walk<'f>, Error> {
        let len = file.metadata()?.len();
        Ok(Walk { file, at: 0, len })
    }

    /// Whether the file ends where the last chunk ends.
    pub fn is_whole(&self) -> bool {
        self.at == self.len
    }

    fn step(&mut self) -> Result<Option<(u64, ChunkHeader)>, Error> {
        let (offset, left) = (self.at, self.len - self.at);
        if left < HEADER_LEN as u64 {
            return Ok(None);
        }
        let mut b = [0; HEADER_LEN];
        place::read(self.file, &mut b, offset)?;
        let h = ChunkHeader::from_bytes(&b, offset)?;
        let stored = HEADER_LEN as u64 + h.stored_len as u64;
        if stored > left {
            return Ok(None);
        }
        self.at += stored;
        Ok(Some((offset, h)))
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<(u64, ChunkHeader), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

/// The stored payload of the chunk `h` at `offset`.
pub fn stored(file: &File, offset: u64, h: &ChunkHeader) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; h.stored_len as usize];
    place::read(file, &mut bytes, offset + HEADER_LEN as u64)?;
    Ok(bytes)
}

/// The payload, checked and decompressed.
pub fn payload(file: &File, offset: u64, h: &ChunkHeader) -> Result<Vec<u8>, Error> {
    chunk::unpack(h, offset, stored(file, offset, h)?)
}

/// The description in the chunk `h` at `offset`.
pub fn json<T: serde::de::DeserializeOwned>(
    file: &File,
    offset: u64,
    h: &ChunkHeader,
) -> Result<T, Error> {
    parse(&payload(file, offset, h)?, offset)
}

/// Parses the description in the chunk at `offset`.
pub fn parse<T: serde::de::DeserializeOwned>(raw: &[u8], offset: u64) -> Result<T, Error> {
    serde_json::from_slice(raw).map_err(|_| Error::Damaged {
        offset,
        what: "a description (JSON) cannot be understood",
    })
}
