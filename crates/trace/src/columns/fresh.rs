//! Memory that a program has got and not written yet. A chunk has the key of its bytes ([`Event::Fresh`]); who reads the chunk
//! gets the bytes.

use super::{CHUNK_BYTES, ChunkBuilder, put};
use hindsight_events::event::{MAX_BYTES, tag};
use hindsight_events::varint::get;
use hindsight_events::{Decoder, Event, fresh};

/// The most bytes that a chunk may have of such memory: its writer counts them for the chunk's size.
const MOST: usize = CHUNK_BYTES + MAX_BYTES;

impl ChunkBuilder {
    /// Takes a [`Event::Fresh`]. Who reads it has all its bytes, so they count for the size of the chunk.
    pub(super) fn fresh(&mut self, b: &[u8]) -> Option<usize> {
        let (_, event, _) = Decoder::default().decode(b)?;
        let Event::Fresh { len, .. } = event else {
            return None;
        };
        let end = self.integers(tag::FRESH, b, 3)?;
        self.taken += len as usize;
        Some(end)
    }
}

/// What a reader of a chunk gets for an event with this tag.
pub(super) fn read_as(t: u8) -> u8 {
    match t {
        tag::FRESH => tag::MEMORY,
        t => t,
    }
}

/// Such bytes of a chunk that is read.
#[derive(Default)]
pub(super) struct Filled(usize);

impl Filled {
    /// Appends the payload of an event 22 in place of that of an event 34, whose integers begin at `ints[at]`. Returns where
    /// they end. `None`: there is no such event, or the chunk has too much of this memory.
    pub(super) fn append(&mut self, ints: &[u8], at: usize, out: &mut Vec<u8>) -> Option<usize> {
        let (_, behind) = get(ints, at)?;
        let (len, next) = get(ints, behind)?;
        let (key, end) = get(ints, next)?;
        let len = usize::try_from(len).ok().filter(|n| *n <= MAX_BYTES)?;
        self.0 += len;
        if self.0 > MOST {
            return None;
        }
        out.extend_from_slice(&ints[at..behind]);
        put(out, len as u64);
        out.extend_from_slice(fresh::bytes(key, len, &mut [0; MAX_BYTES]));
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_no_more_than_it_may() {
        let piece = |len: u64| {
            let mut ints = Vec::new();
            [0x1000, len, 7].into_iter().for_each(|v| put(&mut ints, v));
            ints
        };
        let (whole, longer) = (piece(MAX_BYTES as u64), piece(MAX_BYTES as u64 + 1));
        let (mut filled, mut out) = (Filled::default(), Vec::new());
        assert_eq!(filled.append(&longer, 0, &mut out), None);
        for _ in 0..MOST / MAX_BYTES {
            assert_eq!(filled.append(&whole, 0, &mut out), Some(whole.len()));
        }
        assert_eq!(filled.append(&whole, 0, &mut out), None);
        assert_eq!(filled.append(&whole[..3], 0, &mut out), None);
    }
}
