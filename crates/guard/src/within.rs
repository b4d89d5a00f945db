//! Reads and makes files below a folder whose names come from elsewhere.

use crate::outside::{Op, ask, bytes, with_file};
use crate::regular;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Error};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path};

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

/// Makes a file below the folder `root`, and the folders that lead to it. Nobody else can read them. Follows no links.
///
/// # Errors
/// The path is absolute, or has a part such as `..`. A part of it is a link, or no folder. Something has its name
/// already.
pub fn create(root: BorrowedFd, path: &Path) -> io::Result<File> {
    let is_name = |c: &Component| matches!(c, Component::Normal(_));
    let names: Vec<Component> = path.components().collect();
    if !names.iter().all(is_name) {
        return Err(Error::from_raw_os_error(libc::EXDEV));
    }
    let name = |c: &Component| CString::new(c.as_os_str().as_bytes());
    let (last, folders) = names
        .split_last()
        .ok_or(Error::from_raw_os_error(libc::EISDIR))?;
    let mut folder = root.try_clone_to_owned()?;
    for f in folders {
        folder = enter(&folder, &name(f)?)?;
    }
    let how = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    open_at(&folder, &name(last)?, how).map(File::from)
}

/// Opens a folder in another one. Makes it if it does not exist.
fn enter(folder: &OwnedFd, name: &CString) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero byte.
    let made = unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), 0o700) };
    let e = Error::last_os_error();
    if made < 0 && e.raw_os_error() != Some(libc::EEXIST) {
        return Err(e);
    }
    let how = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    open_at(folder, name, how)
}

fn open_at(folder: &OwnedFd, name: &CString, how: i32) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero byte, and the mode is there where `how` makes a file.
    let fd = unsafe {
        libc::openat(
            folder.as_raw_fd(),
            name.as_ptr(),
            how,
            0o600 as libc::c_uint,
        )
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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
    use std::os::fd::AsFd;
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

    #[test]
    fn files_are_made_below_the_folder_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("root/sub")).unwrap();
        symlink(at("other"), at("root/link")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("root/file"), "kept").unwrap();
        symlink("../other/made", at("root/dangling")).unwrap();
        let root = File::open(at("root")).unwrap();
        let make = |name: &str| create(root.as_fd(), Path::new(name));
        for good in ["a", "b/c/d", "b/c/e", "sub/f", "[vdso]"] {
            assert!(make(good).is_ok(), "{good}");
            let m = fs::metadata(at("root").join(good)).unwrap();
            assert_eq!(m.permissions().mode() & 0o077, 0, "{good}");
        }
        let absolute = at("other/x");
        for bad in [
            "..",
            "../x",
            "sub/../x",
            "sub/../../other/x",
            "link/x",
            "file",
            "file/x",
            "dangling",
            "",
            ".",
            "/",
            "a",
            absolute.to_str().unwrap(),
        ] {
            assert!(make(bad).is_err(), "{bad}");
        }
        assert_eq!(fs::read_dir(at("other")).unwrap().count(), 0);
        assert_eq!(fs::read(at("root/file")).unwrap(), b"kept");
    }
}
