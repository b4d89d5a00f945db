//! Reads files below a folder whose names come from elsewhere.

use crate::outside::{Op, ask, bytes, with_file};
use crate::regular;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const HOW: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;

/// Opens the regular file at `path` below the folder `root`. Follows links that stay below it.
///
/// # Errors
/// The path leaves the folder, even if it returns to it, or the file is not a regular one.
pub fn open(root: &Path, path: &Path) -> io::Result<File> {
    if let Some(answer) = ask(Op::Within, bytes(root), bytes(path), None) {
        return with_file(answer);
    }
    let file = match open_beneath(root, path) {
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => open_checked(root, path)?,
        done => done?,
    };
    regular::must_be(&file.metadata()?)?;
    Ok(file)
}

/// Opens the file as [`open`] does, and reads it if it has at most `most` bytes.
///
/// # Errors
/// As for [`open`]. Also if the file is larger, or cannot be read.
pub fn read(root: &Path, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    regular::rest(&open(root, path)?, most)
}

fn open_beneath(root: &Path, path: &Path) -> io::Result<File> {
    let root = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
        .open(root)?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `open_how` is three numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = HOW as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the folder is open, the path ends with a zero byte, and the size is the structure's.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &how,
            size_of_val(&how),
        )
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
}

/// The same for kernels before 5.6. Somebody who may write in the folder could change it between the check
/// and the opening.
fn open_checked(root: &Path, path: &Path) -> io::Result<File> {
    let real = root.join(path).canonicalize()?;
    if path.is_absolute() || !real.starts_with(root.canonicalize()?) {
        return Err(Error::from_raw_os_error(libc::EXDEV));
    }
    let how = HOW | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(how).open(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_way_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("root/sub")).unwrap();
        fs::write(at("secret"), "secret").unwrap();
        fs::write(at("root/sub/file"), "file").unwrap();
        symlink("sub/file", at("root/inner")).unwrap();
        symlink("../sub/file", at("root/sub/up")).unwrap();
        symlink("../secret", at("root/outer")).unwrap();
        symlink("..", at("root/above")).unwrap();
        symlink(at("root/sub/file"), at("root/absolute")).unwrap();
        for how in [open_beneath, open_checked] {
            let get = |name: &str| how(&at("root"), Path::new(name));
            for good in ["sub/file", "inner", "sub/up", "sub/../inner"] {
                assert!(get(good).is_ok(), "{good}");
            }
            for bad in [
                "outer",
                "above/secret",
                "../secret",
                "sub/../../secret",
                "none",
            ] {
                assert!(get(bad).is_err(), "{bad}");
            }
            assert!(how(&at("root"), &at("secret")).is_err());
        }
        assert_eq!(read(&at("root"), Path::new("inner"), 4).unwrap(), b"file");
        assert!(read(&at("root"), Path::new("inner"), 3).is_err());
        assert!(open(&at("root"), Path::new("sub")).is_err());
        assert!(read(Path::new("/dev"), Path::new("zero"), 100).is_err());
    }
}
