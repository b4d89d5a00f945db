//! Signals of the calling thread.

use super::{Result, call, getpid, gettid};
use linux_raw_sys::general::*;

/// Sends the signal of `info` to the calling thread once more.
pub fn queue_signal(info: &crate::sys::context::Info) {
    queue_signal_to(gettid(), info);
}

/// Sends the signal of `info` to a thread of this process.
pub fn queue_signal_to(tid: i32, info: &crate::sys::context::Info) {
    let a = [
        getpid() as u64,
        tid as u64,
        info.signo as u64,
        core::ptr::from_ref(info) as u64,
    ];
    let _ = call(__NR_rt_tgsigqueueinfo, a);
}

/// Sends a signal to the calling thread.
pub fn raise(signo: i32) {
    let _ = call(
        __NR_tgkill,
        [getpid() as u64, gettid() as u64, signo as u64],
    );
}

/// Replaces the calling thread's mask of blocked signals. Returns the mask before.
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let _ = call(
        __NR_rt_sigprocmask,
        [
            SIG_SETMASK as u64,
            &raw const mask as u64,
            &raw mut old as u64,
            8,
        ],
    );
    old
}

/// The calling thread's mask of blocked signals.
pub fn signal_mask() -> u64 {
    let mut old = 0u64;
    let _ = call(
        __NR_rt_sigprocmask,
        [SIG_SETMASK as u64, 0, &raw mut old as u64, 8],
    );
    old
}

/// Mask of the signals that are blocked and wait for the calling thread or its process.
pub fn pending_signals() -> u64 {
    let mut set = 0u64;
    let _ = call(__NR_rt_sigpending, [&raw mut set as u64, 8]);
    set
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct SigAction {
    /// Address of the handler, or 0 for the default, or 1 to ignore the signal.
    pub handler: u64,
    /// `SA_` flags.
    pub flags: u64,
    /// Address of the code that returns from the handler.
    pub restorer: u64,
    /// Mask of the signals that are blocked while the handler runs.
    pub mask: u64,
}

/// Sets the action of a signal, if `new` is given. Returns the action before.
///
/// # Safety
/// A handler in `new` must be able to run at any point of the process.
pub unsafe fn sigaction(signo: i32, new: Option<&SigAction>) -> Result<SigAction> {
    let mut old = SigAction::default();
    let new = new.map_or(0, |n| core::ptr::from_ref(n) as u64);
    call(
        __NR_rt_sigaction,
        [signo as u64, new, &raw mut old as u64, 8],
    )
    .map(|_| old)
}

/// Makes `base..base+len` the calling thread's stack for signal handlers.
///
/// # Safety
/// The range is writable and serves nothing else.
pub unsafe fn sigaltstack(base: u64, len: u64) -> Result<()> {
    let ss = [base, 0, len];
    call(__NR_sigaltstack, [ss.as_ptr() as u64, 0]).map(drop)
}

/// As [`sigaltstack()`]. Returns the stack before: start, flags, size.
///
/// # Safety
/// The range is writable and serves nothing else.
pub unsafe fn exchange_altstack((base, len): (u64, u64)) -> Result<[u64; 3]> {
    let (ss, mut old) = ([base, 0, len], [0u64; 3]);
    call(
        __NR_sigaltstack,
        [ss.as_ptr() as u64, old.as_mut_ptr() as u64],
    )
    .map(|_| old)
}

/// Gives the kernel the program's alternate stack: start, flags, size. The calling thread uses
/// neither the old nor the new one.
pub fn restore_altstack(ss: [u64; 3]) {
    let _ = call(__NR_sigaltstack, [ss.as_ptr() as u64, 0]);
}

/// Sleeps until a signal has been handled.
pub fn pause() {
    let _ = call(__NR_pause, []);
}
