//! Limits on what the process may use.
//!
//! The kernel counts into `RLIMIT_AS` and `RLIMIT_DATA` what the recorder maps, the windows above
//! all. So the recorder keeps these two itself and compares them with the program's own mappings.
//! The kernel gets them only when a program runs natively.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::memory::maps::{Region, is_data, regions};
use crate::sys::{self, guard, resources};
use crate::thread::Thread;
use crate::thread::call::errno;
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// Index of a limit in [`resources::Limits`]. `None` if the kernel keeps it.
fn index(resource: u32) -> Option<usize> {
    match resource {
        RLIMIT_AS => Some(0),
        RLIMIT_DATA => Some(1),
        _ => None,
    }
}

/// Performs a call that reads or sets one of these limits of this process. `None` if the call is
/// about something else.
pub fn perform(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    let (resource, new, old) = match nr {
        __NR_getrlimit => (a[0], 0, a[1]),
        __NR_setrlimit => (a[0], a[1], 0),
        __NR_prlimit64 if a[0] as i32 == 0 || a[0] as i32 == sys::getpid() => (a[1], a[2], a[3]),
        _ => return None,
    };
    let i = index(resource as u32)?;
    let mut limits = t.emulated.limits.lock();
    let was = limits[i];
    let mut bytes = [0; 16];
    if new != 0 || nr == __NR_setrlimit {
        if guard::read(new, &mut bytes).is_err() {
            return Some(errno(EFAULT));
        }
        let wanted = words(&bytes);
        if wanted[0] > wanted[1] {
            return Some(errno(EINVAL));
        }
        if wanted[1] > was[1] && !sys::may_raise_limits() {
            return Some(errno(EPERM));
        }
        limits[i] = wanted;
    }
    if old != 0 || nr == __NR_getrlimit {
        bytes[..8].copy_from_slice(&was[0].to_le_bytes());
        bytes[8..].copy_from_slice(&was[1].to_le_bytes());
        if guard::write(old, &bytes).is_err() {
            return Some(errno(EFAULT));
        }
    }
    Some(0)
}

fn words(b: &[u8; 16]) -> [u64; 2] {
    core::array::from_fn(|i| u64::from_le_bytes(core::array::from_fn(|j| b[8 * i + j])))
}

/// Whether the program may have `len` more bytes of address space. What is mapped in
/// `replaced..replaced+len` is given up. `data`: the new memory is private and writable.
pub fn allow(t: &Thread, len: u64, replaced: Option<u64>, data: bool) -> bool {
    let [[space, _], [most, _]] = *t.emulated.limits.lock();
    if space == u64::MAX && (most == u64::MAX || !data) {
        return true;
    }
    let regions = regions();
    let (all, all_data) = regions.bytes();
    let gone = |only: &dyn Fn(&Region) -> bool| {
        let Some(at) = replaced else { return 0 };
        let cut = |r: &Region| r.end.min(at.saturating_add(len)) - r.start.max(at);
        let meant = regions.overlapping(at, len).filter(|r| only(r));
        meant.map(cut).sum::<u64>()
    };
    (all - gone(&|_| true)).saturating_add(len) <= space
        && (!data || (all_data - gone(&is_data)).saturating_add(len) <= most)
}

/// Gives the kernel the limits, for a program that runs natively. [`lift`] undoes it.
pub fn apply(t: &Thread) {
    for (resource, l) in [RLIMIT_AS, RLIMIT_DATA]
        .into_iter()
        .zip(*t.emulated.limits.lock())
    {
        if resources::get(resource) != (l[0], l[1]) {
            // The hard limit stays: it could not be raised again if the program cannot be executed.
            let (_, hard) = resources::get(resource);
            let _ = sys::limit(resource, Some((l[0].min(hard), hard)));
        }
    }
}

/// Gives the kernel the limits for good.
pub fn restore(t: &Thread) {
    for (resource, l) in [RLIMIT_AS, RLIMIT_DATA]
        .into_iter()
        .zip(*t.emulated.limits.lock())
    {
        if resources::get(resource) != (l[0], l[1]) {
            let _ = sys::limit(resource, Some((l[0], l[1])));
        }
    }
}

/// Undoes [`apply`].
pub fn lift() {
    for resource in [RLIMIT_AS, RLIMIT_DATA] {
        let (soft, hard) = resources::get(resource);
        if soft != hard {
            let _ = sys::limit(resource, Some((hard, hard)));
        }
    }
}
