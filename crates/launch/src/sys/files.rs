//! Descriptors, and files in memory.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A descriptor of the same file that is at least 100: programs expect low numbers to be free, and
/// 0 to 2 may be closed.
pub fn raise(file: File) -> io::Result<File> {
    // SAFETY: duplicates a descriptor; the new one is owned by nobody else.
    unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) {
            -1 => Ok(file),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// A file in memory, closed on exec.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: makes a descriptor that is owned by nobody else.
    let f = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from(OwnedFd::from_raw_fd(fd))
    };
    raise(f)
}

/// Whether the kernel would execute this file.
pub fn executable(path: &Path) -> bool {
    let Ok(p) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a zero-terminated string.
    unsafe { libc::faccessat(libc::AT_FDCWD, p.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// Closes a descriptor that nobody owns, as a copied process has them.
pub fn close(fd: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::close(fd) };
}

/// A zero-terminated copy.
pub fn c_string(s: &OsStr) -> io::Result<CString> {
    CString::new(s.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
