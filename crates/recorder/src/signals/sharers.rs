//! Processes that share the program's memory and die by themselves.
//!
//! `clone` with `CLONE_VM` and without `CLONE_THREAD` makes a process in the same memory. It may be
//! killed, or one of its threads may end all of it. Then its threads stop wherever they are, also
//! inside the recorder, whose memory the other processes go on using.
//!
//! - If a recorded thread brings that about, it takes all locks first. So no other thread is in the
//!   middle of a change.
//! - If it comes from elsewhere, [`crate::sys::lock`] takes care of it.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::code::{cache, mapping, places};
use crate::memory::{brk, maps, shown};
use crate::stream::ring;
use crate::sys::{self, heap, program};
use crate::thread::{self, Thread, owners, threads};
use core::sync::atomic::Ordering::*;
use linux_raw_sys::general::*;

/// Milliseconds to wait for the death of a process that was killed. It takes long only if the
/// kernel is slow.
const DEATH_MS: u32 = 200;
/// Milliseconds to wait where it is not known whether such a process was killed.
const GLANCE_MS: u32 = 2;

/// Keeps all other threads from changing anything in the recorder. Nothing may be allocated
/// meanwhile.
pub fn hold(t: &Thread) -> impl Sized {
    let order = mapping::hold_order();
    let actions = (t.signals.actions.lock(), t.emulated.limits.lock());
    let own = shown::hold();
    let held = (brk::hold(), cache::cache());
    let more = (
        places::hold(),
        maps::regions(),
        // After the tables of code and mappings, since owners of those ask for it.
        program::hold(),
        ring::hold(),
        threads::hold(),
        thread::hold(),
    );
    // The locks are given back in this order.
    (heap::hold(), more, held, own, actions, order)
}

/// The process that a call kills, 0 if that may be any. `None` if the call does not kill.
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

/// Makes a call that kills a process which may share this memory. Meanwhile nobody else changes
/// anything in the recorder. `None` if it is no such call, and was not made.
pub fn kill(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    let pid = victim(nr, a)?;
    if !threads::lends() {
        return None;
    }
    let victims = threads::borrowers();
    let held = hold(t);
    // SAFETY: the call sends a signal and writes no memory. A thread that it kills holds no lock,
    // since this one has them all.
    let ret = unsafe { sys::raw(nr, *a) };
    if ret == 0 && !owners::is_mixed() {
        let named = victims.iter().filter(|tid| **tid == pid);
        // If the call names none of them, it may kill one of them or somebody else.
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

/// Makes a call that ends this process in this memory, if it succeeds.
///
/// Processes that share the memory may go on, and other threads of this process stop wherever they
/// are. Then nobody changes anything in the recorder during the call. Whoever waits for the locks
/// later sees that their owner is gone and has changed nothing.
pub fn leave<R>(t: &Thread, call: impl FnOnce() -> R) -> R {
    let slot = t.slot;
    let held = (threads::lends() && threads::has_siblings(t)).then(|| hold(t));
    let state = match held.is_some() {
        true => &slot.dead,
        false => &slot.left,
    };
    state.store(true, Release);
    let done = call();
    // The call has failed, so the process goes on.
    state.store(false, Release);
    drop(held);
    done
}
