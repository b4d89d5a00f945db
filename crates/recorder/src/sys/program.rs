//! The program's own file, to which `/proc/self/exe` would lead without the recorder.
//!
//! No descriptor may stay open, so a mapping keeps the file. The mapping also tells the file's
//! present name, and holds the content of a file that was deleted.

use crate::line;
use crate::sys::lock::Lock;
use crate::sys::{self, arena};
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use linux_raw_sys::errno::ETXTBSY;
use linux_raw_sys::general::*;

struct Program {
    /// The file's canonical path when it was loaded.
    path: Vec<u8>,
    /// Where the whole file is mapped. 0 if it is not.
    map: u64,
    /// Bytes of that mapping.
    len: u64,
    /// Device and inode.
    id: (u64, u64),
    /// The mapped file is a copy of the program's file. Its own name means nothing.
    copy: bool,
}

static PROGRAM: Lock<Program> = Lock::new(Program {
    path: Vec::new(),
    map: 0,
    len: 0,
    id: (0, 0),
    copy: false,
});

/// Says from which file the program came. The caller closes `fd`. If the file is a copy of the
/// program's file, `name` counts in place of its own name.
pub fn set(fd: i32, path: &[u8], name: &[u8]) {
    let Ok(st) = sys::fstat(fd) else { return };
    let len = (st.st_size as u64).next_multiple_of(sys::PAGE);
    let copy = path.starts_with(b"/memfd:") && !name.is_empty() && name != path;
    *PROGRAM.lock() = Program {
        path: if copy { name.to_vec() } else { path.to_vec() },
        map: arena::map(len, PROT_READ, MAP_PRIVATE, fd, 0).unwrap_or(0),
        len,
        id: (st.st_dev, st.st_ino),
        copy,
    };
}

/// Keeps it from changing while the process is copied.
pub fn hold() -> impl Sized {
    PROGRAM.lock()
}

/// The file's path when it was loaded.
pub fn loaded() -> Vec<u8> {
    PROGRAM.lock().path.clone()
}

/// What the link shows: the file's present path, or that it was deleted.
pub fn link() -> Vec<u8> {
    let p = PROGRAM.lock();
    if p.copy || p.map == 0 {
        return p.path.clone();
    }
    let name = line!("/proc/self/map_files/{:x}-{:x}\0", p.map, p.map + p.len);
    let name = CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or(c"");
    let mut buf = [0; 4096];
    match sys::readlink(name, &mut buf) {
        Ok(n) => buf[..n].to_vec(),
        Err(_) => p.path.clone(),
    }
}

/// A descriptor that is closed when this is dropped.
pub struct Fd(pub i32);

impl Drop for Fd {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

/// A path that leads to the program's file, and what has to stay open for that.
pub fn path() -> (CString, Option<Fd>) {
    let link = link();
    let id = PROGRAM.lock().id;
    let name = CString::new(link).unwrap_or_default();
    let same = sys::openat(AT_FDCWD, &name, O_PATH | O_CLOEXEC)
        .map(Fd)
        .and_then(|fd| sys::fstat(fd.0))
        .is_ok_and(|st| (st.st_dev, st.st_ino) == id);
    if same {
        return (name, None);
    }
    match copy() {
        Some(fd) => {
            let link = line!("/proc/self/fd/{}", fd.0);
            (CString::new(link.as_bytes()).unwrap_or_default(), Some(fd))
        }
        None => (name, None),
    }
}

/// A copy of the program's file, which has no name any more.
fn copy() -> Option<Fd> {
    let p = PROGRAM.lock();
    if p.map == 0 {
        return None;
    }
    let fd = Fd(sys::memfd_create(c"exe").ok()?);
    // SAFETY: `set` has mapped `len` bytes there readable, which are never unmapped.
    let bytes = unsafe { core::slice::from_raw_parts(p.map as *const u8, p.len as usize) };
    sys::write(fd.0, bytes);
    Some(fd)
}

/// The errno with which the program's file cannot be opened with `flags`, since it is running.
pub fn refuses(flags: u32) -> Option<u32> {
    (flags & O_ACCMODE != O_RDONLY && flags & O_PATH == 0).then_some(ETXTBSY)
}

/// Whether a descriptor is that of the recorder's own image. The program can reach that through a
/// link to `/proc/self/exe`.
pub fn is_recorder(fd: i32) -> bool {
    let id = |fd| sys::fstat(fd).map(|st| (st.st_dev, st.st_ino));
    let own = sys::open_read(c"/proc/self/exe").map(Fd);
    own.is_ok_and(|own| id(own.0) == id(fd))
}
