//! The file of translated code that an earlier recording has left.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The file, open and mapped. Recorded processes map it, too.
pub(super) struct Kept {
    pub file: File,
    base: *const u8,
    len: usize,
}

// SAFETY: the mapping is owned by this value, and is only read.
unsafe impl Send for Kept {}
// SAFETY: as above.
unsafe impl Sync for Kept {}

impl Kept {
    pub fn map(file: File) -> io::Result<Kept> {
        let len = file.metadata()?.len() as usize;
        // SAFETY: a new mapping of an open file, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast_const().cast();
        Ok(Kept { file, base, len })
    }

    /// What the file holds. Files of translated code are not changed once they are complete.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is that long, and lasts as long as this value.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: `map` mapped it with this length. No reference outlives this value.
        unsafe { libc::munmap(self.base.cast_mut().cast(), self.len) };
    }
}
