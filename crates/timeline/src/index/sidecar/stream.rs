//! Writes the beginning of a record while the rest of it is made.

use super::super::stored::{Encoded, InFile, Scratch, Stored};
use super::file::{self, Contents, HEADER, Key, RECORD, Record};
use crate::Result;
use hindsight_guard::{outside, place, private};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Sections of a record, in a file that has no name yet. They are read from there while the part is made. If it is not
/// finished, nothing of it stays, however it ends. At the end the file takes the place of the index.
pub struct Stream {
    pub(super) file: Arc<File>,
    /// The folder of the index.
    folder: PathBuf,
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
        Stream::within(private::folder_of(path))
    }

    fn within(folder: &Path) -> Option<Stream> {
        Some(Stream {
            file: Arc::new(private::create_unnamed(folder).ok()?),
            folder: folder.to_path_buf(),
            at: FIRST,
            sections: 0,
            failed: false,
        })
    }

    /// Writes the next section, which is in the file from then on. If that fails, sections stay where they are, and the whole
    /// part is written again at the end. That attempt tells the reason.
    ///
    /// # Errors
    /// A section that was in another file cannot be read.
    pub fn put(&mut self, section: &mut Stored) -> Result<()> {
        if self.failed {
            return Ok(());
        }
        let (mut at, mut sum) = (self.at, Xxh3::new());
        section.each(&mut |some| {
            sum.update(some);
            self.failed |= place::write(&self.file, some, at).is_err();
            at += some.len() as u64;
            Ok(())
        })?;
        if !self.failed {
            *section = Stored::File(InFile {
                file: Arc::clone(&self.file),
                at: self.at,
                len: section.len(),
                sum: sum.digest(),
            });
        }
        self.at = at;
        self.sections += 1;
        Ok(())
    }

    /// A further file without a name. `None`: the file system does not allow it.
    pub fn unnamed(&self) -> Option<File> {
        private::create_unnamed(&self.folder).ok()
    }

    /// A file for what is packed meanwhile. `None`: the file system does not allow it.
    pub fn scratch(&self) -> Option<Scratch> {
        self.unnamed().map(Scratch::new)
    }

    /// Whether all sections were written.
    pub fn is_whole(&self) -> bool {
        !self.failed
    }

    /// One for sections that take the place of these.
    pub fn another(&self) -> Stream {
        Stream::within(&self.folder).unwrap_or(Stream {
            file: Arc::clone(&self.file),
            folder: self.folder.clone(),
            failed: true,
            ..*self
        })
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
            s.write(&self.file, self.at)?;
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
