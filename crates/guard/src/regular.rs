//! Opens files that somebody else may have named or made: paths from a trace, and files beside a trace.
//!
//! The path may lead to a device without an end, to a pipe to which nobody writes, or to a file larger
//! than all memory. So all crates open these files here. Only regular files are opened, nothing is waited
//! for, and reading has a limit.

use crate::kernel;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Whether the last part of a path may be a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// It is followed. For paths that the user named, and for files of the system.
    Follow,
    /// It is an error. For files that programs make themselves, under names that others can foresee.
    Refuse,
}

/// Opens a regular file for reading.
///
/// # Errors
/// It is not a regular file, or cannot be opened.
pub fn open(path: impl AsRef<Path>, links: Links) -> io::Result<File> {
    open_with(path, links, OpenOptions::new().read(true))
}

/// Opens a regular file with these options.
///
/// # Errors
/// It is not a regular file, or cannot be opened.
pub fn open_with(
    path: impl AsRef<Path>,
    links: Links,
    options: &mut OpenOptions,
) -> io::Result<File> {
    let path = path.as_ref();
    // Opening a device can have effects of its own, so the kind of file is checked first.
    let before = match links {
        Links::Follow => path.metadata(),
        Links::Refuse => path.symlink_metadata(),
    };
    match before {
        Ok(m) => must_be(&m)?,
        // The options may make it.
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    // If something else has appeared in between, it is neither waited for nor followed.
    let mut flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    if links == Links::Refuse {
        flags |= libc::O_NOFOLLOW;
    }
    let file = options.custom_flags(flags).open(path)?;
    must_be(&file.metadata()?)?;
    Ok(file)
}

/// What is known of a file of this machine whose path somebody else chose. Opens nothing.
///
/// # Errors
/// It is not a regular file, or one in which the kernel shows itself, or cannot be looked at.
pub(crate) fn of_machine(path: &Path) -> io::Result<Metadata> {
    must_be_of_machine(&named(path)?)
}

/// A descriptor that only names a file, so that devices and files of the kernel do not notice.
fn named(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_PATH).open(path)
}

/// Whether the kernel shows itself in what lies at a path. Opens nothing.
///
/// # Errors
/// It cannot be looked at.
pub fn is_of_kernel(path: impl AsRef<Path>) -> io::Result<bool> {
    kernel::shows_itself(&named(path.as_ref())?)
}

/// Opens a regular file of this machine whose path somebody else chose, for reading.
///
/// # Errors
/// As for [`of_machine`].
pub(crate) fn open_of_machine(path: &Path) -> io::Result<File> {
    of_machine(path)?;
    let file = open(path, Links::Follow)?;
    // Another file may have appeared in between.
    must_be_of_machine(&file)?;
    Ok(file)
}

fn must_be_of_machine(file: &File) -> io::Result<Metadata> {
    let m = file.metadata()?;
    must_be(&m)?;
    match kernel::shows_itself(file)? {
        true => Err(not_regular()),
        false => Ok(m),
    }
}

/// Reads a whole regular file.
///
/// # Errors
/// It is not a regular file, has more than `most` bytes, or cannot be read.
pub fn read(path: impl AsRef<Path>, links: Links, most: u64) -> io::Result<Vec<u8>> {
    rest(&open(path, links)?, most)
}

/// Reads the rest of a file.
///
/// # Errors
/// It has more than `most` bytes, or cannot be read.
pub fn rest(mut file: &File, most: u64) -> io::Result<Vec<u8>> {
    let too_large = || Error::new(ErrorKind::FileTooLarge, too_large(most));
    let len = file.metadata()?.len();
    if len > most {
        return Err(too_large());
    }
    // Files of the kernel say that they are empty, and any file may grow while it is read.
    let mut bytes = Vec::with_capacity(len as usize);
    file.by_ref()
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Whether bytes can be written to any place of an open file: it is a regular one, and not open to be appended to.
pub fn takes_bytes_anywhere(file: &File) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: the call only returns a number.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_APPEND == 0 && file.metadata().is_ok_and(|m| m.is_file())
}

/// Fails unless the file is a regular one.
pub(crate) fn must_be(m: &Metadata) -> io::Result<()> {
    if m.is_file() {
        return Ok(());
    }
    // The kernel's own error, only sooner.
    if m.is_dir() {
        return Err(Error::from_raw_os_error(libc::EISDIR));
    }
    Err(not_regular())
}

/// The error for a file that is not regular.
pub(crate) fn not_regular() -> Error {
    Error::new(ErrorKind::InvalidInput, "it is not a regular file")
}

fn too_large(most: u64) -> String {
    match most >> 20 {
        0 => format!("it has more than {most} bytes"),
        mib => format!("it has more than {mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(open(dir.path(), Links::Follow).is_err());
        for path in [&pipe, &socket, Path::new("/dev/zero")] {
            for links in [Links::Follow, Links::Refuse] {
                let refused = open(path, links).unwrap_err().to_string();
                assert_eq!(refused, "it is not a regular file", "{}", path.display());
            }
        }
    }

    #[test]
    fn links_are_followed_only_where_they_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, pipe) = (
            dir.path().join("f"),
            dir.path().join("l"),
            dir.path().join("z"),
        );
        std::fs::write(&file, "content").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &pipe).unwrap();
        assert_eq!(read(&link, Links::Follow, 7).unwrap(), b"content");
        assert!(read(&link, Links::Refuse, 7).is_err());
        assert!(open(&pipe, Links::Follow).is_err());
    }

    #[test]
    fn no_more_is_read_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [1; 100]).unwrap();
        assert_eq!(read(&path, Links::Refuse, 100).unwrap(), [1; 100]);
        let e = read(&path, Links::Refuse, 99).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::FileTooLarge);
        assert_eq!(e.to_string(), "it has more than 99 bytes");
        // The file says that it is empty, but is not.
        assert!(read("/proc/self/maps", Links::Follow, 10).is_err());
    }

    #[test]
    fn a_file_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        open_with(&path, Links::Refuse, options).unwrap();
        assert!(path.is_file());
    }
}
