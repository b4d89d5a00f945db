//! Packed bytes of an index in the making. They wait in memory, or in the file that is to become the index.

use super::frame::IndexFrame;
use crate::{Error, Result};
use hindsight_guard::place;
use std::fs::File;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Where packed bytes are.
#[derive(Clone, Debug)]
pub enum Stored {
    Memory(Arc<[u8]>),
    File(InFile),
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

impl From<Arc<[u8]>> for Stored {
    fn from(all: Arc<[u8]>) -> Stored {
        Stored::Memory(all)
    }
}

impl From<IndexFrame> for Stored {
    fn from(frame: IndexFrame) -> Stored {
        Stored::Memory(frame.blob)
    }
}

impl Stored {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Stored::Memory(all) => all.len(),
            Stored::File(f) => f.len,
        }
    }

    /// Their checksum.
    pub fn sum(&self) -> u64 {
        match self {
            Stored::Memory(all) => xxh3_64(all),
            Stored::File(f) => f.sum,
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// The file does not have them any more: the disk fails, or somebody changed it.
    pub fn bytes(&self) -> Result<Arc<[u8]>> {
        match self {
            Stored::Memory(all) => Ok(Arc::clone(all)),
            Stored::File(f) => checked(&f.file, f.at, f.len, f.sum).ok_or_else(|| {
                Error::Unsupported("an unfinished index cannot be read back".into())
            }),
        }
    }

    /// Where they are in a file.
    pub fn place(&self) -> Option<(&Arc<File>, u64)> {
        match self {
            Stored::Memory(_) => None,
            Stored::File(f) => Some((&f.file, f.at)),
        }
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
            sum: memory.sum(),
        });
        assert_eq!((stored.len(), stored.sum()), (200, xxh3_64(&all)));
        assert_eq!(stored.bytes().unwrap(), all);
        assert!(memory.place().is_none() && stored.place().unwrap().1 == 7);
        place::write(&file, &[1], 9).unwrap();
        assert!(stored.bytes().is_err());
        place::write(&file, &all, 7).unwrap();
        assert_eq!(stored.bytes().unwrap(), all);
        file.set_len(206).unwrap();
        assert!(stored.bytes().is_err());
    }
}
