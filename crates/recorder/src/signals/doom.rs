//! Signals that are sure to kill the process.
//!
//! The kernel stops all threads of a process when such a signal is sent. Here, the thread that gets
//! the signal first has to come to a safepoint. Two rules hide that delay:
//!
//! - Until that thread has died, the other threads make no further system calls. So nobody sees
//!   anything of them.
//! - A thread that sends such a signal to its own process does not return from that call.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::line;
use crate::memory::maps;
use crate::signals::{cores, traced};
use crate::sys::context::Info;
use crate::sys::{self, guard, stop};
use crate::thread::pass::{self, pass};
use crate::thread::signal_state::{SYNCHRONOUS, bit};
use crate::thread::{Thread, threads};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering::*};
use linux_raw_sys::general::*;

/// Process id, shifted by 8, and number of a signal that will kill the process. 0: there is none.
/// The process id is needed since others may run in this memory, or be a copy of it.
static CERTAIN: AtomicU64 = AtomicU64::new(0);

/// For the handler: the calling thread has got a signal. `deadly` is the mask of those that kill.
pub fn note(signo: i32, deadly: u64) {
    // The program may have blocked fault signals, which the kernel does not know.
    if deadly & !SYNCHRONOUS & bit(signo as u32) != 0 {
        CERTAIN.store((sys::getpid() as u64) << 8 | signo as u64, Relaxed);
    }
}

/// Whether a signal that a thread has got is sure to kill it, whatever has been done since.
pub fn is_certain(signo: u32) -> bool {
    let certain = CERTAIN.load(Relaxed);
    certain as u8 as u32 == signo && is_ours(certain)
}

fn is_ours(certain: u64) -> bool {
    certain != 0 && certain >> 8 == sys::getpid() as u64
}

/// Called before a system call. Does not return if another thread is about to kill the process.
pub fn before_call(t: &mut Thread) {
    let certain = CERTAIN.load(Relaxed);
    if certain != 0 && !pass::waiting(t) && is_ours(certain) {
        cores::rest(t);
    }
}

/// How often a thread looks whether another one dumps core, [`PAUSE`] apart.
const LOOKS: u32 = 10_000;
/// Microseconds.
const PAUSE: u64 = 500;

/// Makes a call that sends a signal. `None`: another signal has to be delivered first.
pub fn send(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    // If this thread is the only one, it gets the signal before its next instruction.
    if threads::is_alone() || t.task.borrows || traced::by_recorded() {
        return pass(t, nr, a);
    }
    let Some(info) = deadly(t, nr, a) else {
        return pass(t, nr, a);
    };
    let signo = info.signo as u32;
    if target(nr, a).is_none() && t.task.tid == sys::getpid() && t.signals.takes(signo) {
        // The kernel prefers the first thread of a process, which is this one. So this thread gets
        // the signal before its next instruction.
        return pass(t, nr, a);
    }
    sys::set_signal_mask(!0);
    if pass::waiting(t) {
        return None;
    }
    let taken = match target(nr, a) {
        Some(tid) => tid != t.task.tid && threads::one_takes(tid, signo),
        None => threads::takes(t, signo).is_some(),
    };
    // SAFETY: a call that sends a signal writes no memory.
    let ret = unsafe { sys::raw(nr, *a) };
    if ret != 0 || !taken {
        pass::unblock(t);
    } else if !cores::dumps_core(signo) {
        // Whichever thread gets it, all will be dead. So this one dies of it, too.
        note(info.signo, t.signals.actions.deadly());
        t.inbox.put(&info);
        sys::set_signal_mask(!SYNCHRONOUS);
    } else {
        // The core dump has to name the thread that the kernel has chosen.
        pass::unblock(t);
        for _ in 0..LOOKS {
            if pass::waiting(t) || stop::is_dying() {
                break;
            }
            sys::sleep_us(PAUSE);
        }
    }
    Some(ret)
}

/// The signal that the call sends to this process or one of its threads, if it kills whoever does
/// not block it.
fn deadly(t: &Thread, nr: u32, a: &[u64; 6]) -> Option<Info> {
    const SI_USER: i32 = 0;
    const SI_TKILL: i32 = -6;
    let (signo, code, from) = match nr {
        __NR_kill => (a[1], SI_USER, 0),
        __NR_tkill => (a[1], SI_TKILL, 0),
        __NR_tgkill => (a[2], SI_TKILL, 0),
        __NR_rt_sigqueueinfo => (a[1], SI_USER, a[2]),
        __NR_rt_tgsigqueueinfo => (a[2], SI_USER, a[3]),
        _ => (a[1], SI_USER, a[2]),
    };
    let signo = signo as i32;
    let known = (1..=64).contains(&signo) && t.signals.actions.deadly() & bit(signo as u32) != 0;
    if !known || signo as u32 == SIGKILL || !aims_here(nr, a) {
        return None;
    }
    let mut info = Info {
        signo,
        code,
        ..Info::default()
    };
    info.rest[0] = sys::getpid() as u64 | (sys::user() as u64) << 32;
    if from != 0 {
        let mut bytes = [0; size_of::<Info>()];
        guard::read(from, &mut bytes).ok()?;
        info = Info::from_bytes(&bytes);
        // The kernel does so, too.
        info.signo = signo;
    }
    Some(info)
}

/// The single thread to which the call sends its signal. `None` if it sends to a process.
fn target(nr: u32, a: &[u64; 6]) -> Option<i32> {
    match nr {
        __NR_tkill => Some(a[0] as i32),
        __NR_tgkill | __NR_rt_tgsigqueueinfo => Some(a[1] as i32),
        _ => None,
    }
}

/// Whether the call sends its signal to this process, perhaps among others.
fn aims_here(nr: u32, a: &[u64; 6]) -> bool {
    let id = a[0] as i32;
    match nr {
        // The list of threads will tell.
        __NR_tkill => true,
        __NR_pidfd_send_signal => process_of(id) == Some(sys::getpid()),
        // -1 stands for all but the caller.
        __NR_kill if id < -1 => -id == sys::process_group(),
        __NR_kill if id == 0 => true,
        _ => id == sys::getpid(),
    }
}

/// The process that a descriptor stands for.
fn process_of(fd: i32) -> Option<i32> {
    let path = line!("/proc/self/fdinfo/{fd}\0");
    let text = maps::read_file(CStr::from_bytes_until_nul(path.as_bytes()).ok()?);
    let mut lines = text.split(|b| *b == b'\n');
    let pid = lines.find_map(|l| l.strip_prefix(b"Pid:\t"))?;
    core::str::from_utf8(pid).ok()?.parse().ok()
}
