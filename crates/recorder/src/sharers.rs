//! Processes that share the program's memory, and die by themselves.
//!
//! `clone` with `CLONE_VM` and without `CLONE_THREAD` makes a process in the same memory. When it is killed, or one of
//! its threads ends all of it, it stops wherever it is, also in the recorder, whose memory the others go on using.
//! Where a recorded thread brings that about, it takes all locks before, so that nobody is amid a change. Of kills that
//! come from elsewhere, [`crate::lock`] takes care.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::thread::{Place, Thread};
use crate::{birth, process, sys};
use core::sync::atomic::{AtomicBool, Ordering::*};
use linux_raw_sys::general::*;

/// Some of them are in another namespace of process ids, where numbers say nothing.
static MIXED: AtomicBool = AtomicBool::new(false);

/// Milliseconds that a killed process is waited for, and one that perhaps was not meant. It is only late where the
/// kernel is.
const DEATH_MS: u32 = 200;
const GLANCE_MS: u32 = 2;

/// The calling thread has begun to run in this memory, as a process of its own.
pub fn arrive() {
    if sys::getppid() == 0 {
        MIXED.store(true, Release);
    }
}

/// A thread, by an address on its stack in the recorder. As long as this exists, no other thread gets that stack.
pub struct Owner {
    address: u64,
    place: &'static Place,
}

/// The thread on whose stack an address lies.
pub fn at(address: u64) -> Option<Owner> {
    let place = Place::at(address)?;
    place.watched.fetch_add(1, SeqCst);
    Some(Owner { address, place })
}

impl Owner {
    /// Whether it was named by this address.
    pub fn is(&self, address: u64) -> bool {
        self.address == address
    }

    /// Whether it does not run in this memory any more. `false` if that is not known.
    pub fn is_gone(&self) -> bool {
        let tid = self.place.tid.load(SeqCst);
        self.place.dead.load(Acquire) && (tid == 0 || sys::has_left(tid))
            || tid > 0 && !is_mixed() && sys::has_left(tid)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.place.watched.fetch_sub(1, SeqCst);
    }
}

/// Whether some of those who share this memory are in another namespace of process ids.
pub fn is_mixed() -> bool {
    MIXED.load(Acquire)
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
    if !birth::lends() {
        return None;
    }
    let victims = birth::borrowers();
    let held = process::hold(t);
    // SAFETY: kills, at most, and touches no memory but what the program names.
    let ret = unsafe { sys::raw(nr, *a) };
    if ret == 0 && !MIXED.load(Acquire) {
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
    let place = t.place;
    let held = (birth::lends() && birth::has_siblings(t)).then(|| process::hold(t));
    let state = match held.is_some() {
        true => &place.dead,
        false => &place.left,
    };
    state.store(true, Release);
    let done = call();
    // It goes on.
    state.store(false, Release);
    drop(held);
    done
}
