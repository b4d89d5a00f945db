//! Chunks that refer to others: see [`crate::repeat`].

use super::Trace;
use crate::Error;
use crate::chunk::{self, ChunkHeader, Codec};
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that are kept of the chunks to which others referred last. A thread goes through the data in the order in which another
/// one did, so its next chunk refers to the same one or the next.
const KEPT: usize = 16 << 20;

/// And no more chunks than these: they are looked for one after the other.
const CHUNKS: usize = 64;

/// Own bytes of chunks, by their places in the file. Those that were used last are at the end.
#[derive(Default)]
pub struct Kept(Mutex<Vec<(u64, Arc<Vec<u8>>)>>);

impl Kept {
    fn get(&self, offset: u64) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let i = kept.iter().position(|k| k.0 == offset)?;
        let used = kept.remove(i);
        let bytes = used.1.clone();
        kept.push(used);
        Some(bytes)
    }

    fn keep(&self, offset: u64, bytes: &Arc<Vec<u8>>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|k| k.0 != offset);
        kept.push((offset, bytes.clone()));
        let mut all: usize = kept.iter().map(|k| k.1.capacity()).sum();
        while all > KEPT || kept.len() > CHUNKS {
            all -= kept.remove(0).1.capacity();
        }
    }
}

/// The content of the chunk `h` at `offset`, which refers to others.
///
/// # Errors
/// It cannot be read or is damaged, or one of the others.
pub fn content(
    trace: &Trace,
    offset: u64,
    h: &ChunkHeader,
    stored: &[u8],
) -> Result<Vec<u8>, Error> {
    let damaged = |what| Error::Damaged { offset, what };
    let (frame, sum) = chunk::frame(h, offset, stored)?;
    let source = |(stream, sequence): (u32, u32)| {
        let chunk = trace.chunks(stream).get(sequence as usize);
        // Only what was written before can have been copied. So there is no circle.
        let chunk = chunk.filter(|c| c.offset < offset);
        let chunk = chunk.ok_or(damaged("a chunk copies from one that is not there"))?;
        own(trace, chunk.offset, &chunk.header)
    };
    let content = frame.content(h.raw_len as usize, source)?;
    let content = content.ok_or(damaged("a chunk copies what is not there"))?;
    match xxh3_64(&content) == sum {
        true => Ok(content),
        false => Err(damaged("a chunk copies something else than it did")),
    }
}

/// The bytes that a chunk has itself.
fn own(trace: &Trace, offset: u64, h: &ChunkHeader) -> Result<Arc<Vec<u8>>, Error> {
    if let Some(bytes) = trace.copied.get(offset) {
        return Ok(bytes);
    }
    let stored = trace.stored_at(offset, h)?;
    let bytes = Arc::new(match h.codec {
        Codec::Copies => chunk::frame(h, offset, &stored)?.0.into_own(),
        _ => chunk::unpack(h, offset, stored)?,
    });
    trace.copied.keep(offset, &bytes);
    Ok(bytes)
}
