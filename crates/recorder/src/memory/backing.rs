//! Files that are in the program's memory while it is quiet (see [`crate::memory::regime`]), and files that it
//! may write: what changes a file changes the memory to which it is mapped, so none may be both.
//!
//! Others may change a mapped file too. That is noticed when it is mapped no longer, or at the end;
//! then at least it is told.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::memory::maps::regions;
use crate::stream::handing;
use crate::sys::lock::Lock;
use crate::sys::quiet::Reason;
use crate::sys::{self, guard};
use alloc::vec::Vec;
use core::ffi::CStr;
use linux_raw_sys::general::*;

/// Most bytes of a file that is mapped as data.
const MAX_FILE: u64 = 256 << 20;
/// Age of a file's last change below which another may follow at any moment, in nanoseconds.
const FRESH: u64 = 2_000_000_000;
/// Most files that the program may write.
const MAX_WRITABLE: usize = 1000;
/// Descriptors that are looked at one by one where there is no `/proc`.
const PROBED: i32 = 1024;
/// `struct msghdr`: where its control data are named, in words.
const CONTROL: usize = 4;
/// Most control data of a message that are looked at.
const MAX_CONTROL: u64 = 64 << 10;
const SCM_RIGHTS: u32 = 1;
const SOL_SOCKET: u32 = 1;

/// Why the regime ends where a file is read by its device, without the kernel's memory in between.
pub const DIRECT: Reason = "a file is opened for direct access";

/// Which file it is: device and inode.
type Id = (u64, u64);

fn id(s: &stat) -> Id {
    (s.st_dev, s.st_ino)
}

/// A file, in a state of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct File {
    pub id: Id,
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

    /// It was written just now, so that whoever writes it may not be done.
    pub fn is_fresh(&self) -> bool {
        sys::time_of_day().saturating_sub(self.modified) < FRESH
    }
}

/// Files that the program has opened for writing, or came with.
static WRITABLE: Lock<Vec<Id>> = Lock::new(Vec::new());

/// A file that is, or was, mapped.
struct Mapped {
    file: File,
    /// As in [`crate::memory::maps`].
    path: Vec<u8>,
    /// The collector has it (see [`handing`]).
    handed: bool,
}

impl Mapped {
    fn is_in_memory(&self) -> bool {
        regions().has_path(&self.path)
    }

    /// The same file, as it was. One that was removed or replaced cannot be looked at, but then nobody
    /// writes it by name either.
    fn is_unchanged(&self) -> bool {
        stat(&self.path).is_none_or(|s| id(&s) != self.file.id || File::of(&s) == self.file)
    }
}

static MAPPED: Lock<Vec<Mapped>> = Lock::new(Vec::new());

fn stat(path: &[u8]) -> Option<stat> {
    let mut z = path.to_vec();
    z.push(0);
    CStr::from_bytes_until_nul(&z)
        .ok()
        .and_then(|p| sys::stat(p).ok())
}

/// Whether a file is the system's, which changes such files only by replacing them.
pub fn is_of_system(path: &[u8]) -> bool {
    [&b"/usr/"[..], b"/lib", b"/etc/"]
        .iter()
        .any(|d| path.starts_with(d))
}

/// A file that is in memory.
#[derive(Clone, Copy)]
pub struct Held {
    pub file: File,
    /// The collector has it.
    pub handed: bool,
    /// That has not been asked before.
    pub new: bool,
}

