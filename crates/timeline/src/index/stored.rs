//! Packed bytes of an index in the making. They wait in memory, or in the file that is to become the index.

use crate::{Error, Result};
use hindsight_guard::place;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Where packed bytes are.
#[derive(Clone, Debug)]
pub enum Stored {
    Memory(Arc<[u8]>),
    File(InFile),
    /// One after the other. None of them is itself several.
    Several(Arc<[Stored]>),
}

/// Bytes in a file, with their checksum.
#[derive(Clone, Debug)]
pub struct InFile {
    pub file: Arc<File>,
    pub at: u64,
    pub len: usize,
    pub sum: u64,
}

/// The directory of a part, and the sections. In a file the sections come first.
pub type Encoded = (Vec<u8>, Vec<Stored>);

/// Reads bytes of a file. `None`: they cannot be read, or have another checksum.
pub fn checked(file: &File, at: u64, len: usize, sum: u64) -> Option<Arc<[u8]>> {
    let mut all: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
    place::read(file, Arc::get_mut(&mut all)?, at).ok()?;
    (xxh3_64(&all) == sum).then_some(all)
}

/// A file without a name no longer has what was written to it.
pub fn unreadable() -> Error {
    Error::Unsupported("an unfinished index cannot be read back".into())
}

impl From<Arc<[u8]>> for Stored {
    fn from(all: Arc<[u8]>) -> Stored {
        Stored::Memory(all)
    }
}

impl Stored {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Stored::Memory(all) => all.len(),
            Stored::File(f) => f.len,
            Stored::Several(all) => all.iter().map(Stored::len).sum(),
        }
    }

    /// Their checksum.
    ///
    /// # Errors
    /// See [`Stored::bytes`].
    pub fn sum(&self) -> Result<u64> {
        match self {
            Stored::Memory(all) => Ok(xxh3_64(all)),
            Stored::File(f) => Ok(f.sum),
            Stored::Several(_) => {
                let mut sum = Xxh3::new();
                self.each(&mut |some| {
                    sum.update(some);
                    Ok(())
                })?;
                Ok(sum.digest())
            }
        }
    }

    /// Shows the bytes in order, some at a time.
    ///
    /// # Errors
    /// See [`Stored::bytes`], or `show` fails.
    pub fn each(&self, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match self {
            Stored::Several(all) => all.iter().try_for_each(|s| s.each(show)),
            _ => show(&self.bytes()?),
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// The file does not have them any more: the disk fails, or somebody changed it.
    pub fn bytes(&self) -> Result<Arc<[u8]>> {
        match self {
            Stored::Several(_) => {
                let mut all = Vec::with_capacity(self.len());
                self.each(&mut |some| {
                    all.extend_from_slice(some);
                    Ok(())
                })?;
                Ok(all.into())
            }
            Stored::Memory(all) => Ok(Arc::clone(all)),
            Stored::File(f) => checked(&f.file, f.at, f.len, f.sum).ok_or_else(unreadable),
        }
    }

    /// Writes them to another file.
    pub fn write(&self, file: &File, mut at: u64) -> io::Result<()> {
        let mut failed = Ok(());
        let read = self.each(&mut |some| {
            if failed.is_ok() {
                failed = place::write(file, some, at);
            }
            at += some.len() as u64;
            Ok(())
        });
        failed.and(read.map_err(io::Error::other))
    }

    /// Where they are in a file, if they are all there.
    pub fn place(&self) -> Option<(&Arc<File>, u64)> {
        match self {
            Stored::Memory(_) | Stored::Several(_) => None,
            Stored::File(f) => Some((&f.file, f.at)),
        }
    }
}

/// A file without a name. It takes what is packed of an interval while more of it comes, so that little is in memory.
#[derive(Debug)]
pub struct Scratch {
    file: Arc<File>,
    /// Where the next bytes go.
    end: AtomicU64,
}

impl Scratch {
    pub fn new(file: File) -> Scratch {
        Scratch {
            file: Arc::new(file),
            end: AtomicU64::new(0),
        }
    }

    /// Writes bytes. `None`: the disk has no room.
    pub fn put(&self, bytes: &[u8]) -> Option<Stored> {
        let at = self.end.fetch_add(bytes.len() as u64, Relaxed);
        place::write(&self.file, bytes, at).ok()?;
        Some(Stored::File(InFile {
            file: Arc::clone(&self.file),
            at,
            len: bytes.len(),
            sum: xxh3_64(bytes),
        }))
    }

    /// The next bytes go to the beginning again. Nobody may need what was written anymore. The file keeps its room on the
    /// disk until it is closed.
    pub fn clear(&self) {
        self.end.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_has_comes_back_or_is_an_error() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let all: Arc<[u8]> = (0..200).collect();
        place::write(&file, &all, 7).unwrap();
        let memory = Stored::from(all.clone());
        let stored = Stored::File(InFile {
            file: Arc::clone(&file),
            at: 7,
            len: memory.len(),
            sum: memory.sum().unwrap(),
        });
        assert_eq!((stored.len(), stored.sum().unwrap()), (200, xxh3_64(&all)));
        assert_eq!(stored.bytes().unwrap(), all);
        let scratch = Scratch::new(tempfile::tempfile().unwrap());
        scratch.put(&[1; 9]).unwrap();
        scratch.clear();
        let some = scratch.put(&all[50..]).unwrap();
        let several = [Stored::Memory(all[..50].into()), some].to_vec();
        let several = Stored::Several(several.into());
        assert_eq!(several.bytes().unwrap(), all);
        assert_eq!(
            (several.len(), several.sum().unwrap()),
            (200, stored.sum().unwrap())
        );
        // Somebody still needs what was written.
        scratch.clear();
        scratch.put(&[0]).unwrap();
        assert!(several.bytes().is_err() && several.sum().is_err());
        assert!(memory.place().is_none() && stored.place().unwrap().1 == 7);
        place::write(&file, &[1], 9).unwrap();
        assert!(stored.bytes().is_err());
        place::write(&file, &all, 7).unwrap();
        assert_eq!(stored.bytes().unwrap(), all);
        file.set_len(206).unwrap();
        assert!(stored.bytes().is_err());
    }
}
