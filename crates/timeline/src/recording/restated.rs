//! What memory held at a key frame that restates it. Only the chunks that say it are read.

use super::Recording;
use crate::model::error::replay;
use crate::scan::{Held, RestatingFrame};
use crate::{Error, Result, ThreadId};
use hindsight_events::{Decoder, Event};

impl Recording {
    /// Whether a key frame says what the byte at `address` held, and up to which address that is the same.
    pub fn restates(
        &self,
        t: ThreadId,
        frame: &RestatingFrame,
        address: u64,
    ) -> Result<(Held, u64)> {
        let cell = address as u32 as u64;
        let (held, end) = self.scan(t)?.frames.held(frame, cell..1 << 32);
        Ok((held, address.saturating_add(end - cell)))
    }

    /// Copies what memory held at a key frame. All of it must be known, see [`Recording::restates`].
    pub fn restated(
        &self,
        t: ThreadId,
        frame: &RestatingFrame,
        address: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = address.wrapping_add(done as u64);
            let (held, end) = self.restates(t, frame, at)?;
            let n = ((end - at) as usize).clamp(1, buf.len() - done);
            let out = &mut buf[done..done + n];
            match held {
                Held::Zeros => out.fill(0),
                Held::Chunk(chunk) => self.memory_in(t, chunk, at as u32 as u64, out)?,
                Held::File { module, offset } => {
                    let bytes = self.trace.module_part(module, offset, n)?;
                    out.fill(0);
                    out[..bytes.len()].copy_from_slice(&bytes);
                }
                Held::Unknown => return Err(self.says_not(t, frame.chunk)),
            }
            done += n;
        }
        Ok(())
    }

    /// Copies what the memory events of a chunk say of some cells.
    fn memory_in(&self, t: ThreadId, chunk: usize, cell: u64, out: &mut [u8]) -> Result<()> {
        let wire = self.chunk(t, chunk).map_err(|e| replay(t, e))?;
        let wire = wire.unwrap_or_default();
        let (mut decoder, mut at) = (Decoder::default(), 0);
        let end = cell + out.len() as u64;
        let mut missing = vec![true; out.len()];
        while let Some((_, event, n)) = decoder.decode(&wire[at..]) {
            at += n;
            let Event::Memory { addr, bytes } = event else {
                continue;
            };
            let first = addr as u32 as u64;
            let (from, to) = (cell.max(first), end.min(first + bytes.len() as u64));
            if from < to {
                let part = &bytes[(from - first) as usize..(to - first) as usize];
                let its = (from - cell) as usize..(to - cell) as usize;
                out[its.clone()].copy_from_slice(part);
                missing[its].fill(false);
                if !missing.contains(&true) {
                    return Ok(());
                }
            }
        }
        Err(self.says_not(t, chunk))
    }

    /// The error for a chunk that does not say what it said when it was scanned: somebody changed the file.
    fn says_not(&self, t: ThreadId, chunk: usize) -> Error {
        let chunks = self.trace.chunks(t.0);
        Error::Trace(hindsight_trace::Error::Damaged {
            offset: chunks.get(chunk).map_or(0, |c| c.offset),
            what: "it does not say what memory held",
        })
    }
}
