//! The files that are in a quiet program's memory, and those that it may write (see
//! [`crate::memory::regime`]). What changes a file also changes the memory to which it is mapped.
//! So no file may be both.
//!
//! Other processes may change a mapped file, too. The recorder notices that when the file is
//! unmapped, or at the end. It cannot undo it, but says so.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::memory::maps::regions;
use crate::stream::handing;
use crate::sys::lock::Lock;
use crate::sys::quiet::Reason;
use crate::sys::{self, guard};
use alloc::vec::Vec;
use core::ffi::CStr;
use linux_raw_sys::general::*;

/// Bytes. A larger file is not mapped as data in the quiet regime.
const MAX_FILE: u64 = 256 << 20;
/// Nanoseconds. If a file was changed more recently, another change may follow at any moment.
const FRESH: u64 = 2_000_000_000;
/// The most files that the program may be able to write.
const MAX_WRITABLE: usize = 1000;
/// Where there is no `/proc`, this many descriptors are tried one by one.
const PROBED: i32 = 1024;
/// Index of the word in a `struct msghdr` that has the address of the control data.
const CONTROL: usize = 4;
/// Bytes. Longer control data of a message are not looked at.
const MAX_CONTROL: u64 = 64 << 10;
const SCM_RIGHTS: u32 = 1;
const SOL_SOCKET: u32 = 1;

/// Why the quiet regime ends if a device writes what is read from a file straight into memory.
pub const DIRECT: Reason = "the program opens a file for direct access (O_DIRECT)";

/// Which file it is: device and inode.
type Id = (u64, u64);

fn id(s: &stat) -> Id {
    (s.st_dev, s.st_ino)
}

/// A file, as it was at one time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Device and inode.
    pub id: Id,
    /// Bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds.
    pub modified: u64,
}

impl File {
    fn of(s: &stat) -> File {
        let nanoseconds = s.st_mtime.wrapping_mul(1_000_000_000);
        File {
            id: id(s),
            size: s.st_size as u64,
            modified: nanoseconds.wrapping_add(s.st_mtime_nsec),
        }
    }

    /// Whether it was written just now. Then whoever writes it may not be done.
    pub fn is_fresh(&self) -> bool {
        sys::time_of_day().saturating_sub(self.modified) < FRESH
    }
}

/// A file that is mapped, or was.
struct Mapped {
    file: File,
    /// The path, as in [`crate::memory::maps`].
    path: Vec<u8>,
    /// The collector has the file (see [`handing`]).
    handed: bool,
}

impl Mapped {
    fn is_in_memory(&self) -> bool {
        regions().has_path(&self.path)
    }

    /// Whether it is the same file as before. A file that was removed or replaced cannot be looked
    /// at. But then nobody writes to it by name either.
    fn is_unchanged(&self) -> bool {
        stat(&self.path).is_none_or(|s| id(&s) != self.file.id || File::of(&s) == self.file)
    }
}

/// The files that matter in the quiet regime, which has one thread. The child of a `fork` has a copy.
struct Files {
    /// Files that the program has opened for writing, also before it was recorded.
    writable: Lock<Vec<Id>>,
    /// Files that are mapped, or were.
    mapped: Lock<Vec<Mapped>>,
}

static FILES: Files = Files {
    writable: Lock::new(Vec::new()),
    mapped: Lock::new(Vec::new()),
};

fn stat(path: &[u8]) -> Option<stat> {
    let mut z = path.to_vec();
    z.push(0);
    CStr::from_bytes_until_nul(&z)
        .ok()
        .and_then(|p| sys::stat(p).ok())
}

/// Whether a file belongs to the system. The system changes its files only by replacing them.
pub fn is_of_system(path: &[u8]) -> bool {
    [&b"/usr/"[..], b"/lib", b"/etc/"]
        .iter()
        .any(|d| path.starts_with(d))
}

