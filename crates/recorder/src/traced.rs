//! Who is traced by a debugger: a recorded one finds the recorder in what it traces, if that is recorded too.

use crate::maps::read_file;
use crate::ring;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use linux_raw_sys::general::__NR_ptrace;

const PTRACE_TRACEME: u64 = 0;

/// The process, or one of whom it is a copy, has asked to be traced by its parent.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Takes note of a system call.
pub fn before(nr: u32, a: &[u64; 6]) {
    if nr == __NR_ptrace && a[0] == PTRACE_TRACEME {
        ASKED.store(true, Relaxed);
    }
}

/// Whether this thread is traced. `None`: that cannot be known.
pub fn is_traced() -> Option<bool> {
    let status = read_file(c"/proc/thread-self/status");
    let mut lines = status.split(|b| *b == b'\n');
    let tracer = lines.find_map(|l| l.strip_prefix(b"TracerPid:\t"))?;
    Some(tracer != b"0")
}

/// Whether this thread is traced by a recorded process, as far as that can be known. Where nobody traces,
/// which is nearly everywhere, that costs nothing.
pub fn by_recorded() -> bool {
    (ASKED.load(Relaxed) || ring::meddling() != 0) && is_traced() == Some(true)
}
