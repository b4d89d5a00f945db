//! What the program's signals do, and what the kernel is told of that.

use crate::signals::handler::{entry, restorer};
use crate::sys::{self, SigAction};
use crate::thread::Thread;
use crate::thread::signal_actions::{NONE, SIG_IGN, Table, is_deadly};
use crate::thread::signal_state::{SYNCHRONOUS, UNBLOCKABLE, bit};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use linux_raw_sys::general::*;

/// This process is the first of a namespace of process ids, or is a copy of such a process.
static WAS_FIRST: AtomicBool = AtomicBool::new(false);

/// Whether this process is the first of a namespace of process ids. To that one the kernel delivers
/// only signals for which it has a handler, and faults of its own instructions.
pub fn is_first() -> bool {
    sys::getpid() == 1
}

/// Sets an action for the program and tells the kernel. `list` is the locked table of the thread.
fn set(t: &Thread, list: &mut [SigAction; 65], signo: u32, a: SigAction) {
    t.signals.actions.set(list, signo, a);
    tell_kernel(signo, &a);
}

/// Takes over the actions with which the program begins.
pub fn install(t: &Thread) {
    let mut list = t.signals.actions.lock();
    WAS_FIRST.store(is_first(), Relaxed);
    for signo in 1..=64 {
        // SAFETY: asks only, and changes no action.
        if let Ok(inherited) = unsafe { sys::sigaction(signo, None) } {
            let a = SigAction {
                handler: inherited.handler,
                ..NONE
            };
            set(t, &mut list, signo as u32, a);
        }
    }
}

/// Puts the recorder's handlers in the place of those that the program installed before it was
/// recorded.
pub fn take_over(t: &Thread) {
    let mut list = t.signals.actions.lock();
    WAS_FIRST.store(is_first(), Relaxed);
    for signo in 1..=64 {
        // SAFETY: asks only, and changes no action.
        if let Ok(own) = unsafe { sys::sigaction(signo, None) } {
            set(t, &mut list, signo as u32, own);
        }
    }
}

/// Gives the kernel the program's own actions. All signals are blocked.
pub fn restore(t: &Thread) {
    let actions = *t.signals.actions.lock();
    for signo in (1..=64).filter(|s| bit(*s) & UNBLOCKABLE == 0) {
        // SAFETY: the recorder is about to leave, and its handlers are not needed any more. These
        // are the actions that the program itself has set.
        let _ = unsafe { sys::sigaction(signo as i32, Some(&actions[signo as usize])) };
    }
}

/// Gives the new process `t` a table of its own, with the actions of its parent `from`.
pub fn copy(t: &mut Thread, from: &Thread) {
    let actions = *from.signals.actions.lock();
    t.signals.actions = Table::of(actions);
}

/// Called in a new process with a table of its own. The first process of a namespace has to tell
/// the kernel other actions than its parent did.
pub fn begin_process(t: &Thread) {
    let first = is_first();
    // Never cleared: telling the kernel more often than needed does no harm.
    if WAS_FIRST.fetch_or(first, Relaxed) || first {
        let list = t.signals.actions.lock();
        (1..=64).for_each(|signo| tell_kernel(signo, &list[signo as usize]));
    }
}

/// Sets all actions to the default, except those that ignore a signal (`CLONE_CLEAR_SIGHAND`).
pub fn clear_handlers(t: &Thread) {
    for signo in 1..=64 {
        if action(t, signo).handler > SIG_IGN {
            set_action(t, signo, NONE);
        }
    }
}

/// Chooses whether the kernel ignores the fault signals that the program ignores (`really`), or
/// delivers them to the recorder. The recorder needs to see them while it runs.
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
            // SAFETY: no handler is installed.
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
    // SAFETY: either the recorder's handler, which may run at any point of the process, or none.
    let _ = unsafe { sys::sigaction(signo as i32, Some(&host)) };
}

/// The program's action for a signal, from 1 to 64.
pub fn action(t: &Thread, signo: u32) -> SigAction {
    t.signals.actions.lock()[signo as usize]
}

/// Changes the program's action for a signal, from 1 to 64.
pub fn set_action(t: &Thread, signo: u32, a: SigAction) {
    let a = SigAction {
        mask: a.mask & !UNBLOCKABLE,
        ..a
    };
    let mut list = t.signals.actions.lock();
    set(t, &mut list, signo, a);
}

/// Mask of the signals that the program ignores, and mask of those that it handles.
pub fn dispositions(t: &Thread) -> (u64, u64) {
    let actions = t.signals.actions.lock();
    let all = |f: fn(u64) -> bool| {
        let matching = (1..=64).filter(|s| f(actions[*s as usize].handler));
        matching.fold(0, |m, s| m | bit(s))
    };
    (all(|h| h == SIG_IGN), all(|h| h > SIG_IGN))
}
