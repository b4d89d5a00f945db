//! Opens files for code that plays a recording, whether or not it is in the sandbox.
//!
//! A process in the sandbox ([`crate::sandbox`]) can open nothing. It asks the broker ([`crate::broker`]),
//! which gives it only files that belong to the recording. A process outside the sandbox opens the file
//! itself. So all code that opens a file that a recording names, or a file beside a recording, calls this
//! module.

use crate::regular::{self, Links};
use crate::wire;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What a process in the sandbox can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Op {
    /// Read the recording, a file that recordings share, or a file beside the recording.
    Read = 1,
    /// Read a file below a folder of debug files.
    Within,
    /// Read a file of this machine that has a certain content.
    Content,
    /// Open a file beside the recording for writing. Makes it if it does not exist.
    Write,
    /// Make a file beside the recording that does not exist yet.
    New,
    /// Make a file without a name beside the recording.
    Unnamed,
    /// Give a name to the file that comes with the question.
    Link,
    /// Rename a file.
    Rename,
    /// Remove a file.
    Remove,
    /// Compare a file of this machine with what is recorded of it. Its content is not given.
    Compare,
    /// Make a file below the folder into which files are taken out.
    Extract,
}

impl Op {
    pub(crate) const ALL: [Op; 11] = [
        Op::Read,
        Op::Within,
        Op::Content,
        Op::Write,
        Op::New,
        Op::Unnamed,
        Op::Link,
        Op::Rename,
        Op::Remove,
        Op::Compare,
        Op::Extract,
    ];
}

/// The socket on which to ask. Not set: this process has a file system.
static BROKER: OnceLock<Mutex<OwnedFd>> = OnceLock::new();

/// From now on this process asks.
pub(crate) fn ask_at(socket: OwnedFd) {
    let _ = BROKER.set(Mutex::new(socket));
}

/// Whether this process is in the sandbox.
pub fn is_confined() -> bool {
    BROKER.get().is_some()
}

/// Asks the broker. `None` if this process is not in the sandbox.
pub(crate) fn ask(
    op: Op,
    one: &[u8],
    other: &[u8],
    with: Option<&File>,
) -> Option<io::Result<Option<File>>> {
    let broker = BROKER.get()?;
    let talk = || {
        let mut question = vec![op as u8];
        question.extend((one.len() as u32).to_le_bytes());
        question.extend_from_slice(one);
        question.extend_from_slice(other);
        if question.len() > wire::MOST {
            return Err(Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        let socket = broker.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(socket.as_raw_fd(), &question, with.map(AsFd::as_fd))?;
        let mut answer = [0; 4];
        let (n, file) = wire::receive(socket.as_raw_fd(), &mut answer)?;
        match (n, i32::from_le_bytes(answer)) {
            (4, 0) => Ok(file),
            (4, libc::EINVAL) => Err(regular::not_regular()),
            (4, errno) => Err(Error::from_raw_os_error(errno)),
            _ => Err(ErrorKind::BrokenPipe.into()),
        }
    };
    Some(talk())
}

pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The file in an answer.
pub(crate) fn with_file(answer: io::Result<Option<File>>) -> io::Result<File> {
    answer?.ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Opens the recording, or a file beside it, for reading.
pub fn open(path: &Path) -> io::Result<File> {
    match ask(Op::Read, bytes(path), b"", None) {
        Some(answer) => with_file(answer),
        None => regular::open(path, Links::Follow),
    }
}

/// Opens the file of this machine at `path` if it has `size` bytes and `same` is true of its content. In the
/// sandbox the broker compares the content instead, and `name` must be a name that it understands.
pub fn open_same(
    path: &Path,
    size: u64,
    name: &[u8; 16],
    same: impl FnOnce(&File) -> bool,
) -> Option<File> {
    let mut wanted = name.to_vec();
    wanted.extend(size.to_le_bytes());
    match ask(Op::Content, bytes(path), &wanted, None) {
        Some(answer) => with_file(answer).ok(),
        None => sized(path, size).filter(|f| same(f)),
    }
}

/// What a file of this machine is, compared with what is recorded of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// It has the same content.
    Same,
    /// It has another content.
    Changed,
    /// There is nothing with this path.
    Missing,
    /// There is a regular file, and nothing was recorded that it could be compared with.
    There,
    /// It is no regular file, or one in which the kernel shows itself, or this process may not look at it.
    Unknown,
}

impl Compared {
    const ALL: [(Compared, i32); 5] = [
        (Compared::Same, 0),
        (Compared::Changed, libc::ESTALE),
        (Compared::Missing, libc::ENOENT),
        (Compared::There, libc::EEXIST),
        (Compared::Unknown, libc::EACCES),
    ];

    /// How the broker answers.
    pub(crate) fn errno(self) -> i32 {
        let found = Self::ALL.iter().find(|a| a.0 == self);
        found.map_or(libc::EACCES, |a| a.1)
    }
}

/// Compares the file of this machine at `path` with a content of which the size and the name are known. `same` says whether a
/// file has that content. It is not read unless it is a regular file of that size, and none in which the kernel shows itself. In the sandbox the broker compares,
/// if it may.
pub fn compare(
    path: &Path,
    wanted: Option<(u64, &[u8; 16])>,
    same: impl FnOnce(&File) -> bool,
) -> Compared {
    let mut other = Vec::new();
    if let Some((size, name)) = wanted {
        other.extend(name);
        other.extend(size.to_le_bytes());
    }
    match ask(Op::Compare, bytes(path), &other, None) {
        None => compare_here(path, wanted.map(|w| w.0), same),
        Some(Ok(_)) => Compared::Same,
        Some(Err(e)) => {
            let found = Compared::ALL.iter().find(|a| e.raw_os_error() == Some(a.1));
            found.map_or(Compared::Unknown, |a| a.0)
        }
    }
}

pub(crate) fn compare_here(
    path: &Path,
    size: Option<u64>,
    same: impl FnOnce(&File) -> bool,
) -> Compared {
    if !path.is_absolute() {
        return Compared::Unknown;
    }
    let there = match regular::of_machine(path) {
        Ok(m) => m.len(),
        Err(e) => {
            return match e.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => Compared::Missing,
                _ => Compared::Unknown,
            };
        }
    };
    match size {
        None => Compared::There,
        Some(size) if size != there => Compared::Changed,
        // Files of the kernel say that they have 0 bytes, and may have no end.
        Some(0) => Compared::Same,
        Some(_) => match regular::open_of_machine(path) {
            Ok(file) if same(&file) => Compared::Same,
            Ok(_) => Compared::Changed,
            Err(_) => Compared::Unknown,
        },
    }
}

/// Makes a file at `path` below the folder into which files are taken out. In the sandbox the broker makes it. Elsewhere
/// this is an error: [`crate::within::create`] does it.
///
/// # Errors
/// See [`crate::within::create`]. No files are taken out.
pub fn extract(path: &Path) -> io::Result<File> {
    match ask(Op::Extract, bytes(path), b"", None) {
        Some(answer) => with_file(answer),
        None => Err(ErrorKind::Unsupported.into()),
    }
}

/// Opens a regular file if it has `size` bytes.
pub(crate) fn sized(path: &Path, size: u64) -> Option<File> {
    let file = regular::open_of_machine(path).ok()?;
    // Files of the kernel say that they have 0 bytes, and may have no end.
    let len = file.metadata().ok()?.len();
    (len == size && size > 0).then_some(file)
}

/// Like [`fs::rename`], for files beside the recording.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match ask(Op::Rename, bytes(from), bytes(to), None) {
        Some(answer) => answer.map(drop),
        None => fs::rename(from, to),
    }
}

