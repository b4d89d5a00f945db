//! Stands for the modules that open files, on a host without a file system: every file is refused, in words for people.
//! Functions have the names and the meaning that they have elsewhere.

use std::io::{Error, ErrorKind};

fn refused() -> Error {
    Error::new(ErrorKind::Unsupported, "there are no files here")
}

/// See the module of this name elsewhere.
pub mod outside {
    use super::refused;
    use std::fs::File;
    use std::io::Result;
    use std::path::Path;

    /// Refuses.
    pub fn open(_: &Path) -> Result<File> {
        Err(refused())
    }

    /// There is none.
    pub fn open_same(
        _: &Path,
        _: u64,
        _: &[u8; 16],
        _: impl FnOnce(&File) -> bool,
    ) -> Option<File> {
        None
    }

    /// Refuses.
    pub fn rename(_: &Path, _: &Path) -> Result<()> {
        Err(refused())
    }

    /// Refuses.
    pub fn remove(_: &Path) -> Result<()> {
        Err(refused())
    }

    /// Refuses.
    pub fn link(_: &File, _: &Path) -> Result<()> {
        Err(refused())
    }
}

/// See the module of this name elsewhere.
pub mod private {
    use super::refused;
    use std::fs::File;
    use std::io::Result;
    use std::path::Path;

    pub use crate::names::{folder_of, temporary};

    /// Refuses.
    pub fn create_new(_: &Path) -> Result<File> {
        Err(refused())
    }

    /// Refuses.
    pub fn open_or_create(_: &Path) -> Result<File> {
        Err(refused())
    }

    /// Refuses.
    pub fn create_unnamed(_: &Path) -> Result<File> {
        Err(refused())
    }

    /// Refuses.
    pub fn create_folder(_: &Path) -> Result<()> {
        Err(refused())
    }
}

/// See the module of this name elsewhere.
pub mod regular {
    use super::refused;
    use std::fs::File;
    use std::io::Result;
    use std::path::Path;

    /// Whether the last part of a path may be a symbolic link.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Links {
        /// It is followed.
        Follow,
        /// It is an error.
        Refuse,
    }

    /// Refuses.
    pub fn open(_: impl AsRef<Path>, _: Links) -> Result<File> {
        Err(refused())
    }

    /// Refuses.
    pub fn read(_: impl AsRef<Path>, _: Links, _: u64) -> Result<Vec<u8>> {
        Err(refused())
    }

    /// Refuses.
    pub fn rest(_: &File, _: u64) -> Result<Vec<u8>> {
        Err(refused())
    }
}
