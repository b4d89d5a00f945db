//! Which signals end programs, and which come by themselves.

use libc::*;

/// Signals that stop a process or let it go on. Nothing depends on them here.
const STOPS: [i32; 5] = [SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT];

/// Signals that are ignored unless a program has a handler.
const IGNORED: [i32; 3] = [SIGCHLD, SIGURG, SIGWINCH];
/// Signals have these numbers.
const NUMBERS: std::ops::RangeInclusive<i32> = 1..=64;

/// Whether this is a signal that may come by itself: it is none that only stops a process.
pub fn is_sent(n: i32) -> bool {
    NUMBERS.contains(&n) && !STOPS.contains(&n)
}

/// Whether a process ends by this signal if it does nothing about it.
pub fn is_fatal(n: i32) -> bool {
    is_sent(n) && !IGNORED.contains(&n)
}
