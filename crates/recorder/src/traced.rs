//! Who is traced by a debugger: a recorded one finds the recorder in what it traces, if that is recorded too.

use crate::maps::read_file;
use crate::{line, ring, sys};
use alloc::borrow::ToOwned;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use linux_raw_sys::general::__NR_ptrace;

const PTRACE_TRACEME: u64 = 0;
const PTRACE_ATTACH: u64 = 16;
const PTRACE_SEIZE: u64 = 0x4206;

/// The process, or one of whom it is a copy, has asked to be traced by its parent.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Takes note of a system call. If it begins to trace a recorded process, that is left first and goes on by
/// itself: its tracer would see the registers of translated code and the recorder's calls.
pub fn before(nr: u32, a: &[u64; 6]) {
    if nr != __NR_ptrace {
        return;
    }
    match a[0] {
        PTRACE_TRACEME => ASKED.store(true, Relaxed),
        PTRACE_ATTACH | PTRACE_SEIZE => {
            let tid = a[1] as i32;
            if let Some(pid) = ring::other_process(tid)
                && may_be_traced(tid)
            {
                ring::leave(pid);
            }
        }
        _ => {}
    }
}

/// Whether the kernel would let this process trace a thread, as far as that can be known before.
fn may_be_traced(tid: i32) -> bool {
    let path = |name| line!("/proc/{tid}/{name}\0");
    let path = |name| CStr::from_bytes_until_nul(path(name).as_bytes()).map(CStr::to_owned);
    let (Ok(status), Ok(memory)) = (path("status"), path("mem")) else {
        return false;
    };
    // The kernel asks the same when the memory is opened.
    let allowed = sys::open_read(&memory).map(sys::close).is_ok();
    allowed && tracer(&status) == Some(false)
}

/// Whether this thread is traced. `None`: that cannot be known.
pub fn is_traced() -> Option<bool> {
    tracer(c"/proc/thread-self/status")
}

/// Whether the thread with this file of the kernel's is traced.
fn tracer(status: &CStr) -> Option<bool> {
    let status = read_file(status);
    let mut lines = status.split(|b| *b == b'\n');
    let tracer = lines.find_map(|l| l.strip_prefix(b"TracerPid:\t"))?;
    Some(tracer != b"0")
}

/// Whether this thread is traced by a recorded process, as far as that can be known. Where nobody traces,
/// which is nearly everywhere, that costs nothing.
pub fn by_recorded() -> bool {
    (ASKED.load(Relaxed) || ring::meddling() != 0) && is_traced() == Some(true)
}
