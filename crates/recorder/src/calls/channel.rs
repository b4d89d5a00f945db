//! The descriptor of the control file, which the process keeps for programs that it executes.
//!
//! Nothing else leads from every recorded process to the collector. `/proc` may be hidden or be
//! another one, the network may be in another namespace, the collector may belong to another user.
//! So the descriptor stays open under a high number, and the program neither sees, closes nor
//! counts it:
//!
//! - A call that names it by chance gets the answer for a descriptor that is not open.
//! - If the program wants its number, the descriptor moves to another one.
//! - If the program wants as many descriptors as its limit allows, the descriptor is given up. The
//!   next program image then looks for the file in `/proc`.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::line;
use crate::memory::regime;
use crate::stream::descriptor;
use crate::sys::{self, guard, resources};
use crate::thread::Thread;
use crate::thread::call::errno;
use crate::thread::pass::pass;
use hindsight_syscalls::{DESCRIPTOR, has};
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// Flags of `close_range`.
const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// `f_type` of `/proc`.
const PROC: u64 = 0x9fa0;

/// Closes the descriptor if the program may use its number. Returns whether it did.
pub fn give_way() -> bool {
    let counts = descriptor::fd().is_some_and(|fd| (fd as u64) < resources::get(RLIMIT_NOFILE).0);
    if counts {
        descriptor::close();
    }
    counts
}

/// Performs a call that would show or change the descriptor. `None`: it is no such call. The inner
/// `None`: a signal has to be delivered first.
pub fn perform(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<Option<u64>> {
    let fd = descriptor::fd()?;
    match nr {
        __NR_close_range => close_range(t, fd, a),
        __NR_dup2 | __NR_dup3 if a[1] as i32 == fd && a[0] as i32 != fd => {
            if let Ok(other) = sys::duplicate_from(fd, fd + 1) {
                descriptor::replace(other);
            } else {
                descriptor::close();
            }
            None
        }
        __NR_getdents64 => Some(list(t, fd, a)),
        _ => shown(nr, a).map(Some),
    }
}

/// The result of a call that names the descriptor as its first argument, where that has to be an
/// open one. `None` for all other calls.
#[inline]
pub fn shown(nr: u32, a: &[u64; 6]) -> Option<u64> {
    (descriptor::fd() == Some(a[0] as i32) && has(nr, DESCRIPTOR)).then(|| errno(EBADF))
}

/// Performs `close_range` around the descriptor. `None`: the call does not close it, or fails
/// anyway.
fn close_range(t: &mut Thread, fd: i32, a: &[u64; 6]) -> Option<Option<u64>> {
    let (first, last, flags) = (a[0] as u32, a[1] as u32, a[2] as u32);
    let hidden = fd as u32;
    let known = CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC;
    if !(first..=last).contains(&hidden) || flags & !known != 0 || flags & CLOSE_RANGE_CLOEXEC != 0
    {
        return None;
    }
    let mut part = |from: u32, to: u32| {
        if from > to {
            return Some(0);
        }
        pass(
            t,
            __NR_close_range,
            &[from as u64, to as u64, flags as u64, 0, 0, 0],
        )
    };
    // In this order: with `CLOSE_RANGE_UNSHARE` the first call gives the process its own table,
    // with the descriptor in it.
    let below = if hidden == 0 {
        Some(0)
    } else {
        part(first, hidden - 1)
    };
    match below {
        Some(0) => {}
        other => return Some(other),
    }
    Some(part(hidden.saturating_add(1), last))
}

/// Performs `getdents64`, and removes the descriptor from the list if the directory is one of
/// descriptors.
fn list(t: &mut Thread, fd: i32, a: &[u64; 6]) -> Option<u64> {
    loop {
        let ret = pass(t, __NR_getdents64, a)?;
        let Ok(len @ 1..) = sys::result(ret) else {
            return Some(ret);
        };
        match entry(a[1], len, fd) {
            Some((at, size)) if sys::file_system(a[0] as i32) == PROC => {
                let mut rest = alloc::vec![0; (len - at - size) as usize];
                let (to, from) = (a[1] + at, a[1] + at + size);
                if guard::read(from, &mut rest).is_err() || guard::write(to, &rest).is_err() {
                    return Some(ret);
                }
                // Bytes were moved behind the end of the list, too.
                regime::tell(t, a[1] + len - size, size);
                if len > size {
                    return Some(len - size);
                }
                // Nothing is left of this part of the directory. That would mean its end, so the
                // next part is read.
            }
            _ => return Some(ret),
        }
    }
}

/// Offset and length of the entry, in the `len` bytes at `list`, whose name is the descriptor's
/// number. A directory of that name is a process, not a descriptor.
fn entry(list: u64, len: u64, fd: i32) -> Option<(u64, u64)> {
    /// Offsets of the record's length, its type and its name.
    const LENGTH: u64 = 16;
    const TYPE: u64 = 18;
    const NAME: u64 = 19;
    let name = line!("{fd}\0");
    let name = name.as_bytes();
    let mut at = 0;
    while at + NAME < len {
        let mut head = [0; 16];
        let n = (len - at - LENGTH).min(16) as usize;
        guard::read(list + at + LENGTH, &mut head[..n]).ok()?;
        let size = u16::from_le_bytes([head[0], head[1]]) as u64;
        let kind = head[(TYPE - LENGTH) as usize];
        if head[(NAME - LENGTH) as usize..].starts_with(name) && kind as u32 != DT_DIR {
            return Some((at, size));
        }
        if size == 0 {
            break;
        }
        at += size;
    }
    None
}
