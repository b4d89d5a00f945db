//! What happens when a process begins to trace a recorded one, as debuggers do. The tracer would
//! find the recorder there. If the tracer is recorded, too, it first has the process left, which
//! then goes on unrecorded.

use crate::line;
use crate::memory::maps::read_file;
use crate::stream::ring;
use crate::sys::{self, line, stop};
use crate::thread::Thread;
use alloc::borrow::ToOwned;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use linux_raw_sys::general::__NR_ptrace;

const PTRACE_TRACEME: u64 = 0;
const PTRACE_ATTACH: u64 = 16;
const PTRACE_SEIZE: u64 = 0x4206;

/// This process, or one of which it is a copy, has asked its parent to trace it.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Milliseconds to wait at most for a process that is just being made.
const BIRTH: u32 = 500;

/// Called before a system call. If the call begins to trace a recorded process, that process is
/// left first and goes on unrecorded. Otherwise its tracer would see the registers of translated
/// code and the recorder's system calls. True: this process is the one that is left. It makes the
/// call after that.
pub fn before(t: &Thread, nr: u32, a: &[u64; 6]) -> bool {
    if nr != __NR_ptrace {
        return false;
    }
    match a[0] {
        PTRACE_TRACEME => {
            ASKED.store(true, Relaxed);
            // A process that shares its tracer's memory cannot be left. It can only be traced as it
            // is.
            if t.task.borrows || !ring::is_recorded() || ring::thread(sys::getppid()).is_none() {
                return false;
            }
            if ring::foreign() {
                say_why_not(sys::getpid());
                return false;
            }
            ring::leave(sys::getpid());
            stop::is_requested()
        }
        PTRACE_ATTACH | PTRACE_SEIZE => {
            let tid = a[1] as i32;
            if ring::foreign() && ring::thread(tid).is_some() {
                say_why_not(tid);
            } else if let Some(pid) = born(tid)
                && may_be_traced(tid)
            {
                ring::leave(pid);
            }
            false
        }
        _ => false,
    }
}

/// The collector has no number for such a process, so it cannot leave it.
fn say_why_not(id: i32) {
    let what = line!(
        "process {id} is in another namespace of process ids. Its tracer sees the recorder's registers \
         instead of the program's"
    );
    line::say(what.as_bytes());
}

/// The recorded process that thread `tid` belongs to, if it has memory of its own.
fn born(tid: i32) -> Option<i32> {
    for _ in 0..BIRTH {
        let found = ring::other_process(tid);
        if found.is_some() || !ring::is_birth_near() || !sys::process_exists(tid) {
            return found;
        }
        sys::sleep_ms(1);
    }
    None
}

/// Whether the kernel would let this process trace a thread, as far as that can be known before.
fn may_be_traced(tid: i32) -> bool {
    let path = |name| line!("/proc/{tid}/{name}\0");
    let path = |name| CStr::from_bytes_until_nul(path(name).as_bytes()).map(CStr::to_owned);
    let (Ok(status), Ok(memory)) = (path("status"), path("mem")) else {
        return false;
    };
    // Opening the memory takes the same permission.
    let allowed = sys::open_read(&memory).map(sys::close).is_ok();
    allowed && tracer(&status) == Some(false)
}

/// Whether this thread is traced. `None`: that cannot be known.
pub fn is_traced() -> Option<bool> {
    tracer(c"/proc/thread-self/status")
}

/// Whether the thread with this `status` file of `/proc` is traced. `None`: that cannot be known.
fn tracer(status: &CStr) -> Option<bool> {
    let status = read_file(status);
    let mut lines = status.split(|b| *b == b'\n');
    let tracer = lines.find_map(|l| l.strip_prefix(b"TracerPid:\t"))?;
    Some(tracer != b"0")
}

/// Whether a recorded process traces this thread, as far as that can be known. Costs nothing where
/// nobody traces, which is nearly everywhere.
pub fn by_recorded() -> bool {
    (ASKED.load(Relaxed) || ring::meddling() != 0) && is_traced() == Some(true)
}
