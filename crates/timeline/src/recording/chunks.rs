//! Gives a machine the stream of a thread.

use super::Recording;
use crate::ThreadId;
use hindsight_replay::Source;
use std::sync::Arc;

/// The chunks of a stream, from one of them on.
pub struct Chunks {
    recording: Arc<Recording>,
    thread: ThreadId,
    next: usize,
}

impl Chunks {
    pub fn new(recording: &Arc<Recording>, thread: ThreadId, next: usize) -> Chunks {
        Chunks {
            recording: Arc::clone(recording),
            thread,
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

    fn module(
        &self,
        module: u32,
        offset: u64,
        len: usize,
    ) -> std::result::Result<Vec<u8>, hindsight_replay::Error> {
        Ok(self.recording.trace.module_part(module, offset, len)?)
    }
}
