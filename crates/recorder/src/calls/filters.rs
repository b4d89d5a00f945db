//! Filters of system calls that the program sets for itself (seccomp).
//!
//! The kernel would apply them to the recorder's own calls too. So it is not told of them. The
//! recorder runs each filter before it makes the program's call. Filters are never removed, and
//! pass on to threads, children and executed programs.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::line;
use crate::process::birth;
use crate::signals::delivery;
use crate::sys::bpf::{self, Instruction};
use crate::sys::context::Info;
use crate::sys::{self, guard};
use crate::thread::call::{Flow, errno, returned};
use crate::thread::filter_list::instructions;
use crate::thread::{Thread, end, threads};
use alloc::vec::Vec;
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIFICATION: u32 = 0x7fc0_0000;
const TRACE: u32 = 0x7ff0_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;
const ACTION: u32 = 0xffff_0000;

const ARCH: u32 = 0xc000_003e;

/// Runs the thread's filters on the system call at hand, and does what they say. `None`: the call
/// is allowed.
pub fn check(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<Flow> {
    if t.emulated.filters.list().next().is_some_and(|f| f.strict) {
        let allowed = [__NR_read, __NR_write, __NR_exit, __NR_rt_sigreturn];
        if allowed.contains(&nr) {
            return None;
        }
        end(t, nr, SIGKILL);
    }
    let next = t.ctx.rip + SYSCALL_LEN;
    let mut data: bpf::Data = [
        nr,
        ARCH,
        next as u32,
        (next >> 32) as u32,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    for (i, v) in a.iter().enumerate() {
        (data[4 + 2 * i], data[5 + 2 * i]) = (*v as u32, (*v >> 32) as u32);
    }
    let mut verdict = ALLOW;
    for f in t.emulated.filters.list() {
        let v = bpf::run(&f.code, &data);
        // The smallest action as a signed number wins.
        if ((v & ACTION) as i32) < (verdict & ACTION) as i32 {
            verdict = v;
        }
    }
    let low = verdict & !ACTION;
    match verdict & ACTION {
        ALLOW | LOG => None,
        ERRNO => {
            returned(t, errno(low.min(4095)));
            Some(Flow::Next)
        }
        // No process traces or listens.
        TRACE | USER_NOTIFICATION => {
            returned(t, errno(ENOSYS));
            Some(Flow::Next)
        }
        TRAP => {
            let mut info = information(nr, next);
            info.errno = low as i32;
            delivery::refused(t, &info, next);
            t.complete();
            Some(Flow::Jump)
        }
        KILL_THREAD if threads::count() > 1 => birth::exit(t, SIGSYS as i32),
        _ => end(t, nr, SIGSYS),
    }
}

/// Bytes of the instruction.
pub(super) const SYSCALL_LEN: u64 = 2;

/// What a handler is told of a call that was refused. `next` is the address behind it.
pub(super) fn information(nr: u32, next: u64) -> Info {
    const SYS_SECCOMP: i32 = 1;
    let mut info = Info {
        signo: SIGSYS as i32,
        code: SYS_SECCOMP,
        ..Info::default()
    };
    info.rest[0] = next;
    info.rest[1] = nr as u64 | (ARCH as u64) << 32;
    info
}

fn end(t: &mut Thread, nr: u32, signo: u32) -> ! {
    let next = t.ctx.rip + SYSCALL_LEN;
    let mut info = information(nr, next);
    info.signo = signo as i32;
    crate::signals::death::die(t, &info)
}

const TSYNC: u64 = 1;
const NEW_LISTENER: u64 = 8;
const TSYNC_ESRCH: u64 = 16;
const WAIT_KILLABLE: u64 = 32;

/// `seccomp(operation, flags, arguments)`. `None`: the kernel has to answer.
pub fn seccomp(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    let [operation, flags, at, ..] = *a;
    let refused = errno(EINVAL);
    match operation as u32 {
        // Takes neither flags nor an argument.
        0 => Some(if flags == 0 && at == 0 {
            strict(t)
        } else {
            refused
        }),
        1 => Some(filter(t, flags, at)),
        _ => None,
    }
}

/// Performs `prctl` about filters. `None`: the kernel has to answer.
pub fn prctl(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    const PR_GET_SECCOMP: u64 = 21;
    const PR_SET_SECCOMP: u64 = 22;
    match (a[0], a[1]) {
        (PR_GET_SECCOMP, _) if !t.emulated.filters.is_empty() => {
            Some(t.emulated.filters.state().0 as u64)
        }
        (PR_SET_SECCOMP, 1) => Some(strict(t)),
        (PR_SET_SECCOMP, 2) => Some(filter(t, 0, a[2])),
        _ => None,
    }
}

fn strict(t: &mut Thread) -> u64 {
    if !t.emulated.filters.is_empty() {
        return errno(EINVAL);
    }
    t.emulated.filters.add(Vec::new(), true);
    0
}

fn filter(t: &mut Thread, flags: u64, at: u64) -> u64 {
    // Other flags are unknown. Those for logging and speculation change nothing here.
    if flags >= 64
        || flags & (TSYNC | NEW_LISTENER | TSYNC_ESRCH) == TSYNC | NEW_LISTENER
        || flags & (WAIT_KILLABLE | NEW_LISTENER) == WAIT_KILLABLE
    {
        return errno(EINVAL);
    }
    match read(at) {
        Ok(code) => attach(t, flags, code),
        Err(e) => errno(e),
    }
}

fn read(at: u64) -> Result<Vec<Instruction>, u32> {
    const CAP_SYS_ADMIN: u32 = 21;
    let mut head = [0; 16];
    guard::read(at, &mut head).map_err(|_| EFAULT)?;
    let len = u16::from_le_bytes([head[0], head[1]]) as usize;
    if len == 0 || len > bpf::MOST {
        return Err(EINVAL);
    }
    if !sys::no_new_privileges() && !sys::has_capability(CAP_SYS_ADMIN) {
        return Err(EACCES);
    }
    let mut bytes = alloc::vec![0; 8 * len];
    let from = u64::from_le_bytes(core::array::from_fn(|i| head[8 + i]));
    guard::read(from, &mut bytes).map_err(|_| EFAULT)?;
    let code = instructions(&bytes);
    if !bpf::is_valid(&code) {
        return Err(EINVAL);
    }
    Ok(code)
}

fn attach(t: &mut Thread, flags: u64, code: Vec<Instruction>) -> u64 {
    /// The most instructions of all filters together. Each filter counts four more.
    const TOTAL: usize = 32768;
    if flags & NEW_LISTENER != 0 {
        end::unsupported(
            t,
            &line!(
                "unsupported: a seccomp filter that asks another process (SECCOMP_FILTER_FLAG_NEW_LISTENER)"
            ),
        );
    }
    let all = t
        .emulated
        .filters
        .list()
        .map(|f| f.code.len() + 4)
        .sum::<usize>();
    if all + code.len() > TOTAL {
        return errno(ENOMEM);
    }
    if flags & TSYNC != 0
        && let Err(tid) = synchronize(t, false)
    {
        return if flags & TSYNC_ESRCH != 0 {
            errno(ESRCH)
        } else {
            tid as u64
        };
    }
    t.emulated.filters.add(code, false);
    if flags & TSYNC != 0 {
        let _ = synchronize(t, true);
    }
    0
}

/// Gives the thread's filters to all others. Without `really`, only looks for a thread that has
/// other filters: the error is its number.
fn synchronize(t: &Thread, really: bool) -> Result<(), i32> {
    let mut other = Ok(());
    let own = &t.emulated.filters;
    threads::each(|tid, filters| {
        let newest = filters.list().next();
        if really {
            filters.copy(own);
        } else if newest.is_some_and(|n| !own.list().any(|f| core::ptr::eq(f, n))) {
            other = Err(tid);
        }
    });
    other
}
