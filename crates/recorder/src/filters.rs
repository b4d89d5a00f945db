//! Filters of system calls that the program sets for itself (seccomp).
//!
//! The kernel would apply them to the recorder's own calls too, so it is not told of them: the
//! recorder runs each filter before it makes the program's call. Filters are never removed, and
//! pass to threads, children and executed programs.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::bpf::{self, Instruction};
use crate::call::returned;
use crate::call::{Flow, errno};
use crate::context::Info;
use crate::end;
use crate::thread::Thread;
use crate::threads;
use crate::{birth, guard, line, signals, sys};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// A filter and those that were there before it. Lives as long as the process.
struct Filter {
    code: Vec<Instruction>,
    before: *const Filter,
    /// Only reading, writing, returning from handlers and ending are allowed.
    strict: bool,
}

/// Some thread has filters; the command line looks at it before it would leave the process.
#[unsafe(no_mangle)]
static HINDSIGHT_FILTERED: AtomicU32 = AtomicU32::new(0);

/// The filters of a thread.
pub struct Filters(AtomicPtr<Filter>);

impl Filters {
    pub const fn new() -> Filters {
        Filters(AtomicPtr::new(null_mut()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }

    /// Takes over those of another thread.
    pub fn copy(&self, other: &Filters) {
        self.0.store(other.0.load(Acquire), Release);
    }

    /// From the newest to the oldest.
    fn list(&self) -> impl Iterator<Item = &'static Filter> {
        let mut next = self.0.load(Acquire).cast_const();
        core::iter::from_fn(move || {
            // SAFETY: filters are leaked boxes, or null at the end.
            let f = unsafe { next.as_ref() }?;
            next = f.before;
            Some(f)
        })
    }

    fn add(&self, code: Vec<Instruction>, strict: bool) {
        let before = self.0.load(Acquire);
        let f = Filter {
            code,
            before,
            strict,
        };
        self.0.store(Box::leak(Box::new(f)), Release);
        HINDSIGHT_FILTERED.store(1, Release);
    }

    /// The kernel's number for the mode, and the number of filters.
    pub fn state(&self) -> (u32, usize) {
        match self.list().next() {
            None => (0, 0),
            Some(f) if f.strict => (STRICT_MODE, 0),
            Some(_) => (FILTER_MODE, self.list().count()),
        }
    }

    /// For an executed program: from the oldest, each with its length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all: Vec<_> = self.list().collect();
        all.reverse();
        let mut out = Vec::new();
        for f in all {
            out.extend_from_slice(&(f.code.len() as u32).to_le_bytes());
            for i in &f.code {
                out.extend_from_slice(&i.code.to_le_bytes());
                out.extend_from_slice(&i.jump);
                out.extend_from_slice(&i.k.to_le_bytes());
            }
        }
        out
    }

    /// Adds what [`Filters::to_bytes`] gave.
    pub fn inherit(&self, mut bytes: &[u8]) {
        while let Some((len, rest)) = bytes.split_first_chunk() {
            let n = (u32::from_le_bytes(*len) as usize * 8).min(rest.len());
            self.add(instructions(&rest[..n]), false);
            bytes = &rest[n..];
        }
    }

    /// Has the kernel apply them from now on: for a program that runs unrecorded.
    pub fn install(&self) {
        let mut all: Vec<_> = self.list().collect();
        all.reverse();
        for f in all {
            sys::install_filter(f.code.len() as u16, f.code.as_ptr() as u64);
        }
    }
}

const STRICT_MODE: u32 = 1;
const FILTER_MODE: u32 = 2;

const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIFICATION: u32 = 0x7fc0_0000;
const TRACE: u32 = 0x7ff0_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;
const ACTION: u32 = 0xffff_0000;

const ARCH: u32 = 0xc000_003e;

fn instructions(bytes: &[u8]) -> Vec<Instruction> {
    let one = |b: &[u8; 8]| Instruction {
        code: u16::from_le_bytes([b[0], b[1]]),
        jump: [b[2], b[3]],
        k: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
    };
    bytes.as_chunks().0.iter().map(one).collect()
}

/// What the thread's filters have instead of the system call at hand; `None`: it is allowed.
pub fn check(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<Flow> {
    if t.filters.list().next().is_some_and(|f| f.strict) {
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
    for f in t.filters.list() {
        let v = bpf::run(&f.code, &data);
        // The order of precedence is that of signed numbers.
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
        // Nobody traces or listens.
        TRACE | USER_NOTIFICATION => {
            returned(t, errno(ENOSYS));
            Some(Flow::Next)
        }
        TRAP => {
            let mut info = information(nr, next);
            info.errno = low as i32;
            signals::refused(t, &info, next);
            t.complete();
            Some(Flow::Jump)
        }
        KILL_THREAD if threads::count() > 1 => birth::exit(t, SIGSYS as i32),
        _ => end(t, nr, SIGSYS),
    }
}

const SYSCALL_LEN: u64 = 2;

fn information(nr: u32, next: u64) -> Info {
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
    crate::death::die(t, &info)
}

const TSYNC: u64 = 1;
const NEW_LISTENER: u64 = 8;
const TSYNC_ESRCH: u64 = 16;
const WAIT_KILLABLE: u64 = 32;

/// `seccomp(operation, flags, arguments)`. `None`: the kernel is to answer.
pub fn seccomp(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    let [operation, flags, at, ..] = *a;
    let refused = errno(EINVAL);
    match operation as u32 {
        // Without arguments and flags.
        0 => Some(if flags == 0 && at == 0 {
            strict(t)
        } else {
            refused
        }),
        1 => Some(filter(t, flags, at)),
        _ => None,
    }
}

/// `prctl` of these. `None`: the kernel is to answer.
pub fn prctl(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    const PR_GET_SECCOMP: u64 = 21;
    const PR_SET_SECCOMP: u64 = 22;
    match (a[0], a[1]) {
        (PR_GET_SECCOMP, _) if !t.filters.is_empty() => Some(t.filters.state().0 as u64),
        (PR_SET_SECCOMP, 1) => Some(strict(t)),
        (PR_SET_SECCOMP, 2) => Some(filter(t, 0, a[2])),
        _ => None,
    }
}

fn strict(t: &mut Thread) -> u64 {
    if !t.filters.is_empty() {
        return errno(EINVAL);
    }
    t.filters.add(Vec::new(), true);
    0
}

fn filter(t: &mut Thread, flags: u64, at: u64) -> u64 {
    // More than these are unknown; log and speculation change nothing here.
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
    /// Most instructions of all filters, each of which counts four more.
    const TOTAL: usize = 32768;
    if flags & NEW_LISTENER != 0 {
        end::unsupported(
            t,
            &line!(
                "unsupported: a seccomp filter that asks another process (SECCOMP_FILTER_FLAG_NEW_LISTENER)"
            ),
        );
    }
    let all = t.filters.list().map(|f| f.code.len() + 4).sum::<usize>();
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
    t.filters.add(code, false);
    if flags & TSYNC != 0 {
        let _ = synchronize(t, true);
    }
    0
}

/// Gives the thread's filters to all others. Not `really`: only looks for one that has others.
fn synchronize(t: &Thread, really: bool) -> Result<(), i32> {
    let mut other = Ok(());
    let own = &t.filters;
    threads::each(|tid, filters| {
        let newest = filters.0.load(Acquire).cast_const();
        if really {
            filters.copy(own);
        } else if !newest.is_null() && !own.list().any(|f| core::ptr::eq(f, newest)) {
            other = Err(tid);
        }
    });
    other
}