/// A file that is in memory.
#[derive(Clone, Copy)]
pub struct Held {
    /// The file, as it was when it was mapped.
    pub file: File,
    /// The collector has it.
    pub handed: bool,
    /// Nobody has asked for it before.
    pub new: bool,
}

/// Notes that an open file is being mapped. `path` is its name. Returns which file it is, or why
/// the program cannot stay quiet with it.
pub fn map(fd: i32, path: &[u8]) -> Result<Held, Reason> {
    let s = match (sys::fstat(fd), stat(path)) {
        (Ok(s), Some(n)) if id(&s) == id(&n) => s,
        _ => return Err("the program maps a file that has no name"),
    };
    if s.st_mode & S_IFMT != S_IFREG {
        return Err("the program maps a device");
    }
    if FILES.writable.lock().contains(&id(&s)) {
        return Err("the program maps a file that it may write");
    }
    if s.st_size as u64 > MAX_FILE {
        return Err("the program maps a very large file");
    }
    let file = File::of(&s);
    let mut list = FILES.mapped.lock();
    let same = |m: &&Mapped| m.file.id == file.id && m.path == path;
    if let Some(known) = list.iter().find(same) {
        let handed = known.handed;
        let new = false;
        return match known.file == file {
            true => Ok(Held { file, handed, new }),
            false => Err("a file changed between two mappings of it"),
        };
    }
    let handed = handing::hand(fd);
    list.push(Mapped {
        file,
        path: path.to_vec(),
        handed,
    });
    let new = true;
    Ok(Held { file, handed, new })
}

/// Whether an open file is the one that it was, unchanged.
pub fn is_still(fd: i32, file: &File) -> bool {
    sys::fstat(fd).is_ok_and(|s| File::of(&s) == *file)
}

/// Notes that the file of the program or of its ELF interpreter is being mapped. That happens
/// before there is a regime.
pub fn loaded(fd: i32, path: &[u8]) {
    if let Ok(s) = sys::fstat(fd) {
        let handed = handing::hand(fd);
        let file = File::of(&s);
        let path = path.to_vec();
        FILES.mapped.lock().push(Mapped { file, path, handed });
    }
}

/// The file that was mapped from this path, if only one was. What is there now does not matter.
pub fn known(path: &[u8]) -> Result<Held, Reason> {
    let list = FILES.mapped.lock();
    let mut its = list.iter().filter(|m| m.path == path);
    match (its.next(), its.next()) {
        (Some(m), None) => Ok(Held {
            file: m.file,
            handed: m.handed,
            new: false,
        }),
        _ => Err(
            "several files were mapped by the same path, and it is not known which one is in memory",
        ),
    }
}

/// The file that was mapped from this path. `None` unless only one was, it is unchanged, and the
/// collector has it.
pub fn as_it_was(path: &[u8]) -> Option<File> {
    let held = known(path).ok().filter(|h| h.handed)?;
    (File::of(&stat(path)?) == held.file).then_some(held.file)
}

/// Whether a file is in memory. If so it is not watched any more, since it is the program that
/// changes it.
fn is_in_memory(file: Id) -> bool {
    let mut found = false;
    FILES.mapped.lock().retain(|m| {
        let this = m.file.id == file && m.is_in_memory();
        found |= this;
        !this
    });
    found
}

/// Notes that the program has a descriptor that it may write to. Returns why the program cannot
/// stay quiet, if that is so.
pub fn opened(fd: i32) -> Option<Reason> {
    let s = sys::fstat(fd).ok()?;
    if s.st_mode & S_IFMT != S_IFREG {
        return None;
    }
    let path = sys::fd_path(fd);
    if path.starts_with(b"/proc/") && path.ends_with(b"/mem") {
        return Some("the program opens memory as a file, for writing (/proc/PID/mem)");
    }
    if is_in_memory(id(&s)) {
        return Some("the program opens a mapped file for writing");
    }
    let mut list = FILES.writable.lock();
    if !list.contains(&id(&s)) {
        list.push(id(&s));
    }
    (list.len() > MAX_WRITABLE).then_some("the program opens very many files for writing")
}

