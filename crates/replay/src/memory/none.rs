//! Stands for mappings of memory on a host that has none. Only [`crate::window::paged`] is used there.

use crate::Error;

/// How many pages of memory the calling thread has got so far. Nobody counts them here.
pub fn page_faults() -> u64 {
    0
}

/// Does nothing: there are no files that a process could be kept from opening later.
pub fn prepare() {}

/// There is none.
pub enum Mapping {}

impl Mapping {
    pub fn new(_: usize) -> Result<Mapping, Error> {
        Err(refused())
    }

    pub fn base(&self) -> *mut u8 {
        match *self {}
    }
}

/// There is none.
pub enum MemoryFile {}

impl MemoryFile {
    pub fn new(_: usize) -> Result<MemoryFile, Error> {
        Err(refused())
    }

    pub fn shorten(&mut self, _: usize) {
        match *self {}
    }

    pub fn bytes(&self) -> &[u8] {
        match *self {}
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match *self {}
    }
}

fn refused() -> Error {
    Error::System {
        what: "cannot map memory",
        cause: std::io::ErrorKind::Unsupported.into(),
    }
}
