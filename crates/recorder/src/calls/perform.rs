//! Performs the program's system calls. Nearly all go to the kernel as they are, known or not. A
//! call is treated here only if it would break the recorder, reveal it, or change what the recorder
//! must keep track of.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::calls::user_dispatch::PR_SET_SYSCALL_USER_DISPATCH;
use crate::calls::{channel, features, filters, mappings, paths, user_dispatch};
use crate::code::rights;
use crate::memory::{commons, limits, page_sharing, regime};
use crate::process::{birth, exec, fork};
use crate::signals::{delivery, doom, requests, sharers, traced};
use crate::sys::{self, clocks};
use crate::thread::call::{Flow, args, errno, returned};
use crate::thread::pass::{self, pass};
use crate::thread::{Thread, clone, threads};
use hindsight_events::Event;
use hindsight_isa::regs::{RAX, recorded};
use hindsight_syscalls::{DIRECT, has};
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// The kernel allows segment bases below this address.
const LAST_PAGE: u64 = (1 << 47) - sys::PAGE;
const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;
const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;

/// Components that every kernel with this call has a number for, up to that of AMX's tiles.
const XFEATURES: u64 = 19;
/// These enable shadow stacks and the like, which translated code does not support.
const ARCH_SHSTK: core::ops::Range<u64> = 0x5001..0x5006;

/// Performs the system call at `ctx.rip`, whose `Event::Syscall` was written at `t.pos`. After that
/// it is completed, and `t.pos` is behind it.
pub fn perform(t: &mut Thread) -> Flow {
    let a = args(t);
    // The kernel looks at the low half only.
    let nr = t.ctx.gpr[RAX] as u32;
    log!(
        Trace,
        "call {nr} ({}) {a:x?}",
        hindsight_syscalls::name(nr as u64).unwrap_or("unknown")
    );
    if t.emulated.dispatch.is_some()
        && let Some(flow) = user_dispatch::check(t, nr)
    {
        return flow;
    }
    if !t.emulated.filters.is_empty()
        && let Some(flow) = filters::check(t, nr, &a)
    {
        return flow;
    }
    if let Some(ret) = clocks::answer(nr, &a) {
        returned(t, ret.unwrap_or_else(errno));
        return Flow::Next;
    }
    if has(nr, DIRECT) {
        return match channel::shown(nr, &a).or_else(|| pass(t, nr, &a)) {
            Some(ret) => {
                returned(t, ret);
                Flow::Next
            }
            None => interrupted(t),
        };
    }
    page_sharing::before(t, nr, &a);
    commons::before(nr, &a);
    rights::before(nr, &a);
    regime::announce(t, nr, &a);
    if traced::before(t, nr, &a) {
        return interrupted(t);
    }
    let ret = match nr {
        __NR_rt_sigreturn => return requests::sigreturn(t),
        __NR_rt_sigaction => Some(requests::sigaction(t, &a)),
        __NR_rt_sigprocmask => requests::sigprocmask(t, &a),
        __NR_rt_sigpending => Some(requests::sigpending(t, &a)),
        __NR_rt_sigsuspend | __NR_ppoll | __NR_pselect6 | __NR_epoll_pwait | __NR_epoll_pwait2
        | __NR_io_pgetevents | __NR_io_uring_enter => requests::wait(t, nr, &a),
        __NR_rt_sigtimedwait => requests::take(t, &a),
        __NR_kill
        | __NR_tkill
        | __NR_tgkill
        | __NR_rt_sigqueueinfo
        | __NR_rt_tgsigqueueinfo
        | __NR_pidfd_send_signal => sharers::kill(t, nr, &a).or_else(|| doom::send(t, nr, &a)),
        __NR_sigaltstack => Some(requests::sigaltstack(t, &a)),
        // A signal that this thread has got would be lost with it, so it comes first.
        __NR_exit | __NR_exit_group if pass::comes_first(t) => None,
        __NR_exit if threads::count() > 1 => birth::exit(t, a[0] as i32),
        __NR_exit | __NR_exit_group => fork::exit(t),
        __NR_clone | __NR_clone3 | __NR_vfork if clone::shares_memory(nr, &a) => {
            Some(birth::clone(t, nr, &a))
        }
        __NR_clone | __NR_clone3 | __NR_fork | __NR_vfork => match fork::fork(t, nr, &a) {
            Some((_, Flow::Jump)) => return Flow::Jump,
            other => other.map(|(ret, _)| ret),
        },
        __NR_execve | __NR_execveat => exec::perform(t, nr, &a),
        __NR_arch_prctl => arch_prctl(t, &a),
        __NR_prctl if a[0] == PR_SET_SYSCALL_USER_DISPATCH => Some(user_dispatch::set(t, &a)),
        __NR_prctl => filters::prctl(t, &a)
            .or_else(|| features::prctl(t, &a))
            .or_else(|| pass(t, nr, &a)),
        __NR_seccomp => filters::seccomp(t, &a).or_else(|| pass(t, nr, &a)),
        __NR_rseq => Some(features::rseq(t, &a)),
        // As where the processor has no protection keys: `cpuid` shows none, and the instructions that read and
        // write their rights are not translated.
        __NR_pkey_alloc => Some(errno(ENOSPC)),
        // Would bring the whole window into memory.
        __NR_mlockall => Some(mappings::lock_all(a[0])),
        _ => match mappings::perform(t, nr, &a) {
            Some(flow) => return flow.unwrap_or_else(|| interrupted(t)),
            None => other(t, nr, &a),
        },
    };
    match ret {
        Some(ret) => {
            returned(t, ret);
            if nr == __NR_arch_prctl && ret == 0 {
                segment_bases(t, &a);
            }
            if ret == 0 {
                features::hide_components(nr, &a);
            }
            Flow::Next
        }
        None => interrupted(t),
    }
}

