//! System calls about signals. The recorder answers them from its own state.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::signals::{actions, delivery, exceptions, frame};
use crate::sys::context::Info;
use crate::sys::{SigAction, guard};
use crate::thread::Thread;
use crate::thread::call::{Flow, errno};
use crate::thread::pass::{self, pass};
use crate::thread::signal_state::{AltStack, OWN, UNBLOCKABLE};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use hindsight_isa::regs::RSP;
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// Bytes of the kernel's signal set.
const SET: u64 = 8;
/// `MINSIGSTKSZ`
const MINIMUM_STACK: u64 = 2048;

fn write_words(addr: u64, words: &[u64]) -> bool {
    words
        .iter()
        .enumerate()
        .all(|(i, w)| guard::write(addr.wrapping_add(8 * i as u64), &w.to_le_bytes()).is_ok())
}

fn read_words<const N: usize>(addr: u64) -> Option<[u64; N]> {
    let mut out = [0; N];
    for (i, w) in out.iter_mut().enumerate() {
        *w = guard::load_u64(addr.wrapping_add(8 * i as u64)).ok()?;
    }
    Some(out)
}

/// `rt_sigaction(signo, new, old, size)`
pub fn sigaction(t: &Thread, a: &[u64; 6]) -> u64 {
    let [signo, new, old, size, ..] = *a;
    let signo = signo as u32;
    let fixed = signo == SIGKILL || signo == SIGSTOP;
    if size != SET || !(1..=64).contains(&signo) || (fixed && new != 0) {
        return errno(EINVAL);
    }
    let action = if new == 0 {
        None
    } else {
        let Some([handler, flags, restorer, mask]) = read_words(new) else {
            return errno(EFAULT);
        };
        Some(SigAction {
            handler,
            flags,
            restorer,
            mask,
        })
    };
    let before = actions::action(t, signo);
    if let Some(action) = action {
        actions::set_action(t, signo, action);
    }
    if old != 0
        && !write_words(
            old,
            &[before.handler, before.flags, before.restorer, before.mask],
        )
    {
        return errno(EFAULT);
    }
    0
}

/// `rt_sigprocmask(how, new, old, size)`. `None`: a signal has to be delivered first.
pub fn sigprocmask(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    let [how, new, old, size, ..] = *a;
    if size != SET {
        return Some(errno(EINVAL));
    }
    let before = t.signals.mask;
    if new != 0 {
        let Some([set]) = read_words(new) else {
            return Some(errno(EFAULT));
        };
        let mask = match how as u32 {
            SIG_BLOCK => before | set,
            SIG_UNBLOCK => before & !set,
            SIG_SETMASK => set,
            _ => return Some(errno(EINVAL)),
        };
        if !delivery::set_mask(t, mask) {
            return None;
        }
    }
    if old != 0 && !write_words(old, &[before]) {
        return Some(errno(EFAULT));
    }
    Some(0)
}

/// `rt_sigpending(set, size)`: the signals that the kernel keeps, and those that the recorder
/// holds.
pub fn sigpending(t: &mut Thread, a: &[u64; 6]) -> u64 {
    let [set, size, ..] = *a;
    let mut known = 0u64;
    let args = [&raw mut known as u64, SET, 0, 0, 0, 0];
    // SAFETY: the kernel writes one word, to `known`.
    let ret = unsafe { crate::sys::raw(__NR_rt_sigpending, args) };
    if size > SET {
        return errno(EINVAL);
    }
    let bytes = (known | t.signals.held()).to_le_bytes();
    if ret == 0 && guard::write(set, &bytes[..size as usize]).is_err() {
        return errno(EFAULT);
    }
    ret
}

/// `sigaltstack(new, old)`
pub fn sigaltstack(t: &mut Thread, a: &[u64; 6]) -> u64 {
    let [new, old, ..] = *a;
    let wanted = if new == 0 {
        None
    } else {
        let Some(w) = read_words::<3>(new) else {
            return errno(EFAULT);
        };
        Some(w)
    };
    let before = t.signals.alt;
    let state = if before.size == 0 {
        SS_DISABLE
    } else if before.contains(t.ctx.gpr[RSP]) {
        SS_ONSTACK
    } else {
        0
    };
    if let Some(w) = wanted
        && let Err(e) = set_altstack(t, w)
    {
        return errno(e);
    }
    let flags = (state | before.flags & SS_AUTODISARM) as u64;
    if old != 0 && !write_words(old, &[before.base, flags, before.size]) {
        return errno(EFAULT);
    }
    0
}

