//! Writes the beginning of a record while the rest of it is made.

use super::super::part::Encoded;
use super::file::{self, Contents, HEADER, Key, RECORD, Record};
use hindsight_guard::{outside, place, private};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Sections of a record, in a file that has no name yet. If it is not finished, nothing of it stays, however it ends.
/// At the end the file takes the place of the index.
pub struct Stream {
    pub(super) file: File,
    /// Where the next section goes.
    at: u64,
    sections: usize,
    /// A write failed: the file is of no use.
    failed: bool,
}

/// The stream writes the first record of its file.
const FIRST: u64 = HEADER + RECORD;

impl Stream {
    /// Begins a stream for the index at a path. `None`: the file system has no files without a name.
    pub(super) fn begin(path: &Path) -> Option<Stream> {
        Some(Stream {
            file: private::create_unnamed(private::folder_of(path)).ok()?,
            at: FIRST,
            sections: 0,
            failed: false,
        })
    }

    /// Writes the next section. If that fails, the whole part is written again at the end. That attempt tells the
    /// reason.
    pub fn put(&mut self, section: &[u8]) {
        if !self.failed {
            self.failed = place::write(&self.file, section, self.at).is_err();
            self.at += section.len() as u64;
            self.sections += 1;
        }
    }

    /// Forgets all sections: others take their place.
    pub fn again(&mut self) {
        (self.at, self.sections) = (FIRST, 0);
        self.failed |= self.file.set_len(0).is_err();
    }

    /// Whether the stream has the first sections of this part.
    pub(super) fn begins(&self, what: &Encoded) -> bool {
        let some = what.1.get(..self.sections).unwrap_or_default();
        let len: u64 = some.iter().map(|s| s.len() as u64).sum();
        !self.failed && self.sections > 0 && FIRST + len == self.at
    }

    /// Writes the rest of the record, and makes the file an index with this record. Calling it twice does no harm.
    pub(super) fn finish(
        &mut self,
        identity: u128,
        key: Key,
        what: &Encoded,
    ) -> io::Result<Contents> {
        for s in &what.1[self.sections..] {
            place::write(&self.file, s, self.at)?;
            self.at += s.len() as u64;
            self.sections += 1;
        }
        place::write(&self.file, &what.0, self.at)?;
        let end = self.at + what.0.len() as u64;
        let record = Record {
            at: FIRST,
            len: end - FIRST,
            directory: what.0.len() as u64,
            sum: xxh3_64(&what.0),
        };
        record.check()?;
        place::write(&self.file, &file::head(key, &record), HEADER)?;
        place::write(&self.file, &file::header(identity), 0)?;
        Ok(Contents {
            records: [(key, record)].into(),
            end,
        })
    }

    /// Puts the file at a path where there is none. Nobody else writes it as long as it is open.
    pub(super) fn become_first(&self, path: &Path) -> io::Result<()> {
        self.file.try_lock().map_err(|_| ErrorKind::ResourceBusy)?;
        outside::link(&self.file, path)
    }

    /// Lets it replace the file at a path. Only the caller may write that path. Nobody else writes this file as long as
    /// it is open.
    pub(super) fn take_place(&self, path: &Path) -> io::Result<()> {
        let temporary = private::temporary(path);
        // Somebody who was killed may have left it.
        let _ = outside::remove(&temporary);
        self.file.try_lock().map_err(|_| ErrorKind::ResourceBusy)?;
        outside::link(&self.file, &temporary)?;
        outside::rename(&temporary, path).inspect_err(|_| {
            let _ = outside::remove(&temporary);
        })
    }
}
