//! Files of `/proc` about the program itself, as they would be without the recorder. Programs find
//! their stack, heap, roots for garbage collection and signal handlers there.
//!
//! Each file is made when it is opened, as a file in memory.

use crate::line;
use crate::memory::maps::{self, Line};
use crate::memory::{brk, shown};
use crate::signals::actions;
use crate::sys::{self, arena};
use crate::thread::call::errno;
use crate::thread::threads;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::fmt::Write;
use linux_raw_sys::general::*;

/// The files that the recorder changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    /// The link to the program's file.
    Exe,
    /// `maps`
    Maps,
    /// `smaps`
    Smaps,
    /// `numa_maps`
    NumaMaps,
    /// `status`
    Status,
    /// `stat`
    Stat,
    /// `statm`
    Statm,
    /// `auxv`
    Auxv,
    /// The directory of descriptors. Its size is their number.
    Descriptors,
}

const NAMES: [(&[u8], File, &CStr); 9] = [
    (b"exe", File::Exe, c"exe"),
    (b"maps", File::Maps, c"maps"),
    (b"smaps", File::Smaps, c"smaps"),
    (b"numa_maps", File::NumaMaps, c"numa_maps"),
    (b"status", File::Status, c"status"),
    (b"stat", File::Stat, c"stat"),
    (b"statm", File::Statm, c"statm"),
    (b"auxv", File::Auxv, c"auxv"),
    (b"fd", File::Descriptors, c"fd"),
];

/// The file that `path`, relative to the directory `dir`, names. `None` unless it is one of these
/// and about this process. The number is that of the thread that it is about.
pub fn find(dir: i32, path: &[u8]) -> Option<(File, i32)> {
    let end = path.iter().rposition(|b| *b == b'/');
    let (parent, last) = match end {
        Some(i) => (&path[..i], &path[i + 1..]),
        None => (&b""[..], path),
    };
    let file = NAMES.iter().find(|n| n.0 == last)?.1;
    if let Some(tid) = about(parent) {
        return Some((file, tid));
    }
    let parent = match (parent, end) {
        (b"", Some(_)) => return None,
        (b"", None) => b".",
        _ => parent,
    };
    let parent = alloc::ffi::CString::new(parent).ok()?;
    let fd = sys::openat(dir, &parent, O_PATH | O_DIRECTORY | O_CLOEXEC).ok()?;
    let fd = crate::sys::program::Fd(fd);
    const PROC: u64 = 0x9fa0;
    if sys::file_system(fd.0) != PROC {
        return None;
    }
    Some((file, about(&link_of(fd.0)?)?))
}

/// Where a descriptor leads. `None` if it is not open.
pub fn link_of(fd: i32) -> Option<Vec<u8>> {
    let name = line!("/proc/self/fd/{fd}\0");
    let name = CStr::from_bytes_until_nul(name.as_bytes()).ok()?;
    let mut buf = [0; 256];
    let n = sys::readlink(name, &mut buf).ok()?;
    Some(buf[..n].to_vec())
}

/// The thread whose directory under `/proc` this is, if it is one of this process.
fn about(dir: &[u8]) -> Option<i32> {
    let rest = dir.strip_prefix(b"/proc/")?;
    let (process, thread) = match rest.iter().position(|b| *b == b'/') {
        None => (rest, None),
        Some(i) => (&rest[..i], Some(rest[i..].strip_prefix(b"/task/")?)),
    };
    let own = sys::getpid();
    let tid = match process {
        b"self" => own,
        b"thread-self" => sys::gettid(),
        // Numbers of another namespace do not concern this process.
        _ if process_link().is_some_and(|l| l != process) => return None,
        _ => number(process)?,
    };
    match thread {
        Some(t) => number(t).filter(|t| threads::masks(*t).is_some()),
        None => Some(tid),
    }
}

/// This process's number in the namespace of `/proc`.
fn process_link() -> Option<Vec<u8>> {
    let mut buf = [0; 16];
    let n = sys::readlink(c"/proc/self", &mut buf).ok()?;
    Some(buf[..n].to_vec())
}

fn number(text: &[u8]) -> Option<i32> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// Opens a copy of the file. Returns the descriptor or an error, as the kernel would.
pub fn open(t: &crate::thread::Thread, file: File, tid: i32, flags: u32) -> u64 {
    use linux_raw_sys::errno::*;
    if flags & O_DIRECTORY != 0 {
        return errno(ENOTDIR);
    }
    if flags & O_ACCMODE != O_RDONLY {
        return errno(EACCES);
    }
    let Some(text) = text(t, file, tid) else {
        return errno(ENOENT);
    };
    let name = NAMES.iter().find(|n| n.1 == file).map_or(c"", |n| n.2);
    match sys::memfd_create_flags(name, flags & O_CLOEXEC != 0) {
        Ok(fd) => {
            sys::write(fd, &text);
            sys::rewind(fd);
            sys::make_read_only(fd)
        }
        Err(e) => errno(e as u32),
    }
}