/// Like [`fs::remove_file`], for files beside the recording.
pub fn remove(path: &Path) -> io::Result<()> {
    match ask(Op::Remove, bytes(path), b"", None) {
        Some(answer) => answer.map(drop),
        None => fs::remove_file(path),
    }
}

/// Gives a file without a name the name `path`, which must be unused.
pub fn link(file: &File, path: &Path) -> io::Result<()> {
    match ask(Op::Link, bytes(path), b"", Some(file)) {
        Some(answer) => answer.map(drop),
        None => crate::private::link(file, path),
    }
}

#[cfg(test)]
mod tests {
    use super::{Compared, compare_here};
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    #[test]
    fn only_regular_files_of_the_right_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "content").unwrap();
        let pipe = dir.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let unread = |path: &Path, size| compare_here(path, size, |_| panic!("it is read"));
        assert_eq!(compare_here(&file, Some(7), |_| true), Compared::Same);
        assert_eq!(compare_here(&file, Some(7), |_| false), Compared::Changed);
        assert_eq!(unread(&file, Some(6)), Compared::Changed);
        assert_eq!(unread(&file, None), Compared::There);
        assert_eq!(unread(&pipe, Some(0)), Compared::Unknown);
        assert_eq!(unread(dir.path(), Some(0)), Compared::Unknown);
        assert_eq!(unread(Path::new("/dev/zero"), Some(7)), Compared::Unknown);
        assert_eq!(unread(Path::new("file"), Some(7)), Compared::Unknown);
        let none = dir.path().join("none");
        assert_eq!(unread(&none, Some(7)), Compared::Missing);
        assert_eq!(unread(&file.join("below"), None), Compared::Missing);
    }

    #[test]
    fn files_of_the_kernel_are_not_read_however_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (link, above) = (dir.path().join("link"), dir.path().join("above"));
        std::os::unix::fs::symlink("/proc/self/status", &link).unwrap();
        std::os::unix::fs::symlink("/proc", &above).unwrap();
        let mut paths = vec![link, above.join("self/status")];
        let spellings = [
            "/proc/self/status",
            "//proc/self/status",
            "/./proc/./self/status",
            "/proc/self/../self/status",
            "/tmp/../proc/self/status",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "//sys/kernel/mm/transparent_hugepage/enabled",
        ];
        paths.extend(spellings.map(Into::into));
        for path in paths.iter().filter(|p| p.exists()) {
            for size in [None, Some(0), Some(9), Some(4096)] {
                let found = compare_here(path, size, |_| panic!("it is read"));
                assert_eq!(found, Compared::Unknown, "{} {size:?}", path.display());
                let size = size.unwrap_or(0);
                assert!(super::sized(path, size).is_none(), "{}", path.display());
            }
        }
        // Links to other files are followed.
        let (file, other) = (dir.path().join("file"), dir.path().join("other"));
        std::fs::write(&file, "content").unwrap();
        std::os::unix::fs::symlink(&file, &other).unwrap();
        assert_eq!(compare_here(&other, Some(7), |_| true), Compared::Same);
        assert!(super::sized(&other, 7).is_some());
    }
}
