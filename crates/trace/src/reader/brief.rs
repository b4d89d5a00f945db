//! The facts about a recording that a list of recordings shows.

use super::{Bytes, Completeness, Trace};
use crate::chunk::{ChunkHeader, HEADER_LEN, Kind, MAGIC};
use crate::{Error, Header, Summary, files};
use hindsight_guard::outside;
use std::path::Path;

/// How many chunk headers are read. Only very long recordings have more.
const CHUNKS: usize = 1 << 16;

/// How much memory descriptions may take, in bytes.
const ROOM: u64 = 16 << 20;

/// How many bytes at the end of the file are searched for the summary.
const TAIL: u64 = 64 << 10;

/// What is quickly known of a recording.
pub struct Brief {
    /// What was recorded, and how.
    pub header: Header,
    /// Counts from the end of the recording. `None` if it was not finished.
    pub summary: Option<Summary>,
    /// Whether the trace has all of its recording. A very long trace is [`Completeness::Unfinished`] if its
    /// last chunk is not a summary.
    pub completeness: Completeness,
    /// Bytes of the files beside the trace to which it refers, or what is wrong with one of them.
    pub shared: Result<u64, Error>,
}

impl Trace {
    /// Reads what a list shows of a trace file, in bounded time. Of a very long trace it reads only the
    /// beginning and the end.
    ///
    /// # Errors
    /// As for [`Trace::open`].
    pub fn brief(path: impl AsRef<Path>) -> Result<Brief, Error> {
        let path = path.as_ref();
        let file = outside::open(path)?;
        let (mut t, all) = Trace::scan_some(Bytes::File(file), CHUNKS, ROOM)?;
        if all {
            t.contents.folder = files::beside(path);
            let shared = t.shared_bytes();
            return Ok(Brief {
                header: t.header,
                summary: t.summary,
                completeness: t.completeness,
                shared,
            });
        }
        let summary = t.last();
        Ok(Brief {
            completeness: match &summary {
                Some(_) => Completeness::Complete,
                None if t.growing => Completeness::Growing,
                None => Completeness::Unfinished,
            },
            shared: Ok(summary.as_ref().map_or(0, |s| s.shared_bytes)),
            header: t.header,
            summary,
        })
    }

    /// The summary, if it is the last chunk of the file.
    fn last(&self) -> Option<Summary> {
        let from = self.len.saturating_sub(TAIL);
        let mut tail = vec![0; (self.len - from) as usize];
        self.bytes.read(from, &mut tail).ok()?;
        let begins = |at: &usize| tail[*at..].starts_with(&MAGIC);
        let mut places = (0..tail.len().saturating_sub(HEADER_LEN))
            .rev()
            .filter(begins);
        places.find_map(|at| {
            let offset = from + at as u64;
            let h = ChunkHeader::from_bytes(tail[at..].first_chunk()?, offset).ok()?;
            let last = at + HEADER_LEN + h.stored_len as usize == tail.len();
            (h.kind == Kind::Summary && last)
                .then(|| self.json(offset, &h).ok())
                .flatten()
        })
    }
}
