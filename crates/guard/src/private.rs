//! Files and folders that only their owner can read. A recording holds everything that the program saw: its
//! environment with keys and passwords, and whatever it read. So do files that are made from a recording.
//!
//! In the sandbox, the broker makes them ([`crate::outside`]). Files get mode 0600 and folders 0700, whatever
//! the umask is. A file with a name that others can foresee is never reached through a symbolic link.

use crate::outside::{self, Op, ask, bytes, with_file};
use crate::regular::{self, Links};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub use crate::names::{folder_of, temporary};

const FILE: u32 = 0o600;
const FOLDER: u32 = 0o700;

/// Options to read and write a file, which is private if it is made.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(FILE);
    options
}

/// Makes a file. Fails if anything has its name, even a link.
pub fn create_new(path: &Path) -> io::Result<File> {
    if let Some(answer) = ask(Op::New, bytes(path), b"", None) {
        return with_file(answer);
    }
    let file = options().create_new(true).open(path)?;
    // The umask may have removed rights that the owner needs.
    file.set_permissions(Permissions::from_mode(FILE))?;
    Ok(file)
}

/// Makes a file, or opens an existing one unchanged. Fails for a symbolic link.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    if let Some(answer) = ask(Op::Write, bytes(path), b"", None) {
        return with_file(answer);
    }
    loop {
        match create_new(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done,
        }
        // The existing file may be a pipe.
        match regular::open_with(path, Links::Refuse, &mut options()) {
            // The file was removed in between.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
    }
}

/// Makes a file without a name in a folder. Not all file systems can do that.
pub fn create_unnamed(folder: &Path) -> io::Result<File> {
    if let Some(answer) = ask(Op::Unnamed, bytes(folder), b"", None) {
        return with_file(answer);
    }
    let file = options().custom_flags(libc::O_TMPFILE).open(folder)?;
    file.set_permissions(Permissions::from_mode(FILE))?;
    Ok(file)
}

/// Makes or empties the file that the user named. It may be a link, a pipe or a device. A regular file
/// becomes private if its file system has modes.
///
/// # Errors
/// The file belongs to another user, who could read it whatever its mode is.
pub fn create_named(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).mode(FILE);
    let file = file.truncate(false).open(path)?;
    let m = file.metadata()?;
    if m.is_file() {
        make_private(&file, &m)?;
        file.set_len(0)?;
    }
    Ok(file)
}

fn make_private(file: &File, m: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: the call only returns a number.
    let own = unsafe { libc::geteuid() };
    if m.uid() != own && own != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to another user ({})", m.uid()),
        ));
    }
    if m.mode() & 0o777 != FILE {
        // File systems without modes refuse this. The user has chosen this place.
        let _ = file.set_permissions(Permissions::from_mode(FILE));
    }
    Ok(())
}

/// Makes a folder and those above it, unless they exist.
pub fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        create_folder(above)?;
    }
    match DirBuilder::new().mode(FOLDER).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(FOLDER)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Writes a file whole or not at all. Replaces the file that has its name.
pub fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let temporary = temporary(path);
    // A process that was killed may have left it.
    let _ = outside::remove(&temporary);
    let mut file = create_new(&temporary)?;
    let done = (file.write_all(text)).and_then(|()| outside::rename(&temporary, path));
    if done.is_err() {
        let _ = outside::remove(&temporary);
    }
    done
}

/// Gives a file without a name the name `path`, which must be unused.
pub(crate) fn link(file: &File, path: &Path) -> io::Result<()> {
    let mine = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let path = CString::new(bytes(path))?;
    let (here, how) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: a plain system call with two strings that outlive it.
    match unsafe { libc::linkat(here, mine.as_ptr(), here, path.as_ptr(), how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| dir.path().join(name);
        create_new(&at("new")).unwrap();
        open_or_create(&at("other")).unwrap();
        create_named(&at("named")).unwrap();
        write_whole(&at("whole"), b"text").unwrap();
        for name in ["new", "other", "named", "whole"] {
            assert_eq!(mode(&at(name)), 0o600, "{name}");
        }
        create_folder(&at("a/b/c")).unwrap();
        for name in ["a", "a/b", "a/b/c"] {
            assert_eq!(mode(&at(name)), 0o700, "{name}");
        }
        create_folder(&at("a/b/c")).unwrap();
        if let Ok(f) = create_unnamed(dir.path()) {
            assert_eq!(f.metadata().unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_the_user_names_becomes_private_and_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("l"));
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        symlink(&path, &link).unwrap();
        create_named(&link).unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap().len()), (0o600, 0));
        create_named(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        symlink(&target, &link).unwrap();
        assert!(create_new(&link).is_err());
        assert!(open_or_create(&link).is_err());
        assert!(!target.exists());
        fs::write(&target, "kept").unwrap();
        assert!(open_or_create(&link).is_err());
        symlink(&target, temporary(&link)).unwrap();
        write_whole(&link, b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"kept");
        assert_eq!(fs::read(&link).unwrap(), b"new");
        assert!(!link.is_symlink());
    }
}
