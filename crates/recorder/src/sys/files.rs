//! Files and descriptors.

use super::{Result, call};
use crate::sys;
use core::ffi::CStr;
use linux_raw_sys::general::*;

/// Opens a file for reading.
pub fn open_read(path: &CStr) -> Result<i32> {
    call(
        __NR_openat,
        [
            AT_FDCWD as u64,
            path.as_ptr() as u64,
            (O_RDONLY | O_CLOEXEC) as u64,
            0,
        ],
    )
    .map(|fd| fd as i32)
}

/// Opens a file. `path` is relative to the directory `dir`.
pub fn openat(dir: i32, path: &CStr, flags: u32) -> Result<i32> {
    let a = [dir as u64, path.as_ptr() as u64, flags as u64, 0];
    call(__NR_openat, a).map(|fd| fd as i32)
}

/// Opens a file for writing at its end, or makes it.
pub fn open_append(path: &CStr) -> Result<i32> {
    let flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY;
    let a = [AT_FDCWD as u64, path.as_ptr() as u64, flags as u64, 0o600];
    call(__NR_openat, a).map(|fd| fd as i32)
}

/// What the kernel knows about an open file.
pub fn fstat(fd: i32) -> Result<stat> {
    let mut st = core::mem::MaybeUninit::<stat>::zeroed();
    let a = [
        fd as u64,
        c"".as_ptr() as u64,
        st.as_mut_ptr() as u64,
        AT_EMPTY_PATH as u64,
    ];
    // SAFETY: the structure consists of integers, which are valid as zeros and as whatever the
    // kernel writes.
    call(__NR_newfstatat, a).map(|_| unsafe { st.assume_init() })
}

/// Whether an open file can be written through this descriptor.
pub fn is_writable(fd: i32) -> bool {
    file_flags(fd).is_ok_and(|f| f & (O_WRONLY | O_RDWR) != 0)
}

/// The flags with which a descriptor's file was opened, as for `open`.
pub fn file_flags(fd: i32) -> Result<u32> {
    call(__NR_fcntl, [fd as u64, F_GETFL as u64, 0, 0]).map(|f| f as u32)
}

/// What the kernel knows about the file at a path.
pub fn stat(path: &CStr) -> Result<stat> {
    let mut st = core::mem::MaybeUninit::<stat>::zeroed();
    let a = [
        AT_FDCWD as i64 as u64,
        path.as_ptr() as u64,
        st.as_mut_ptr() as u64,
        0,
    ];
    // SAFETY: the structure consists of integers, which are valid as zeros and as whatever the
    // kernel writes.
    call(__NR_newfstatat, a).map(|_| unsafe { st.assume_init() })
}

/// Whether the process may execute an open file.
pub fn may_execute(fd: i32) -> Result<()> {
    const X_OK: u64 = 1;
    let flags = (AT_EMPTY_PATH | AT_EACCESS) as u64;
    let a = [fd as u64, c"".as_ptr() as u64, X_OK, flags];
    call(__NR_faccessat2, a).map(drop)
}

/// Whether an open file has an extended attribute.
pub fn has_attribute(fd: i32, name: &CStr) -> bool {
    call(__NR_fgetxattr, [fd as u64, name.as_ptr() as u64, 0, 0]).is_ok()
}

/// Flags of the mount on which an open file is.
pub fn mount_flags(fd: i32) -> u64 {
    // `f_flags`. It stands behind seven words, the file system's id, and two lengths.
    fstatfs(fd)[10]
}

/// Kind of the file system on which an open file is.
pub fn file_system(fd: i32) -> u64 {
    fstatfs(fd)[0]
}

fn fstatfs(fd: i32) -> [u64; 15] {
    let mut st = [0u64; 15];
    let _ = call(__NR_fstatfs, [fd as u64, st.as_mut_ptr() as u64]);
    st
}