/// Notes that the file named by the string at `path` was cut or extended. Returns why the program
/// cannot stay quiet, if that is so.
pub fn resized(path: u64) -> Option<Reason> {
    let s = stat(&guard::read_path(path)?)?;
    is_in_memory(id(&s)).then_some("the program changes the length of a mapped file")
}

/// Notes a message that was received and may have brought descriptors. Its `struct msghdr` is at
/// `msg`. Returns why the program cannot stay quiet, if that is so.
pub fn received(msg: u64) -> Option<Reason> {
    let mut header = [0; 56];
    guard::read(msg, &mut header).ok()?;
    let word = |b: &[u8], i: usize| {
        let bytes = b.get(8 * i..8 * i + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (at, len) = (word(&header, CONTROL)?, word(&header, CONTROL + 1)?);
    if len == 0 || len > MAX_CONTROL {
        return None;
    }
    let mut control = alloc::vec![0; len as usize];
    guard::read(at, &mut control).ok()?;
    let mut rest = &control[..];
    while let (Some(len), Some(kind)) = (word(rest, 0), word(rest, 1)) {
        let whole = len as usize;
        let Some(data) = rest.get(16..whole) else {
            break;
        };
        if kind == SOL_SOCKET as u64 | (SCM_RIGHTS as u64) << 32 {
            for fd in data.as_chunks().0 {
                if let Some(why) = came(i32::from_le_bytes(*fd)) {
                    return Some(why);
                }
            }
        }
        rest = rest.get(whole.next_multiple_of(8)..).unwrap_or(&[]);
    }
    None
}

/// Notes that the program has a descriptor that somebody else has opened. Returns why the program
/// cannot stay quiet, if that is so.
fn came(fd: i32) -> Option<Reason> {
    let flags = sys::file_flags(fd).ok()?;
    if flags & O_DIRECT != 0 && sys::fstat(fd).is_ok_and(|s| s.st_mode & S_IFMT != S_IFIFO) {
        return Some(DIRECT);
    }
    if flags & (O_WRONLY | O_RDWR) != 0 {
        return opened(fd);
    }
    None
}

/// Notes the descriptors with which the program begins. Returns why it cannot be quiet, if that is
/// so.
pub fn inherited() -> Option<Reason> {
    let mut why = None;
    match sys::open_read(c"/proc/self/fd") {
        Ok(dir) => {
            sys::entries(dir, &mut |name| {
                let number = core::str::from_utf8(name).map(str::parse);
                if let Ok(Ok(fd)) = number {
                    why = why.or(came(fd));
                }
            });
            sys::close(dir);
        }
        Err(_) => why = (0..PROBED).find_map(came),
    }
    why
}

/// Whether there are files in memory that others may change in place.
pub fn watched() -> bool {
    FILES.mapped.lock().iter().any(|m| !is_of_system(&m.path))
}

/// Whether the files in memory that others may change are, by their names, what was mapped. Then nothing that memory shows of
/// them has changed since.
pub fn is_as_mapped() -> bool {
    let same = |m: &Mapped| stat(&m.path).is_some_and(|s| File::of(&s) == m.file);
    FILES
        .mapped
        .lock()
        .iter()
        .all(|m| is_of_system(&m.path) || !m.is_in_memory() || same(m))
}

/// Whether somebody has changed a file while it was in memory. Looks at files that are not in
/// memory any more, and forgets them. With `all` it looks at all files.
pub fn changed(all: bool) -> bool {
    let mut changed = false;
    FILES.mapped.lock().retain(|m| {
        if is_of_system(&m.path) {
            return true;
        }
        let stays = m.is_in_memory();
        changed |= (all || !stays) && !m.is_unchanged();
        stays
    });
    changed
}
