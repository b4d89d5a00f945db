//! The events of a stream of a trace, or of a part of it.

use crate::queue::Source;
use crate::{Error, chain};
use hindsight_events::{Decoder, Event};
use hindsight_trace::{ChunkMeta, StreamId, Trace};
use std::ops::Range;
use std::sync::Arc;

struct Chunks<'a> {
    trace: &'a Trace,
    stream: StreamId,
    /// Number of the part's first chunk.
    first: usize,
    /// The chunks from the part's first one to the stream's last one.
    rest: std::slice::Iter<'a, ChunkMeta>,
    /// How many chunks belong to the part. Behind them only the next key frame is compared, and the memory
    /// that it restates.
    own: usize,
    /// The last chunk belongs to the next part.
    borrowed: bool,
    follows: Follows,
}

/// What is used of the part that follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    Frame,
    Restated,
    Nothing,
}

impl Source for Chunks<'_> {
    fn next_chunk(&mut self) -> Result<Option<Arc<Vec<u8>>>, Error> {
        if self.own == 0 && self.follows == Follows::Nothing {
            return Ok(None);
        }
        let Some(c) = self.rest.next() else {
            return Ok(None);
        };
        let mut wire = self.trace.load(c)?;
        self.borrowed = self.own == 0;
        match self.own {
            0 => self.cut(&mut wire),
            _ => self.own -= 1,
        }
        Ok(Some(Arc::new(wire)))
    }

    fn is_borrowed(&self) -> bool {
        self.borrowed
    }

    fn below(&self, back: u64, lay: &mut chain::Lay) -> Result<(), Error> {
        let chunks = self.trace.chunks(self.stream);
        let mut load = |i: usize| {
            let wire = chunks.get(i).map(|c| self.trace.load(c)).transpose()?;
            Ok(wire.map(Arc::new))
        };
        chain::below(
            &|i| chain::look(chunks, i),
            self.first,
            back,
            &mut load,
            lay,
        )
    }

    fn module(&self, module: u32, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        Ok(self.trace.module_part(module, offset, len)?)
    }
}

impl Chunks<'_> {
    /// Cuts a chunk of the part that follows to what is used of it.
    fn cut(&mut self, wire: &mut Vec<u8>) {
        let (mut decoder, mut at) = (Decoder::default(), 0);
        while let Some((_, event, n)) = decoder.decode(&wire[at..]) {
            let follows = match (event, self.follows) {
                (Event::KeyFrame { .. }, Follows::Frame) => Follows::Frame,
                (Event::Time { .. }, now) => now,
                (Event::Restate { ends, .. }, _) if !ends => Follows::Restated,
                (Event::Restate { .. }, Follows::Restated) => Follows::Nothing,
                (_, Follows::Restated) => Follows::Restated,
                _ => {
                    self.follows = Follows::Nothing;
                    break;
                }
            };
            self.follows = follows;
            at += n;
            if follows == Follows::Nothing {
                break;
            }
        }
        wire.truncate(at);
    }
}

/// All events of a stream, from its first key frame on.
pub fn stream(trace: &Trace, stream: StreamId) -> Box<dyn Source + '_> {
    excerpt(trace, stream, 0..trace.chunks(stream).len(), false)
}

/// The events in these chunks of a stream. With `frame_follows`, includes the key frame with which the next
/// chunk begins, and the memory that it restates. They are compared.
pub fn excerpt(
    trace: &Trace,
    stream: StreamId,
    chunks: Range<usize>,
    frame_follows: bool,
) -> Box<dyn Source + '_> {
    Box::new(Chunks {
        trace,
        stream,
        first: chunks.start,
        rest: trace.chunks(stream)[chunks.start..].iter(),
        own: chunks.len(),
        borrowed: false,
        follows: match frame_follows {
            true => Follows::Frame,
            false => Follows::Nothing,
        },
    })
}
