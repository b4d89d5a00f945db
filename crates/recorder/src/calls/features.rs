//! Instructions that the program has forbidden itself: `cpuid` and reading the time stamp counter. The
//! kernel is not told, since the recorder uses them. And register sets that the program's processor has not, though
//! the kernel knows them.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::code::processor;
use crate::sys::{self, config, guard};
use crate::thread::call::errno;
use crate::thread::{Thread, rseq};
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

const ARCH_GET_CPUID: u64 = 0x1011;
const ARCH_SET_CPUID: u64 = 0x1012;
const PR_GET_TSC: u64 = 25;
const PR_SET_TSC: u64 = 26;
const TSC_ALLOWED: u32 = 1;
const TSC_FORBIDDEN: u32 = 2;

/// `arch_prctl` of these. `None`: it is another one.
pub fn arch_prctl(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    match a[0] {
        ARCH_GET_CPUID => Some(!t.forbidden.cpuid as u64),
        ARCH_SET_CPUID => {
            // Allowing it changes nothing, and tells whether the processor can forbid it.
            let ask = [ARCH_SET_CPUID, 1, 0, 0, 0, 0];
            // SAFETY: no pointers.
            let ret = unsafe { sys::raw(__NR_arch_prctl, ask) };
            if ret == 0 {
                t.forbidden.cpuid = a[1] == 0;
            }
            Some(ret)
        }
        _ => None,
    }
}

/// `prctl` of these. `None`: it is another one.
pub fn prctl(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    match a[0] {
        PR_GET_TSC => {
            let mode = if t.forbidden.tsc {
                TSC_FORBIDDEN
            } else {
                TSC_ALLOWED
            };
            let written = guard::write(a[1], &mode.to_le_bytes());
            Some(if written.is_ok() { 0 } else { errno(EFAULT) })
        }
        PR_SET_TSC => {
            let mode = a[1] as u32;
            if mode != TSC_ALLOWED && mode != TSC_FORBIDDEN {
                return Some(errno(EINVAL));
            }
            t.forbidden.tsc = mode == TSC_FORBIDDEN;
            Some(0)
        }
        _ => None,
    }
}

/// Behind a call that returned 0: takes the register sets away from what the kernel tells that `cpuid` and `xgetbv`
/// do not show (AMX). Debuggers compare the two.
pub fn hide_components(nr: u32, a: &[u64; 6]) {
    const ARCH_GET_XCOMP: [u64; 3] = [0x1021, 0x1022, 0x1024];
    const PTRACE_GETREGSET: u64 = 0x4204;
    const NT_X86_XSTATE: u64 = 0x202;
    /// Where the components that there are stand in the area, and those that are in use.
    const COMPONENTS: [u64; 2] = [464, 512];
    let hide = |at: u64| {
        let Ok(told) = guard::load_u64(at) else {
            return;
        };
        let shown = told & processor::xcr0();
        if shown != told {
            let _ = guard::write(at, &shown.to_le_bytes());
        }
    };
    match nr {
        __NR_arch_prctl if ARCH_GET_XCOMP.contains(&a[0]) => hide(a[1]),
        __NR_ptrace if a[0] == PTRACE_GETREGSET && a[2] == NT_X86_XSTATE => {
            if let (Ok(area), Ok(len)) = (guard::load_u64(a[3]), guard::load_u64(a[3] + 8)) {
                let whole = COMPONENTS.into_iter().filter(|at| at + 8 <= len);
                whole.for_each(|at| hide(area + at));
            }
        }
        _ => {}
    }
}

/// `rseq(addr, len, flags, sig)`. In a process that ran before, the C library relies on it that
/// what was possible for its first thread is for others. So it succeeds, but the area goes on
/// saying that no processor number is known.
pub fn rseq(t: &mut Thread, a: &[u64; 6]) -> u64 {
    if config::get().attached == 0 {
        return errno(linux_raw_sys::errno::ENOSYS);
    }
    let asked = rseq::Rseq {
        addr: a[0],
        len: a[1] as u32,
        sig: a[3] as u32,
    };
    match (a[2], t.rseq) {
        (rseq::UNREGISTER, Some(r)) if (r.addr, r.len) != (asked.addr, asked.len) => errno(EINVAL),
        (rseq::UNREGISTER, Some(r)) if r.sig != asked.sig => errno(EPERM),
        (rseq::UNREGISTER, Some(_)) => {
            t.rseq = None;
            0
        }
        (0, Some(r)) if r == asked => errno(EBUSY),
        (0, None) if asked.addr != 0 => {
            t.rseq = Some(asked);
            0
        }
        _ => errno(EINVAL),
    }
}