fn text(t: &crate::thread::Thread, file: File, tid: i32) -> Option<Vec<u8>> {
    Some(match file {
        File::Exe | File::Descriptors => return None,
        File::Maps => mappings(&read(c"/proc/self/maps")),
        File::Smaps => mappings(&read(c"/proc/self/smaps")),
        File::NumaMaps => numa_maps(&read(c"/proc/self/numa_maps")),
        File::Status => status(
            &read_task(tid, "status")?,
            &Signals::of(t, tid),
            t.emulated.filters.state(),
        ),
        File::Stat => stat(&read_task(tid, "stat")?, &Signals::of(t, tid)),
        File::Statm => statm(&read(c"/proc/self/statm")),
        File::Auxv => shown::auxv(),
    })
}

fn read(path: &CStr) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(fd) = sys::open_read(path) {
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = sys::read(fd, &mut buf) {
            text.extend_from_slice(&buf[..n]);
        }
        sys::close(fd);
    }
    text
}

/// A file about a thread. For the first thread, that of the process.
fn read_task(tid: i32, name: &str) -> Option<Vec<u8>> {
    let path = if tid == sys::getpid() {
        line!("/proc/self/{name}\0")
    } else {
        line!("/proc/self/task/{tid}/{name}\0")
    };
    let text = read(CStr::from_bytes_until_nul(path.as_bytes()).ok()?);
    (!text.is_empty()).then_some(text)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|b| *b == b'\n')
}

/// Reads the line that begins a mapping in `maps` or `smaps`.
fn header(line: &[u8]) -> Option<Line<'_>> {
    // All other lines begin with a name.
    let first = line.first()?;
    if first.is_ascii_uppercase() {
        return None;
    }
    maps::parse(line)
}

fn is_ours(m: &Line) -> bool {
    arena::overlaps(m.start, m.end - m.start)
}

/// The column in which the kernel writes a mapping's name.
const NAME_COLUMN: usize = 73;

/// `maps` or `smaps` without the recorder's mappings.
fn mappings(all: &[u8]) -> Vec<u8> {
    let heap = brk::heap();
    let mut out = Vec::new();
    let mut ours = false;
    for line in lines(all) {
        let Some(m) = header(line) else {
            if !ours {
                out.extend_from_slice(line);
            }
            continue;
        };
        ours = is_ours(&m);
        if ours {
            continue;
        }
        if m.name.is_empty() && heap.contains(&m.start) {
            let start = out.len();
            out.extend_from_slice(line.trim_ascii_end());
            out.resize((start + NAME_COLUMN).max(out.len() + 1), b' ');
            out.extend_from_slice(b"[heap]\n");
        } else {
            out.extend_from_slice(line);
        }
    }
    out
}

fn numa_maps(all: &[u8]) -> Vec<u8> {
    let heap = brk::heap();
    let mut out = Vec::new();
    for line in lines(all) {
        let end = line.iter().position(|b| *b == b' ').unwrap_or(line.len());
        let Some(at) = maps::hex(&line[..end]) else {
            continue;
        };
        if arena::overlaps(at, 1) {
            continue;
        }
        if heap.contains(&at) {
            let policy = line[end + 1..].iter().position(|b| *b == b' ');
            let rest = policy.map_or(line.len(), |p| end + 1 + p);
            out.extend_from_slice(&line[..rest]);
            out.extend_from_slice(b" heap");
            out.extend_from_slice(&line[rest..]);
        } else {
            out.extend_from_slice(line);
        }
    }
    out
}

/// The sizes of the program's mappings, in KiB.
#[derive(Default)]
struct Sizes {
    size: u64,
    data: u64,
    stack: u64,
    resident: u64,
    anonymous: u64,
    shared: u64,
    locked: u64,
}

fn sizes() -> Sizes {
    let text = read(c"/proc/self/smaps");
    let mut s = Sizes::default();
    let mut ours = false;
    let mut is_shared_memory = false;
    for line in lines(&text) {
        if let Some(m) = header(line) {
            ours = is_ours(&m) || m.start >> 63 != 0;
            if ours {
                continue;
            }
            let len = (m.end - m.start) / 1024;
            let private = line.iter().position(|b| *b == b' ').map(|i| line[i + 4]) == Some(b'p');
            is_shared_memory = !private && !m.name.starts_with(b"/");
            s.size += len;
            if m.name == b"[stack]" {
                s.stack += len;
            } else if private && m.prot & PROT_WRITE != 0 {
                s.data += len;
            }
            continue;
        }
        if ours {
            continue;
        }
        if let Some(n) = value(line, b"Rss:") {
            s.resident += n;
            if is_shared_memory {
                s.shared += n;
            }
        } else if let Some(n) = value(line, b"Anonymous:") {
            s.anonymous += n;
        } else if let Some(n) = value(line, b"Locked:") {
            s.locked += n;
        }
    }
    s
}

