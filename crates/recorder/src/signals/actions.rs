//! What the program has said that its signals do, and what the kernel is told of that.

use crate::signals::handler::{entry, restorer};
use crate::sys::{self, SigAction};
use crate::thread::Thread;
use crate::thread::signal_actions::{NONE, SIG_IGN, Table, is_deadly};
use crate::thread::signal_state::{SYNCHRONOUS, UNBLOCKABLE, bit};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use linux_raw_sys::general::*;

/// This process, or the one of which it is a copy, is the first of a namespace of process ids.
static WAS_FIRST: AtomicBool = AtomicBool::new(false);

/// Whether this process is the first of a namespace of process ids. The kernel gives it no signals for which it
/// has no handler, except for faults of its instructions.
pub fn is_first() -> bool {
    sys::getpid() == 1
}

/// Sets an action for the program and for the kernel. `list` is that of the thread.
fn set(t: &Thread, list: &mut [SigAction; 65], signo: u32, a: SigAction) {
    t.signals.actions.set(list, signo, a);
    tell_kernel(signo, &a);
}

/// Takes over the actions that the program begins with.
pub fn install(t: &Thread) {
    let mut list = t.signals.actions.lock();
    WAS_FIRST.store(is_first(), Relaxed);
    for signo in 1..=64 {
        // SAFETY: only asks.
        if let Ok(inherited) = unsafe { sys::sigaction(signo, None) } {
            let a = SigAction {
                handler: inherited.handler,
                ..NONE
            };
            set(t, &mut list, signo as u32, a);
        }
    }
}

/// Puts the recorder's handlers in the place of those that the program has installed by itself.
pub fn take_over(t: &Thread) {
    let mut list = t.signals.actions.lock();
    WAS_FIRST.store(is_first(), Relaxed);
    for signo in 1..=64 {
        // SAFETY: only asks.
        if let Ok(own) = unsafe { sys::sigaction(signo, None) } {
            set(t, &mut list, signo as u32, own);
        }
    }
}

/// Makes the program's handlers those of the kernel. All signals are blocked.
pub fn restore(t: &Thread) {
    let actions = *t.signals.actions.lock();
    for signo in (1..=64).filter(|s| bit(*s) & UNBLOCKABLE == 0) {
        // SAFETY: the program's own; the recorder is about to leave.
        let _ = unsafe { sys::sigaction(signo as i32, Some(&actions[signo as usize])) };
    }
}

/// Has the new process `t` begin with the actions of its parent `from`, in a table of its own.
pub fn copy(t: &mut Thread, from: &Thread) {
    let actions = *from.signals.actions.lock();
    t.signals.actions = Table::of(actions);
}

/// In a new process whose table is its own: what the kernel is told differs for the first of a namespace.
pub fn begin_process(t: &Thread) {
    let first = is_first();
    // Once said, it stays: the kernel may be told more often than it has to be.
    if WAS_FIRST.fetch_or(first, Relaxed) || first {
        let list = t.signals.actions.lock();
        (1..=64).for_each(|signo| tell_kernel(signo, &list[signo as usize]));
    }
}

/// Sets all actions but those that ignore a signal to the default (`CLONE_CLEAR_SIGHAND`).
pub fn clear_handlers(t: &Thread) {
    for signo in 1..=64 {
        if action(t, signo).handler > SIG_IGN {
            set_action(t, signo, NONE);
        }
    }
}

/// The recorder needs to see the signals of faults even if the program ignores them.
pub fn synchronous_ignored(t: &Thread, really: bool) {
    for signo in [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP] {
        let a = action(t, signo);
        if a.handler != SIG_IGN {
            continue;
        }
        if really {
            let ignore = SigAction {
                handler: SIG_IGN,
                ..NONE
            };
            // SAFETY: no handler.
            let _ = unsafe { sys::sigaction(signo as i32, Some(&ignore)) };
        } else {
            tell_kernel(signo, &a);
        }
    }
}

/// Sets the kernel's action to what the program's action needs.
fn tell_kernel(signo: u32, a: &SigAction) {
    if bit(signo) & UNBLOCKABLE != 0 {
        return;
    }
    let ours =
        bit(signo) & SYNCHRONOUS != 0 || a.handler > SIG_IGN || is_deadly(signo, a) && !is_first();
    let mirrored = a.flags & (SA_RESTART | SA_NOCLDSTOP | SA_NOCLDWAIT) as u64;
    let host = if ours {
        let flags = (SA_SIGINFO | SA_ONSTACK | SA_RESTORER) as u64 | mirrored;
        SigAction {
            handler: entry(),
            flags,
            restorer: restorer(),
            mask: !0,
        }
    } else {
        SigAction {
            handler: a.handler,
            flags: mirrored,
            ..NONE
        }
    };
    // SAFETY: the handler copes with being run at any point of the process.
    let _ = unsafe { sys::sigaction(signo as i32, Some(&host)) };
}

/// The program's action for a signal.
pub fn action(t: &Thread, signo: u32) -> SigAction {
    t.signals.actions.lock()[signo as usize]
}

/// Changes the program's action for a signal.
pub fn set_action(t: &Thread, signo: u32, a: SigAction) {
    let a = SigAction {
        mask: a.mask & !UNBLOCKABLE,
        ..a
    };
    let mut list = t.signals.actions.lock();
    set(t, &mut list, signo, a);
}

/// Signals that the program ignores, and those that it has handlers for.
pub fn dispositions(t: &Thread) -> (u64, u64) {
    let actions = t.signals.actions.lock();
    let all = |f: fn(u64) -> bool| {
        let matching = (1..=64).filter(|s| f(actions[*s as usize].handler));
        matching.fold(0, |m, s| m | bit(s))
    };
    (all(|h| h == SIG_IGN), all(|h| h > SIG_IGN))
}
