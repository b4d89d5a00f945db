//! What other processes can do to a quiet process's memory. Children begin with a copy of it, and
//! processes may write to it by system calls.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::leave_soon;
use crate::memory::backing;
use crate::stream::ring;
use crate::sys::guard;
use crate::thread::Thread;
use hindsight_isa::ctx::table;
use hindsight_syscalls as syscalls;
use linux_raw_sys::general::*;

/// Called before a child is made that has a copy of the memory. What the child does to its copy
/// does not matter to this process. A quiet process shares no memory that anybody can change.
pub fn before_fork(t: &mut Thread) {
    // But the child can change and remove files.
    if t.regime.files_told && backing::watched() {
        t.emit.settle();
        t.regime.files_told = false;
    }
}

/// Called in a child that has a copy of the memory: it is checked from the beginning.
pub fn forked(t: &mut Thread) {
    // The table is empty where it was wiped.
    t.ctx.ibl[table::PLAIN].begin();
    if t.regime.quiet {
        (t.regime.quiet, t.regime.in_vdso, t.regime.files_told) = (false, false, false);
        t.regime.leaves_after = 0;
        t.regime.take_end();
        super::restate::inherited();
    }
}

/// The flags with which a call opens a file. `None` if it opens none.
pub fn open_flags(nr: u32, a: &[u64; 6]) -> Option<u32> {
    Some(match nr {
        __NR_open => a[1] as u32,
        __NR_openat => a[2] as u32,
        __NR_creat => O_WRONLY,
        // The flags stand first in the structure.
        __NR_openat2 => {
            let mut flags = [0; 4];
            match guard::read(a[2], &mut flags) {
                Ok(()) => u32::from_le_bytes(flags),
                Err(_) => O_RDWR,
            }
        }
        _ => return None,
    })
}

/// Whether a call may open a file for writing.
pub fn opens_for_writing(nr: u32, a: &[u64; 6]) -> bool {
    open_flags(nr, a).is_some_and(|f| f & (O_WRONLY | O_RDWR | O_TRUNC) != 0)
}

/// Whether a call may remove, replace or change a file.
pub fn changes_files(nr: u32, a: &[u64; 6]) -> bool {
    opens_for_writing(nr, a) || syscalls::has(nr, syscalls::CHANGES_FILES)
}

/// Whether a call may write to the memory of another process, or makes that possible.
fn meddles(nr: u32, a: &[u64; 6]) -> bool {
    let opened =
        |path: u64| guard::read_path(path).is_some_and(|p| p == b"mem" || p.ends_with(b"/mem"));
    match nr {
        __NR_process_vm_writev => true,
        __NR_ptrace => {
            // All but `PTRACE_TRACEME` and the requests that read words.
            a[0] > 3
        }
        __NR_open | __NR_creat if opens_for_writing(nr, a) => opened(a[0]),
        __NR_openat | __NR_openat2 if opens_for_writing(nr, a) => opened(a[1]),
        _ => false,
    }
}

/// Called before a system call of any recorded process. Says so if the call may write to the memory
/// of others.
pub fn announce(t: &mut Thread, nr: u32, a: &[u64; 6]) {
    if meddles(nr, a) {
        log!(Info, "call {nr} may write to the memory of others");
        let before = ring::meddle();
        if t.regime.meddling == before {
            t.regime.meddling = before.wrapping_add(1);
        }
    }
}

/// Ends the quiet regime soon, if another recorded process may have written to this one's memory.
pub fn meddled(t: &mut Thread) {
    if t.regime.meddling != ring::meddling() {
        leave_soon(t, "another recorded process may write to this one's memory");
    }
    if t.emit.lost_file() {
        leave_soon(t, "the collector could not read a mapped file");
    }
}
