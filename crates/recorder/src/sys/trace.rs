//! Tracing threads of another process.

use super::{Result, call};
use linux_raw_sys::general::*;

/// `ptrace`, for requests that write nothing, or where `data` points to room for what they write.
pub fn ptrace(request: u32, tid: i32, address: u64, data: u64) -> Result<()> {
    call(__NR_ptrace, [request as u64, tid as u64, address, data]).map(drop)
}

/// Lets the process `pid` trace this one, where the system asks for that permission.
pub fn allow_tracer(pid: u64) {
    let _ = call(
        __NR_prctl,
        [linux_raw_sys::prctl::PR_SET_PTRACER as u64, pid, 0, 0, 0],
    );
}

/// Waits until any child or traced thread has stopped or ended. Fails if there is none.
pub fn wait_any() -> Result<()> {
    wait(-1, __WALL).map(drop)
}

/// Whether a traced thread has stopped or ended. Does not wait.
pub fn wait_thread(tid: i32) -> bool {
    wait(tid, __WALL | WNOHANG) == Ok(tid as u64)
}

fn wait(id: i32, options: u32) -> Result<u64> {
    let mut status = 0u32;
    let a = [id as i64 as u64, &raw mut status as u64, options as u64, 0];
    call(__NR_wait4, a)
}
