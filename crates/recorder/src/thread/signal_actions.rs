//! What the program's signals do.

use crate::sys::SigAction;
use crate::sys::lock::{Guard, Lock};
use crate::thread::signal_state::bit;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general::*;

/// The default action.
pub const NONE: SigAction = SigAction {
    handler: 0,
    flags: 0,
    restorer: 0,
    mask: 0,
};

/// The handler that stands for the default action.
pub const SIG_DFL: u64 = 0;

/// The handler that stands for ignoring a signal.
pub const SIG_IGN: u64 = 1;

/// Signals whose default action leaves the process alive.
const HARMLESS: u64 = bit(SIGCHLD)
    | bit(SIGURG)
    | bit(SIGWINCH)
    | bit(SIGCONT)
    | bit(SIGTSTP)
    | bit(SIGTTIN)
    | bit(SIGTTOU)
    | bit(SIGSTOP);

/// The program's actions, by signal number. Entry 0 is not used.
pub struct Table {
    list: Lock<[SigAction; 65]>,
    /// Mask of the signals that kill. A signal handler reads it, since it may have interrupted the
    /// owner of the lock.
    deadly: AtomicU64,
}

/// The table of a process. Children that share memory may have their own one.
pub type Actions = Arc<Table>;

impl Table {
    /// All actions are the default.
    pub fn new() -> Actions {
        Table::of([NONE; 65])
    }

    /// The given actions.
    pub fn of(list: [SigAction; 65]) -> Actions {
        let deadly = (1..=64).filter(|s| is_deadly(*s, &list[*s as usize]));
        Arc::new(Table {
            deadly: AtomicU64::new(deadly.fold(0, |m, s| m | bit(s))),
            list: Lock::new(list),
        })
    }

    /// Waits for the table.
    pub fn lock(&self) -> Guard<'_, [SigAction; 65]> {
        self.list.lock()
    }

    /// Mask of the signals that kill the process if they are not blocked. The first process of a
    /// namespace survives them.
    pub fn deadly(&self) -> u64 {
        self.deadly.load(Relaxed)
    }

    /// Sets an action for the program in the locked `list`. The caller tells the kernel.
    pub fn set(&self, list: &mut [SigAction; 65], signo: u32, a: SigAction) {
        list[signo as usize] = a;
        match is_deadly(signo, &a) {
            true => self.deadly.fetch_or(bit(signo), Relaxed),
            false => self.deadly.fetch_and(!bit(signo), Relaxed),
        };
    }
}

/// Whether a signal with this action kills.
pub fn is_deadly(signo: u32, a: &SigAction) -> bool {
    a.handler == SIG_DFL && bit(signo) & HARMLESS == 0
}