fn set_altstack(t: &mut Thread, [base, flags, size]: [u64; 3]) -> Result<(), u32> {
    let flags = flags as u32;
    let mode = flags & !SS_AUTODISARM;
    if t.signals.alt.contains(t.ctx.gpr[RSP]) {
        return Err(EPERM);
    }
    if mode != 0 && mode != SS_ONSTACK && mode != SS_DISABLE {
        return Err(EINVAL);
    }
    t.signals.alt = match mode {
        SS_DISABLE => AltStack {
            flags,
            ..AltStack::NONE
        },
        _ if size < MINIMUM_STACK => return Err(ENOMEM),
        _ => AltStack {
            base,
            flags: flags & SS_AUTODISARM,
            size,
        },
    };
    Ok(())
}

/// The mask that a call wants to have while it waits: its address and size, as the call names them.
fn temporary_mask(nr: u32, a: &[u64; 6]) -> Option<(u64, u64)> {
    /// Flags of `io_uring_enter`. They say whether there is a mask, and where.
    const GET_EVENTS: u64 = 1;
    const EXTENDED: u64 = 8;
    // The argument points to a structure of address and size.
    let indirect = |at: u64| read_words(at).map(|[mask, size]| (mask, size));
    let named = match nr {
        __NR_rt_sigsuspend => (a[0], a[1]),
        __NR_ppoll => (a[3], a[4]),
        __NR_epoll_pwait | __NR_epoll_pwait2 => (a[4], a[5]),
        __NR_pselect6 | __NR_io_pgetevents if a[5] != 0 => indirect(a[5])?,
        __NR_io_uring_enter if a[3] & GET_EVENTS == 0 => return None,
        __NR_io_uring_enter if a[3] & EXTENDED != 0 => {
            let (mask, size) = indirect(a[4])?;
            (mask, size & 0xffff_ffff)
        }
        __NR_io_uring_enter => (a[4], a[5]),
        _ => return None,
    };
    (named.0 != 0).then_some(named)
}

/// Makes a call that waits, perhaps with a mask of its own. A signal that ends the call is
/// delivered under that mask. `None`: a signal has to be delivered first.
pub fn wait(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    let mask = match temporary_mask(nr, a) {
        Some((at, SET)) => read_words(at).map(|[mask]| mask),
        // The kernel will find the same error.
        _ => None,
    };
    if let Some(mask) = mask {
        t.signals.meanwhile.store(mask & !UNBLOCKABLE, SeqCst);
    }
    let ret = pass(t, nr, a);
    t.signals.meanwhile.store(OWN, Relaxed);
    let ret = ret?;
    if let Some(mask) = mask
        && ret == errno(EINTR)
        && pass::waiting(t)
    {
        t.signals.suspended = Some(mask);
    }
    Some(ret)
}

/// `rt_sigtimedwait(set, info, timeout, size)`. `None`: a signal has to be delivered first.
pub fn take(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    if let Some([set]) = read_words(a[0]) {
        t.signals.awaited.store(set, SeqCst);
    }
    let mut info = Info::default();
    let mut own = *a;
    own[1] = &raw mut info as u64;
    let ret = loop {
        let ret = pass(t, __NR_rt_sigtimedwait, &own);
        // Errors are negative.
        if ret.is_none_or(|ret| ret >> 63 != 0) {
            break ret;
        }
        // If this fails, another thread was quicker.
        if let Some(meant) = delivery::meant(t, info) {
            info = meant;
            break ret;
        }
    };
    t.signals.awaited.store(0, Relaxed);
    let taken = ret.is_some_and(|ret| ret >> 63 == 0);
    if taken && a[1] != 0 && guard::write(a[1], &info.bytes()).is_err() {
        return Some(errno(EFAULT));
    }
    ret
}

/// `rt_sigreturn()`
pub fn sigreturn(t: &mut Thread) -> Flow {
    let Some(r) = frame::pop(t) else {
        // The kernel's answer to a bad frame.
        exceptions::bad_frame(t);
        t.complete();
        return Flow::Jump;
    };
    frame::emit_state(t);
    t.complete();
    let _ = set_altstack(t, r.stack);
    if !delivery::set_mask(t, r.mask) {
        // A signal came while the handler's mask still applied. It is delivered as if it had come
        // before this call. Its own return will restore the mask that this call has asked for.
        t.signals.mask = r.mask & !UNBLOCKABLE;
    }
    Flow::Jump
}