/// Makes a descriptor of a file in memory read-only. Its number stays, and is returned.
pub fn make_read_only(fd: i32) -> u64 {
    let name = crate::line!("/proc/self/fd/{fd}\0");
    let name = CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or(c"");
    if let Ok(readable) = openat(AT_FDCWD, name, O_RDONLY | O_CLOEXEC) {
        let flags = if closes_on_exec(fd) { O_CLOEXEC } else { 0 };
        let _ = call(__NR_dup3, [readable as u64, fd as u64, flags as u64]);
        close(readable);
    }
    fd as u64
}

/// Duplicates a descriptor under the first free number from `from` on. `execve` closes it.
pub fn duplicate_from(fd: i32, from: i32) -> Result<i32> {
    let a = [fd as u64, F_DUPFD_CLOEXEC as u64, from as u64];
    call(__NR_fcntl, a).map(|fd| fd as i32)
}

/// Whether `execve` closes a descriptor.
pub fn closes_on_exec(fd: i32) -> bool {
    call(__NR_fcntl, [fd as u64, F_GETFD as u64]).is_ok_and(|f| f & 1 != 0)
}

/// Says whether `execve` is to close a descriptor.
pub fn set_close_on_exec(fd: i32, yes: bool) {
    let flag = if yes { FD_CLOEXEC as u64 } else { 0 };
    let _ = call(__NR_fcntl, [fd as u64, F_SETFD as u64, flag]);
}

/// Appends `len` bytes of a file to another one. Returns whether that has succeeded.
pub fn copy_file(from: i32, to: i32, len: u64) -> bool {
    let mut offset = 0u64;
    while offset < len {
        let at = &raw mut offset as u64;
        match call(__NR_sendfile, [to as u64, from as u64, at, len - offset]) {
            Ok(n) if n > 0 => {}
            _ => return false,
        }
    }
    true
}

/// Writes all of `buf` at `offset`. Returns whether that has succeeded.
pub fn pwrite(fd: i32, buf: &[u8], offset: u64) -> bool {
    let a = [fd as u64, buf.as_ptr() as u64, buf.len() as u64, offset];
    call(__NR_pwrite64, a) == Ok(buf.len() as u64)
}

/// Takes a shared lock on an open file, if that is possible at once. Returns whether it has.
pub fn lock_shared(fd: i32) -> bool {
    const LOCK_SH: u64 = 1;
    const LOCK_NB: u64 = 4;
    call(__NR_flock, [fd as u64, LOCK_SH | LOCK_NB]).is_ok()
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    let _ = call(__NR_close, [fd as u64]);
}

/// Reads up to `buf.len()` bytes. Returns how many.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    call(
        __NR_read,
        [fd as u64, buf.as_mut_ptr() as u64, buf.len() as u64],
    )
    .map(|n| n as usize)
}

/// Reads up to `buf.len()` bytes at `offset`. Returns how many.
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    call(
        __NR_pread64,
        [fd as u64, buf.as_mut_ptr() as u64, buf.len() as u64, offset],
    )
    .map(|n| n as usize)
}

/// Writes `buf`, as far as the descriptor takes it.
pub fn write(fd: i32, mut buf: &[u8]) {
    while !buf.is_empty() {
        match call(
            __NR_write,
            [fd as u64, buf.as_ptr() as u64, buf.len() as u64],
        ) {
            Ok(n) if n > 0 => buf = &buf[n as usize..],
            Err(e) if e == linux_raw_sys::errno::EINTR as i32 => {}
            _ => return,
        }
    }
}

/// As [`memfd_create`], for the program: `cloexec` says whether `execve` closes it.
pub fn memfd_create_flags(name: &CStr, cloexec: bool) -> Result<i32> {
    let flags = if cloexec { MFD_CLOEXEC } else { 0 };
    call(__NR_memfd_create, [name.as_ptr() as u64, flags as u64]).map(|fd| fd as i32)
}

/// Moves a descriptor's position to the start.
pub fn rewind(fd: i32) {
    let _ = call(__NR_lseek, [fd as u64, 0, SEEK_SET as u64]);
}

/// Makes a file in memory. `execve` closes it.
pub fn memfd_create(name: &CStr) -> Result<i32> {
    call(
        __NR_memfd_create,
        [name.as_ptr() as u64, MFD_CLOEXEC as u64],
    )
    .map(|fd| fd as i32)
}

