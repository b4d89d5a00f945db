//! System calls that a stop has interrupted.
//!
//! After the stop, the kernel decides by the call's result whether to make the call again. Programs never see
//! this result. If the registers are changed during the stop, the kernel cannot decide any more. So the
//! decision is made here.

use crate::thread::Regs;
use hindsight_syscalls::{REPEATABLE, has};

const EINTR: i64 = 4;
const ERESTARTSYS: i64 = 512;
const ERESTARTNOINTR: i64 = 513;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

/// Length of the system call instruction.
const SYSCALL: u64 = 2;

/// How an interrupted system call continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// The thread was in no call, or the call is complete.
    None,
    /// This call is made again.
    Same(u64),
    /// This call continues through `restart_syscall`, with the rest of its time.
    Block(u64),
}

impl Restart {
    /// What the registers of a stopped thread mean.
    pub fn of(r: &Regs) -> Restart {
        let nr = r.orig_rax as i64;
        if nr < 0 {
            return Restart::None;
        }
        match -(r.rax as i64) {
            ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => Restart::Same(r.orig_rax),
            ERESTART_RESTARTBLOCK => Restart::Block(r.orig_rax),
            EINTR if has(nr as u32, REPEATABLE) => Restart::Same(r.orig_rax),
            _ => Restart::None,
        }
    }

    /// Changes the registers as the kernel would have done.
    pub fn apply(self, r: &mut Regs) {
        match self {
            Restart::None => {}
            Restart::Same(nr) => {
                r.rax = nr;
                r.rip -= SYSCALL;
            }
            Restart::Block(_) => {
                r.rax = libc::SYS_restart_syscall as u64;
                r.rip -= SYSCALL;
            }
        }
        r.orig_rax = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regs(orig: i64, rax: i64) -> Regs {
        let mut r = Regs::zeroed();
        (r.orig_rax, r.rax, r.rip) = (orig as u64, rax as u64, 0x1002);
        r
    }

    fn after(orig: i64, rax: i64) -> (i64, u64) {
        let mut r = regs(orig, rax);
        Restart::of(&r).apply(&mut r);
        assert_eq!(r.orig_rax, u64::MAX);
        (r.rax as i64, r.rip)
    }

    #[test]
    fn interrupted_calls_are_made_anew() {
        assert_eq!(after(libc::SYS_read, -512), (libc::SYS_read, 0x1000));
        assert_eq!(after(libc::SYS_pause, -514), (libc::SYS_pause, 0x1000));
        let nanosleep = after(libc::SYS_nanosleep, -516);
        assert_eq!(nanosleep, (libc::SYS_restart_syscall, 0x1000));
        assert_eq!(
            after(libc::SYS_epoll_wait, -4),
            (libc::SYS_epoll_wait, 0x1000)
        );
        assert_eq!(after(libc::SYS_close, -4), (-4, 0x1002));
        assert_eq!(after(libc::SYS_read, 17), (17, 0x1002));
        assert_eq!(after(-1, -512), (-512, 0x1002));
    }
}
