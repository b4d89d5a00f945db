//! Gives a machine the stream of a thread.

use super::Recording;
use crate::ThreadId;
use hindsight_replay::{Source, chain};
use std::sync::Arc;

/// The chunks of a stream, from one of them on.
pub struct Chunks {
    recording: Arc<Recording>,
    thread: ThreadId,
    first: usize,
    next: usize,
}

impl Chunks {
    pub fn new(recording: &Arc<Recording>, thread: ThreadId, next: usize) -> Chunks {
        Chunks {
            recording: Arc::clone(recording),
            thread,
            first: next,
            next,
        }
    }
}

impl Source for Chunks {
    fn next_chunk(&mut self) -> std::result::Result<Option<Arc<Vec<u8>>>, hindsight_replay::Error> {
        let wire = self.recording.chunk(self.thread, self.next)?;
        self.next += 1;
        Ok(wire)
    }

    fn below(
        &self,
        back: u64,
        lay: &mut chain::Lay,
    ) -> std::result::Result<(), hindsight_replay::Error> {
        let chunks = self.recording.trace.chunks(self.thread.0);
        // They are not kept: nobody reads them again soon.
        let mut load = |i: usize| {
            let wire = chunks
                .get(i)
                .map(|c| self.recording.trace.load(c))
                .transpose()?;
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

    fn module(
        &self,
        module: u32,
        offset: u64,
        len: usize,
    ) -> std::result::Result<Vec<u8>, hindsight_replay::Error> {
        Ok(self.recording.trace.module_part(module, offset, len)?)
    }
}
