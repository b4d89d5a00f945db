//! State points before calls of which nothing can be skipped (`record --state-points calls`): they make a thread or a process,
//! execute a program, or change what is mapped in a large way. Whoever goes on from such a state point has all of the call.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::restate;
use crate::sys::{self, config};
use crate::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general::*;

/// Nanoseconds between two of them, at least, and before the first one: who goes back so far may as well begin anew.
const APART: u64 = 100_000_000;

/// Bytes. A mapping of less changes little.
const LARGE: u64 = 1 << 20;

/// When the last one was asked for, or would have been for the first time. 0: never.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Called before a system call, before the thread looks what is due. Asks for a state point, if the call deserves one.
pub fn before_call(t: &mut Thread, nr: u32, a: &[u64; 6]) {
    let wanted = config::get().state_calls != 0 && t.regime.quiet && !t.is_unrecorded();
    if !wanted || !deserves(nr, a) {
        return;
    }
    let (now, last) = (sys::nanos(), LAST.load(Relaxed));
    if last == 0 {
        return LAST.store(now, Relaxed);
    }
    // The program must not wait for a copy that is still at work.
    if now.saturating_sub(last) >= APART && !restate::is_at_work(t) {
        LAST.store(now, Relaxed);
        restate::state_point(t);
    }
}

fn deserves(nr: u32, a: &[u64; 6]) -> bool {
    match nr {
        __NR_clone | __NR_clone3 | __NR_fork | __NR_vfork | __NR_execve | __NR_execveat => true,
        __NR_mmap | __NR_munmap => a[1] >= LARGE,
        __NR_mremap => a[1].max(a[2]) >= LARGE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_calls_deserve_a_state_point() {
        let large = [0, LARGE, 0, 0, 0, 0];
        for (nr, a) in [
            (__NR_clone3, [0; 6]),
            (__NR_execve, [0; 6]),
            (__NR_mmap, large),
            (__NR_munmap, large),
            (__NR_mremap, [0, 4096, LARGE, 0, 0, 0]),
        ] {
            assert!(deserves(nr, &a), "{nr}");
        }
        for (nr, a) in [
            (__NR_mmap, [LARGE, LARGE - 1, 0, 0, 0, 0]),
            (__NR_mremap, [LARGE, 4096, 4096, LARGE, 0, 0]),
            (__NR_read, large),
            (__NR_mprotect, large),
        ] {
            assert!(!deserves(nr, &a), "{nr}");
        }
    }
}
