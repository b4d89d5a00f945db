//! Processes that share the program's memory, and die by themselves.
//!
//! `clone` with `CLONE_VM` and without `CLONE_THREAD` makes a process in the same memory. When it is killed, or one of
//! its threads ends all of it, it stops wherever it is, also in the recorder, whose memory the others go on using.
//! Where a recorded thread brings that about, it takes all locks before, so that nobody is amid a change. Of kills that
//! come from elsewhere, [`crate::sys::lock`] takes care.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::code::{cache, mapping, select};
use crate::memory::{brk, maps, shown};
use crate::stream::ring;
use crate::sys::{self, heap, program};
use crate::thread::{self, Thread, owners, threads};
use core::sync::atomic::Ordering::*;
use linux_raw_sys::general::*;

/// Milliseconds that a killed process is waited for, and one that perhaps was not meant. It is only late where the
/// kernel is.
const DEATH_MS: u32 = 200;
const GLANCE_MS: u32 = 2;

/// Keeps all other threads from changing anything in the recorder. Nothing is to be allocated meanwhile.
pub fn hold(t: &Thread) -> impl Sized {
    let order = mapping::hold_order();
    let actions = (t.signals.actions.lock(), t.limits.lock());
    let own = shown::hold();
    let held = (brk::hold(), cache::cache());
    let more = (
        select::hold(),
        maps::regions(),
        // Behind the tables of code and mappings: those who hold them ask for it.
        program::hold(),
        ring::hold(),
        threads::hold(),
        thread::hold(),
    );
    // Given back in this order.
    (heap::hold(), more, held, own, actions, order)
}

/// The signal and the process of a call that may kill one; 0: any.
fn victim(nr: u32, a: &[u64; 6]) -> Option<i32> {
    let (signal, pid) = match nr {
        __NR_kill | __NR_tkill => (a[1], a[0] as i32),
        __NR_rt_sigqueueinfo => (a[1], a[0] as i32),
        __NR_tgkill | __NR_rt_tgsigqueueinfo => (a[2], a[0] as i32),
        __NR_pidfd_send_signal => (a[1], 0),
        _ => return None,
    };
    (signal as u32 == SIGKILL).then_some(pid.max(0))
}

/// Makes the call if it kills a process that may share this memory: while nobody else changes anything in the recorder.
pub fn kill(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    let pid = victim(nr, a)?;
    if !threads::lends() {
        return None;
    }
    let victims = threads::borrowers();
    let held = hold(t);
    // SAFETY: kills, at most, and touches no memory but what the program names.
    let ret = unsafe { sys::raw(nr, *a) };
    if ret == 0 && !owners::is_mixed() {
        let named = victims.iter().filter(|tid| **tid == pid);
        // If none is named, perhaps one is meant, perhaps somebody else.
        let patience = if named.clone().count() == 0 {
            GLANCE_MS
        } else {
            DEATH_MS
        };
        for _ in 0..patience {
            let meant = |tid: &&i32| pid == 0 || **tid == pid;
            if victims.iter().filter(meant).all(|tid| sys::has_left(*tid)) {
                break;
            }
            sys::sleep_ms(1);
        }
    }
    drop(held);
    Some(ret)
}

/// Makes a call that ends this process in this memory, if it succeeds. Where processes that share the memory go on, and
/// the other threads of this one stop wherever they are, nobody changes anything in the recorder meanwhile. Whoever waits
/// for the locks then sees that their owner is gone and has changed nothing.
pub fn leave<R>(t: &Thread, call: impl FnOnce() -> R) -> R {
    let slot = t.slot;
    let held = (threads::lends() && threads::has_siblings(t)).then(|| hold(t));
    let state = match held.is_some() {
        true => &slot.dead,
        false => &slot.left,
    };
    state.store(true, Release);
    let done = call();
    // It goes on.
    state.store(false, Release);
    drop(held);
    done
}