/// An open file is being mapped: what it is, or why that cannot be quiet.
pub fn map(fd: i32, path: &[u8]) -> Result<Held, Reason> {
    let s = match (sys::fstat(fd), stat(path)) {
        (Ok(s), Some(n)) if id(&s) == id(&n) => s,
        _ => return Err("a file without a name is mapped"),
    };
    if s.st_mode & S_IFMT != S_IFREG {
        return Err("a device is mapped");
    }
    if WRITABLE.lock().contains(&id(&s)) {
        return Err("a file that the program may write is mapped");
    }
    if s.st_size as u64 > MAX_FILE {
        return Err("a very large file is mapped");
    }
    let file = File::of(&s);
    let mut list = MAPPED.lock();
    let same = |m: &&Mapped| m.file.id == file.id && m.path == path;
    if let Some(known) = list.iter().find(same) {
        let handed = known.handed;
        let new = false;
        return match known.file == file {
            true => Ok(Held { file, handed, new }),
            false => Err("a file was changed between two mappings of it"),
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

/// Whether an open file is as it was.
pub fn is_still(fd: i32, file: &File) -> bool {
    sys::fstat(fd).is_ok_and(|s| File::of(&s) == *file)
}

/// The program's file, or its interpreter's, is being mapped before there is a regime.
pub fn loaded(fd: i32, path: &[u8]) {
    if let Ok(s) = sys::fstat(fd) {
        let handed = handing::hand(fd);
        let file = File::of(&s);
        let path = path.to_vec();
        MAPPED.lock().push(Mapped { file, path, handed });
    }
}

/// The file that was mapped from this path, if only one was, whatever is there now.
pub fn known(path: &[u8]) -> Result<Held, Reason> {
    let list = MAPPED.lock();
    let mut its = list.iter().filter(|m| m.path == path);
    match (its.next(), its.next()) {
        (Some(m), None) => Ok(Held {
            file: m.file,
            handed: m.handed,
            new: false,
        }),
        _ => Err("a file is mapped of which it is not known which it was"),
    }
}

/// The file that has been mapped from this path, if only one has, it is still there as it was, and the collector has it.
pub fn as_it_was(path: &[u8]) -> Option<File> {
    let held = known(path).ok().filter(|h| h.handed)?;
    (File::of(&stat(path)?) == held.file).then_some(held.file)
}

/// Whether a file is in memory, which is then no longer watched: it is the program that changes it.
fn is_in_memory(file: Id) -> bool {
    let mut found = false;
    MAPPED.lock().retain(|m| {
        let this = m.file.id == file && m.is_in_memory();
        found |= this;
        !this
    });
    found
}

/// The program has a descriptor. Why it cannot be quiet any more, if that is so.
pub fn opened(fd: i32) -> Option<Reason> {
    let s = sys::fstat(fd).ok()?;
    if s.st_mode & S_IFMT != S_IFREG {
        return None;
    }
    let path = sys::fd_path(fd);
    if path.starts_with(b"/proc/") && path.ends_with(b"/mem") {
        return Some("memory is opened as a file, for writing");
    }
    if is_in_memory(id(&s)) {
        return Some("a file that is in memory is opened for writing");
    }
    let mut list = WRITABLE.lock();
    if !list.contains(&id(&s)) {
        list.push(id(&s));
    }
    (list.len() > MAX_WRITABLE).then_some("very many files are opened for writing")
}

/// A file was cut or extended by its name.
pub fn resized(path: u64) -> Option<Reason> {
    let s = stat(&guard::read_path(path)?)?;
    is_in_memory(id(&s)).then_some("a file that is in memory is cut or extended")
}

/// A message was received, whose `struct msghdr` is at `msg`: it may have brought descriptors.
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

/// The program has a descriptor that somebody else has opened. Why it cannot be quiet, if that is so.
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

/// Takes note of what the program comes with. Why it cannot be quiet, if that is so.
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
    MAPPED.lock().iter().any(|m| !is_of_system(&m.path))
}

/// Whether somebody has changed a file as long as it was in memory. `all`: of files that still are,
/// too; the others are forgotten.
pub fn changed(all: bool) -> bool {
    let mut changed = false;
    MAPPED.lock().retain(|m| {
        if is_of_system(&m.path) {
            return true;
        }
        let stays = m.is_in_memory();
        changed |= (all || !stays) && !m.is_unchanged();
        stays
    });
    changed
}