/// Passes a call on, unless it names something that belongs to the recorder.
fn other(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    if let Some(ret) = limits::perform(t, nr, a) {
        return Some(ret);
    }
    if let Some(ret) = channel::perform(t, nr, a).or_else(|| paths::perform(t, nr, a)) {
        return ret;
    }
    let ret = pass(t, nr, a)?;
    if ret == errno(EMFILE) && channel::give_way() {
        return pass(t, nr, a);
    }
    Some(ret)
}

/// A signal has come before the call began. It is delivered first. The program returns from its
/// handler to the call.
fn interrupted(t: &mut Thread) -> Flow {
    delivery::deliver_instead_of_call(t);
    Flow::Jump
}

fn arch_prctl(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    let [code, value, ..] = *a;
    let put = |v: u64| match crate::sys::guard::write(value, &v.to_le_bytes()) {
        Ok(()) => 0,
        Err(_) => errno(EFAULT),
    };
    Some(match code {
        ARCH_GET_FS => put(t.ctx.fs_base),
        ARCH_GET_GS => put(t.ctx.gs_base),
        ARCH_SET_FS | ARCH_SET_GS if value >= LAST_PAGE => errno(EPERM),
        ARCH_SET_FS => {
            t.ctx.fs_base = value;
            sys::set_fs_base(value);
            0
        }
        ARCH_SET_GS => {
            t.ctx.gs_base = value;
            0
        }
        // As on a processor that has no component with a permission of its own (AMX is not shown).
        ARCH_REQ_XCOMP_PERM if value < XFEATURES => errno(EOPNOTSUPP),
        ARCH_REQ_XCOMP_PERM => errno(EINVAL),
        c if ARCH_SHSTK.contains(&c) => errno(EINVAL),
        _ => {
            return features::arch_prctl(t, a).or_else(|| pass(t, __NR_arch_prctl, a));
        }
    })
}

/// Records that a segment base has changed.
fn segment_bases(t: &mut Thread, a: &[u64; 6]) {
    let register = match a[0] {
        ARCH_SET_FS => recorded::FS_BASE,
        ARCH_SET_GS => recorded::GS_BASE,
        _ => return,
    };
    let mut values = [0; recorded::COUNT];
    values[register] = a[1];
    t.event(&Event::Regs {
        mask: 1 << register,
        ilen: 0,
        values,
    });
}