/// The same for a file that is to be sealed.
pub fn memfd_to_seal(name: &CStr) -> Result<i32> {
    let flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    call(__NR_memfd_create, [name.as_ptr() as u64, flags as u64]).map(|fd| fd as i32)
}

/// Has a file in memory stay as it is for good.
pub fn seal(fd: i32) -> Result<()> {
    const ADD_SEALS: u64 = 1033;
    let seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    call(__NR_fcntl, [fd as u64, ADD_SEALS, seals as u64]).map(|_| ())
}

/// Where a symbolic link leads. Returns the number of bytes written to `buf`.
pub fn readlink(path: &CStr, buf: &mut [u8]) -> Result<usize> {
    let a = [
        AT_FDCWD as u64,
        path.as_ptr() as u64,
        buf.as_mut_ptr() as u64,
        buf.len() as u64,
    ];
    call(__NR_readlinkat, a).map(|n| n as usize)
}

/// Calls `name` with the name of each entry of an open directory.
pub fn entries(dir: i32, name: &mut dyn FnMut(&[u8])) {
    /// Offset of a record's length.
    const LENGTH: usize = 16;
    /// Offset of a record's name.
    const NAME: usize = 19;
    let mut buf = [0u8; 4096];
    while let Ok(n @ 1..) = call(
        __NR_getdents64,
        [dir as u64, buf.as_mut_ptr() as u64, buf.len() as u64],
    ) {
        let mut rest = &buf[..n as usize];
        while let Some(&[a, b]) = rest.get(LENGTH..LENGTH + 2) {
            let len = u16::from_le_bytes([a, b]) as usize;
            let text = rest.get(NAME..len).unwrap_or(&[]);
            name(text.split(|b| *b == 0).next().unwrap_or(&[]));
            rest = rest.get(len.max(NAME)..).unwrap_or(&[]);
        }
    }
}

/// Sends a descriptor with `bytes` to the datagram socket of the abstract name `name`. Does not
/// wait.
pub fn send_descriptor(fd: i32, name: &[u8], bytes: &[u8]) -> Result<()> {
    /// `struct sockaddr_un`: the family, a zero byte, the name.
    const NAMED: usize = 3;
    const LONGEST: usize = 32;
    /// `struct cmsghdr` with one descriptor, in bytes.
    const CONTROL: u64 = 20;
    let mut address = [0; NAMED + LONGEST];
    let whole = NAMED + name.len();
    address[..2].copy_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    address
        .get_mut(NAMED..whole)
        .ok_or(linux_raw_sys::errno::EINVAL as i32)?
        .copy_from_slice(name);
    let control = [CONTROL, SOL_SOCKET | SCM_RIGHTS << 32, fd as u32 as u64];
    let data = [bytes.as_ptr() as u64, bytes.len() as u64];
    let message = [
        address.as_ptr() as u64,
        whole as u64,
        data.as_ptr() as u64,
        1,
        control.as_ptr() as u64,
        // Filled up to whole words.
        size_of_val(&control) as u64,
        0,
    ];
    let kind = (SOCK_DGRAM | O_CLOEXEC) as u64;
    let socket = call(__NR_socket, [AF_UNIX, kind, 0])?;
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    let sent = call(__NR_sendmsg, [socket, message.as_ptr() as u64, flags]);
    close(socket as i32);
    sent.map(drop)
}

const AF_UNIX: u64 = 1;
const SOCK_DGRAM: u32 = 2;
const SOL_SOCKET: u64 = 1;
const SCM_RIGHTS: u64 = 1;
const MSG_DONTWAIT: u64 = 0x40;
const MSG_NOSIGNAL: u64 = 0x4000;

/// The canonical path of an open file. Empty if it cannot be found.
pub fn fd_path(fd: i32) -> alloc::vec::Vec<u8> {
    let link = crate::line!("/proc/self/fd/{fd}\0");
    let mut buf = alloc::vec![0; 4096];
    let path = CStr::from_bytes_until_nul(link.as_bytes()).unwrap_or(c"");
    let n = sys::readlink(path, &mut buf).unwrap_or(0);
    buf.truncate(n);
    buf
}
