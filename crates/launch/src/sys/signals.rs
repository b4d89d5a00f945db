//! Sets of signals, and how a process stops and goes on.

use super::process::{kill, own_id, user};
use std::time::Duration;

/// A set of signals, as the kernel has it: that of the C library leaves two out.
#[derive(Clone, Copy)]
pub struct Signals(u64);

/// A signal that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Came {
    pub signal: i32,
    code: i32,
    /// The process that sent it.
    pub from: i32,
    value: u64,
}

impl Came {
    /// Whether a process sent it (and not the kernel, for instance for a key).
    pub fn sent(&self) -> bool {
        self.code <= 0
    }

    /// Sends the same to a process, or to a group if that is negative.
    pub fn pass_to(&self, pid: i32) {
        if self.code != libc::SI_QUEUE || pid < 0 {
            return kill(pid, self.signal);
        }
        // What the kernel lets a process say in the name of another: number, code, sender, value.
        let mut info = [0u64; 16];
        info[0] = self.signal as u32 as u64;
        info[1] = self.code as u32 as u64;
        info[2] = self.from as u32 as u64 | (user() as u64) << 32;
        info[3] = self.value;
        // SAFETY: the kernel reads the 128 bytes of the information.
        unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, self.signal, info.as_ptr()) };
    }
}

impl Signals {
    pub fn of(list: &[i32]) -> Signals {
        Signals(list.iter().fold(0, |set, s| set | 1 << (s - 1)))
    }

    /// All that can be blocked.
    pub fn all() -> Signals {
        Signals(!0)
    }

    /// Blocks these signals in this thread; what was blocked before.
    pub fn block(&self) -> Signals {
        self.mask(libc::SIG_BLOCK)
    }

    /// Makes these the blocked ones.
    pub fn restore(&self) {
        self.mask(libc::SIG_SETMASK);
    }

    /// Unblocks these.
    pub fn unblock(&self) {
        self.mask(libc::SIG_UNBLOCK);
    }

    fn mask(&self, how: i32) -> Signals {
        let mut old = 0u64;
        // SAFETY: both sets are of the 8 bytes that the kernel is told.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &self.0, &mut old, 8) };
        Signals(old)
    }

    /// Takes one of these signals, which must be blocked.
    pub fn take(&self, timeout: Duration) -> Option<Came> {
        let t = libc::timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos() as _,
        };
        let mut info = [0u64; 16];
        // SAFETY: valid pointers: a set of 8 bytes, the 128 bytes of the information, a time.
        let n =
            unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, &self.0, info.as_mut_ptr(), &t, 8) };
        (n > 0).then_some(Came {
            signal: n as i32,
            code: info[1] as i32,
            from: info[2] as i32,
            value: info[3],
        })
    }
}

/// The signals that ask this process to end: SIGINT, SIGTERM and SIGHUP. As long as they are taken here they do not
/// end it.
pub struct EndSignals(Signals);

impl EndSignals {
    /// Takes them from now on. To be called before this process has threads, which then leave them alone too.
    ///
    /// The signals of a reader that goes away and of a limit on file sizes are errors of writes from then on.
    pub fn take_over() -> EndSignals {
        Signals::of(&[libc::SIGPIPE, libc::SIGXFSZ]).block();
        let ending = Signals::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
        ending.block();
        EndSignals(ending)
    }

    /// Whether one has come since this was asked last. Waits for one, but no longer than this time.
    pub fn wait(&self, time: Duration) -> bool {
        self.0.take(time).is_some()
    }
}

/// Stops this process as `signal` does by default, until it is continued. The signal is blocked.
pub fn stop_by(signal: i32) {
    // SAFETY: no handler is installed, and what was there comes back.
    let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
    kill(own_id(), signal);
    let set = Signals::of(&[signal]);
    set.unblock();
    set.block();
    // SAFETY: as above.
    unsafe { libc::signal(signal, before) };
}

/// Whether somebody wants this process to end whose signal has not been taken yet.
pub fn is_told_to_end() -> bool {
    let mut set = 0u64;
    // SAFETY: the kernel fills a set of 8 bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &mut set, 8) };
    set & Signals::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]).0 != 0
}

/// Sets the disposition of `signal` to the default; whether it was ignored.
pub fn default_disposition(signal: i32) -> bool {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_DFL) == libc::SIG_IGN }
}

/// Whether this process ignores SIGCHLD, or has the kernel forget its children. Then nobody learns how they ended.
pub fn is_child_ignored() -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed; the kernel fills a valid structure, which may be all zeros.
    let action = unsafe {
        libc::sigaction(libc::SIGCHLD, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN || action.sa_flags & libc::SA_NOCLDWAIT != 0
}
