//! `/proc/self/maps` as it would be without the recorder: programs find their stack, heap or
//! roots for garbage collection in it.

use crate::guard;
use crate::memcalls;
use crate::syscalls::errno;
use crate::{arena, line, maps, sys};
use alloc::vec::Vec;
use linux_raw_sys::general::{O_ACCMODE, O_CLOEXEC};

/// Where the kernel writes a mapping's name.
const NAME_COLUMN: usize = 73;

/// Whether the path at `addr` names this process's table of mappings.
pub fn is_maps(path: &[u8]) -> bool {
    let own = line!("/proc/{}/maps", sys::getpid());
    [
        &b"/proc/self/maps"[..],
        b"/proc/thread-self/maps",
        own.as_bytes(),
    ]
    .contains(&path)
}

/// Opens a copy of the table without what is the recorder's.
pub fn open(flags: u32) -> u64 {
    if flags & O_ACCMODE != 0 {
        return errno(linux_raw_sys::errno::EACCES);
    }
    match sys::memfd_create_flags(c"maps", flags & O_CLOEXEC != 0) {
        Ok(fd) => {
            sys::write(fd, &table());
            sys::rewind(fd);
            fd as u64
        }
        Err(e) => errno(e as u32),
    }
}

fn table() -> Vec<u8> {
    let heap = memcalls::heap();
    let mut out = Vec::new();
    for line in maps::read_maps().split_inclusive(|b| *b == b'\n') {
        let Some(m) = maps::parse(line) else { continue };
        if arena::overlaps(m.start, m.end - m.start) {
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

/// The path at `addr`, if it is under `/proc`. Most paths are not, and this is asked for each
/// file that the program opens.
pub fn path_in_proc(addr: u64) -> Option<Vec<u8>> {
    let mut start = [0; 6];
    guard::read(addr, &mut start).ok()?;
    if start != *b"/proc/" {
        return None;
    }
    guard::read_path(addr)
}
