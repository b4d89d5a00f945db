//! System calls that name the program's own file or mappings through `/proc`, where the kernel
//! would show the recorder's too.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::guard;
use crate::lock::Lock;
use crate::stub;
use crate::syscalls::errno;
use crate::thread::Thread;
use crate::{line, procmaps, sys};
use alloc::ffi::CString;
use alloc::vec::Vec;
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// The program file's canonical path.
static EXE: Lock<Vec<u8>> = Lock::new(Vec::new());

/// Says which file the program came from.
pub fn set_exe(path: Vec<u8>) {
    *EXE.lock() = path;
}

/// The program file's canonical path.
pub fn exe() -> Vec<u8> {
    EXE.lock().clone()
}

/// Keeps it from changing while the process is copied.
pub fn hold() -> impl Sized {
    EXE.lock()
}

/// Whether a path is the link to this process's program file.
pub fn is_exe_link(path: &[u8]) -> bool {
    let own = line!("/proc/{}/exe", sys::getpid());
    [
        &b"/proc/self/exe"[..],
        b"/proc/thread-self/exe",
        own.as_bytes(),
    ]
    .contains(&path)
}

/// Performs the call if it is one of these and names them. The inner `None`: a signal
/// comes first.
pub fn perform(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<Option<u64>> {
    let path = match nr {
        __NR_readlink | __NR_open | __NR_stat | __NR_access => 0,
        __NR_readlinkat | __NR_openat | __NR_openat2 | __NR_faccessat | __NR_faccessat2 => 1,
        // Without following links they are asked about the link itself.
        __NR_newfstatat if a[3] as u32 & AT_SYMLINK_NOFOLLOW == 0 => 1,
        __NR_statx if a[2] as u32 & AT_SYMLINK_NOFOLLOW == 0 => 1,
        _ => return None,
    };
    let name = procmaps::path_in_proc(a[path])?;
    if procmaps::is_maps(&name) && (nr == __NR_open || nr == __NR_openat) {
        return Some(Some(procmaps::open(a[path + 1] as u32)));
    }
    if !is_exe_link(&name) {
        return None;
    }
    let exe = EXE.lock().clone();
    match nr {
        __NR_readlink | __NR_readlinkat => {
            let (buf, size) = (a[path + 1], a[path + 2] as i32);
            if size <= 0 {
                return Some(Some(errno(EINVAL)));
            }
            let n = exe.len().min(size as usize);
            Some(Some(if guard::write(buf, &exe[..n]).is_ok() {
                n as u64
            } else {
                errno(EFAULT)
            }))
        }
        _ => {
            let name = CString::new(exe).unwrap_or_default();
            let mut a = *a;
            a[path] = name.as_ptr() as u64;
            // SAFETY: the call as the program makes it, with another path.
            Some(unsafe { stub::call(nr as u64, a, &t.inbox.full) })
        }
    }
}
