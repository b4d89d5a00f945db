//! The little that a list of recordings shows of each.

use super::{Bytes, Completeness, Trace};
use crate::chunk::{ChunkHeader, HEADER_LEN, Kind, MAGIC};
use crate::{Error, Header, Summary, files};
use hindsight_guard::outside;
use std::path::Path;

/// Chunks whose headers are read: those of all recordings but very long ones.
const CHUNKS: usize = 1 << 16;

/// What descriptions may take of memory.
const ROOM: u64 = 16 << 20;

/// Where the summary is looked for, from the end of the file on.
const TAIL: u64 = 64 << 10;

/// What a recording is, as far as that is quickly known.
pub struct Brief {
    pub header: Header,
    /// Counts made at the end of the recording, if it was finished.
    pub summary: Option<Summary>,
    pub completeness: Completeness,
    /// Bytes of the files beside the trace that it refers to, or what is wrong with one of them.
    pub shared: Result<u64, Error>,
}

impl Trace {
    /// Reads of a trace file what a list of many shows, in bounded time: of a very long one only its beginning and its
    /// end.
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
