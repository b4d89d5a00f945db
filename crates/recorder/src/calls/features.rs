//! What the program has forbidden itself: `cpuid`, and reading the time stamp counter. The kernel
//! is not told, since the recorder uses both.
//!
//! Also hides register sets that the program's processor does not show, though the kernel knows
//! them.
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

/// Performs `arch_prctl` about `cpuid`. `None`: it is about something else.
pub fn arch_prctl(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    match a[0] {
        ARCH_GET_CPUID => Some(!t.emulated.forbidden.cpuid as u64),
        ARCH_SET_CPUID => {
            // Allowing changes nothing. The kernel's answer tells whether the processor can forbid
            // it.
            let ask = [ARCH_SET_CPUID, 1, 0, 0, 0, 0];
            // SAFETY: the call has no pointers, and allows what is allowed already.
            let ret = unsafe { sys::raw(__NR_arch_prctl, ask) };
            if ret == 0 {
                t.emulated.forbidden.cpuid = a[1] == 0;
            }
            Some(ret)
        }
        _ => None,
    }
}

/// Performs `prctl` about the time stamp counter. `None`: it is about something else.
pub fn prctl(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    match a[0] {
        PR_GET_TSC => {
            let mode = if t.emulated.forbidden.tsc {
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
            t.emulated.forbidden.tsc = mode == TSC_FORBIDDEN;
            Some(0)
        }
        _ => None,
    }
}

/// Called after a call that returned 0. Removes register sets that `cpuid` and `xgetbv` do not show
/// (AMX) from what the kernel has told. Debuggers compare the two.
pub fn hide_components(nr: u32, a: &[u64; 6]) {
    const ARCH_GET_XCOMP: [u64; 3] = [0x1021, 0x1022, 0x1024];
    const PTRACE_GETREGSET: u64 = 0x4204;
    const NT_X86_XSTATE: u64 = 0x202;
    /// Offsets in the area of two masks: the components that exist, and those in use.
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

/// `rseq(addr, len, flags, sig)`. A recorded program has no restartable sequences.
///
/// In a process that ran before it was recorded, the C library expects that what worked for its
/// first thread works for others. There the call succeeds, but the area goes on saying that no
/// processor number is known.
pub fn rseq(t: &mut Thread, a: &[u64; 6]) -> u64 {
    if config::get().attached == 0 {
        return errno(linux_raw_sys::errno::ENOSYS);
    }
    let asked = rseq::Rseq {
        addr: a[0],
        len: a[1] as u32,
        sig: a[3] as u32,
    };
    match (a[2], t.emulated.rseq) {
        (rseq::UNREGISTER, Some(r)) if (r.addr, r.len) != (asked.addr, asked.len) => errno(EINVAL),
        (rseq::UNREGISTER, Some(r)) if r.sig != asked.sig => errno(EPERM),
        (rseq::UNREGISTER, Some(_)) => {
            t.emulated.rseq = None;
            0
        }
        (0, Some(r)) if r == asked => errno(EBUSY),
        (0, None) if asked.addr != 0 => {
            t.emulated.rseq = Some(asked);
            0
        }
        _ => errno(EINVAL),
    }
}