fn value(line: &[u8], key: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(key)?.trim_ascii();
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    core::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// A thread's signals as the program knows them.
struct Signals {
    blocked: u64,
    ignored: u64,
    caught: u64,
    /// Those that the recorder holds.
    held: u64,
}

impl Signals {
    fn of(t: &crate::thread::Thread, tid: i32) -> Signals {
        let (blocked, held) = threads::masks(tid).unwrap_or((t.signals.mask, 0));
        let (ignored, caught) = actions::dispositions(t);
        Signals {
            blocked,
            ignored,
            caught,
            held,
        }
    }
}

fn status(all: &[u8], signals: &Signals, (mode, filters): (u32, usize)) -> Vec<u8> {
    let s = sizes();
    let (peak, most) = shown::peaks(s.size, s.resident);
    let mut out = Vec::new();
    for line in lines(all) {
        let end = line.iter().position(|b| *b == b':').unwrap_or(0);
        let size = match &line[..end] {
            b"VmPeak" => Some(peak),
            b"VmSize" => Some(s.size),
            b"VmLck" => Some(s.locked),
            b"VmHWM" => Some(most),
            b"VmRSS" => Some(s.resident),
            b"RssAnon" => Some(s.anonymous),
            b"RssFile" => Some((s.resident - s.shared).saturating_sub(s.anonymous)),
            b"RssShmem" => Some(s.shared),
            b"VmData" => Some(s.data),
            b"VmStk" => Some(s.stack),
            _ => None,
        };
        if let Some(n) = size {
            out.extend_from_slice(&line[..=end]);
            out.extend_from_slice(line!("\t{n:8} kB\n").as_bytes());
            continue;
        }
        let mask = match &line[..end] {
            b"SigPnd" => Some(mask_of(&line[end + 1..]) | signals.held),
            b"SigBlk" => Some(signals.blocked),
            b"SigIgn" => Some(signals.ignored),
            b"SigCgt" => Some(signals.caught),
            _ => None,
        };
        match (mask, &line[..end]) {
            (Some(mask), name) => {
                out.extend_from_slice(name);
                out.extend_from_slice(line!(":\t{mask:016x}\n").as_bytes());
            }
            (_, b"Seccomp") => out.extend_from_slice(line!("Seccomp:\t{mode}\n").as_bytes()),
            (_, b"Seccomp_filters") => {
                out.extend_from_slice(line!("Seccomp_filters:\t{filters}\n").as_bytes());
            }
            _ => out.extend_from_slice(line),
        }
    }
    out
}

fn mask_of(text: &[u8]) -> u64 {
    maps::hex(text.trim_ascii()).unwrap_or(0)
}

fn stat(all: &[u8], signals: &Signals) -> Vec<u8> {
    let s = sizes();
    // The name may contain anything. So fields are counted from the one behind it, which is the
    // third.
    let Some(name_end) = all.iter().rposition(|b| *b == b')') else {
        return all.to_vec();
    };
    let mut out = all[..=name_end].to_vec();
    let fields = all[name_end + 1..].trim_ascii().split(|b| *b == b' ');
    for (i, field) in fields.enumerate() {
        out.push(b' ');
        // This file shows only the first 31 signals.
        let low = |mask: u64| mask & 0x7fff_ffff;
        let number = match i + 3 {
            23 => s.size * 1024,
            24 => s.resident / 4,
            31 => low(decimal(field) | signals.held),
            32 => low(signals.blocked),
            33 => low(signals.ignored),
            34 => low(signals.caught),
            _ => {
                out.extend_from_slice(field);
                continue;
            }
        };
        out.extend_from_slice(line!("{number}").as_bytes());
    }
    out.push(b'\n');
    out
}

fn decimal(text: &[u8]) -> u64 {
    core::str::from_utf8(text).map_or(0, |t| t.parse().unwrap_or(0))
}

fn statm(all: &[u8]) -> Vec<u8> {
    let s = sizes();
    let mut fields = all.trim_ascii().split(|b| *b == b' ').skip(3);
    let text = fields.next().unwrap_or(b"0");
    let text = core::str::from_utf8(text).unwrap_or("0");
    let shared = (s.resident).saturating_sub(s.anonymous) / 4;
    let mut l = line!("{} {} {shared} {text} 0 ", s.size / 4, s.resident / 4);
    let _ = l.write_fmt(format_args!("{} 0\n", (s.data + s.stack) / 4));
    l.as_bytes().to_vec()
}
