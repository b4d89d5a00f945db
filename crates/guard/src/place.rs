//! Reads and writes an open file at a place, and tells files apart, on any host. Where there are no files, all of it is refused.

use std::fs::File;
use std::io;

/// Fills `bytes` from the file, from byte `at` on.
///
/// # Errors
/// The file ends before that, or cannot be read.
#[cfg(unix)]
pub fn read(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Writes all `bytes` to the file, from byte `at` on.
///
/// # Errors
/// The file cannot be written.
#[cfg(unix)]
pub fn write(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

/// What tells a file from all others: its device and its inode.
#[cfg(unix)]
pub fn identity(m: &std::fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (m.dev(), m.ino())
}

/// Refuses.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn read(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Refuses.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn write(_: &File, _: &[u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// All are the same: there are none.
#[cfg(not(unix))]
pub fn identity(_: &std::fs::Metadata) -> (u64, u64) {
    (0, 0)
}
