//! Where the recorded program failed, told by its calls.

use super::class::Class;
use super::script::{Script, Slot};
use crate::wire::End;
use libc::*;

/// The last call that a thread made before the process failed, which ended like this. All calls must be loaded.
///
/// A fault comes right behind a call, whatever that was. A program that notices an error by itself says so, and ends. What it did
/// for that does not count, since a fixed one does not do it: output, and calls that end.
pub fn last_before(script: &Script, lane: u32, end: End) -> Option<usize> {
    let is_fault = matches!(end, End::Signal(n) if n != SIGABRT);
    (0..script.loaded()).rev().find(|i| {
        let s = script.slot(*i);
        s.call.lane == lane && is_made(s) && (is_fault || !is_of_failing(s))
    })
}

/// Whether a program that agrees makes this call, and it returned.
fn is_made(s: &Slot) -> bool {
    let asks = s.class == Class::Time || s.call.number as i64 == SYS_getrandom;
    s.counts && !asks && s.call.result.is_some()
}

/// Whether a program that has noticed an error may make this call to tell of it, and to end.
fn is_of_failing(s: &Slot) -> bool {
    let ends = matches!(
        s.call.number as i64,
        SYS_kill
            | SYS_tkill
            | SYS_tgkill
            | SYS_rt_sigprocmask
            | SYS_rt_sigaction
            | SYS_close
            | SYS_lseek
            | SYS_exit
            | SYS_exit_group
    );
    ends || s.class == Class::Write
}
