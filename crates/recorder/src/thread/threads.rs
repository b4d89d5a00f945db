//! All recorded threads that run in this memory, and what one may know of the others.

use crate::sys::config;
use crate::sys::lock::Lock;
use crate::thread::filter_list::Filters;
use crate::thread::{Thread, all_slots};
use alloc::vec::Vec;
use core::ptr::null_mut;
use core::ptr::read_volatile;
use core::sync::atomic::{AtomicBool, Ordering::*};
use hindsight_isa::Ctx;
use hindsight_isa::xsave::Layout;

/// All recorded threads that run in this memory.
static THREADS: Lock<Vec<ThreadPtr>> = Lock::mended(Vec::new(), |list| {
    let known = all_slots().map(|p| p.thread.load(Acquire).cast_const());
    let known = known.filter(|t| !t.is_null()).map(ThreadPtr).collect();
    // What it was cannot be relied on.
    core::mem::forget(core::mem::replace(list, known));
});

/// A thread in the list.
struct ThreadPtr(*const Thread);

// SAFETY: only atomics of the thread are used through the pointer, and the thread leaves the
// list before its memory goes.
unsafe impl Send for ThreadPtr {}

/// Number of recorded threads in this memory.
pub fn count() -> usize {
    THREADS.lock().len()
}

/// The oldest generation of translated code that any thread may be running.
pub fn oldest_generation() -> u64 {
    let list = THREADS.lock();
    let seen = |k: &ThreadPtr| {
        // SAFETY: see `ThreadPtr`.
        let t = unsafe { &*k.0 };
        // Who has not begun comes to the cache before it runs any, if it was not killed before.
        let runs = t.slot.tid.load(SeqCst) != 0;
        runs.then(|| t.seen.load(SeqCst))
    };
    list.iter().filter_map(seen).min().unwrap_or(u64::MAX)
}

/// The oldest epoch of the code that any thread in `generation`, the present one, may be running. While
/// the cache is locked.
pub fn oldest_epoch(generation: u64) -> u64 {
    let list = THREADS.lock();
    let epoch = |k: &ThreadPtr| {
        // SAFETY: see `ThreadPtr`.
        let (begun, seen, announced) = unsafe {
            let begun = (*k.0).slot.tid.load(SeqCst) != 0;
            (
                begun,
                (*k.0).seen.load(SeqCst),
                (*k.0).announced.load(Acquire),
            )
        };
        // From anywhere else it comes to the cache before it runs code of this generation.
        if begun && seen == generation {
            announced
        } else {
            u64::MAX
        }
    };
    list.iter().map(epoch).min().unwrap_or(u64::MAX)
}

/// Blocked signals of a thread, and those that the recorder holds for it.
pub fn masks(tid: i32) -> Option<(u64, u64)> {
    let list = THREADS.lock();
    // SAFETY: threads leave the list before their memory goes.
    let of = |k: &ThreadPtr| unsafe { &*k.0 };
    let t = list.iter().map(of).find(|t| t.tid == tid)?;
    Some((t.signals.mask, t.signals.held()))
}

/// A thread besides `t`, of the same process, that takes a signal if it is sent now: it has not blocked it, and
/// does not wait for it by itself.
pub fn takes(t: &Thread, signo: u32) -> Option<i32> {
    let list = THREADS.lock();
    // SAFETY: as above.
    let others = list.iter().map(|k| unsafe { &*k.0 });
    let mut others = others.filter(|o| !core::ptr::eq(*o, t) && !o.borrows && !t.borrows);
    others
        .find(|o| o.tid != 0 && o.signals.takes(signo))
        .map(|o| o.tid)
}

/// A thread besides `t`, of the same process, that waits in a call which takes the signal.
pub fn awaits(t: &Thread, signo: u32) -> Option<i32> {
    let list = THREADS.lock();
    // SAFETY: as above.
    let others = list.iter().map(|k| unsafe { &*k.0 });
    let mut others = others.filter(|o| !core::ptr::eq(*o, t) && !o.borrows && !t.borrows);
    others.find(|o| o.signals.awaits(signo)).map(|o| o.tid)
}

/// Whether thread `tid` of this process takes a signal if it is sent now.
pub fn one_takes(tid: i32, signo: u32) -> bool {
    // SAFETY: as above.
    let of = |k: &ThreadPtr| unsafe { (*k.0).tid == tid && (*k.0).signals.takes(signo) };
    THREADS.lock().iter().any(of)
}

/// Calls `f` with number and filters of each thread.
pub fn each(mut f: impl FnMut(i32, &Filters)) {
    for k in THREADS.lock().iter() {
        // SAFETY: as above.
        let t = unsafe { &*k.0 };
        f(t.tid, &t.filters);
    }
}

/// There is more than one thread in the list.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread is the only one in this memory: another can come only from it.
pub fn is_alone() -> bool {
    !SEVERAL.load(Relaxed)
}

/// Adds a thread to the list.
pub fn register(t: &Thread) {
    let mut list = THREADS.lock();
    t.slot
        .thread
        .store(core::ptr::from_ref(t).cast_mut(), Release);
    list.push(ThreadPtr(t));
    // Where the recorder came later, threads come without being made here.
    let several = list.len() > 1 || config::get().attached != 0;
    SEVERAL.fetch_or(several, SeqCst);
}

/// Whether a process that is not this one runs in this memory.
pub fn lends() -> bool {
    // SAFETY: threads leave the list before their memory goes.
    THREADS.lock().iter().any(|k| unsafe { (*k.0).borrows })
}

/// The threads besides `t`.
pub fn others(t: &Thread) -> Vec<Other> {
    let list = THREADS.lock();
    let others = list.iter().filter(|k| !core::ptr::eq(k.0, t));
    let tell = |k: &ThreadPtr| {
        // SAFETY: as above; these fields do not change after the thread has begun.
        let (tid, slot, layout) = unsafe { ((*k.0).tid, (*k.0).slot, (*k.0).layout) };
        // SAFETY: as above.
        let wide = unsafe { (*k.0).wide_checks };
        Other {
            tid,
            ctx: slot.ctx(),
            resting: &slot.inbox().resting,
            wide: wide.then_some(layout),
        }
    };
    others.map(tell).filter(|o| o.tid != 0).collect()
}

pub fn unregister(t: *const Thread) {
    let mut list = THREADS.lock();
    forget(t);
    list.retain(|k| k.0 != t);
}

/// The thread is about to leave the list of threads, which is locked.
fn forget(t: *const Thread) {
    // SAFETY: threads leave the list before their memory goes.
    unsafe { (*t).slot.thread.store(null_mut(), Release) };
}

/// The processes besides the program's own that run in this memory.
pub fn borrowers() -> Vec<i32> {
    let list = THREADS.lock();
    // SAFETY: as above.
    let of = |k: &ThreadPtr| unsafe { &*k.0 };
    let all = list.iter().map(of).filter(|t| t.borrows);
    all.map(|t| t.slot.tid.load(Acquire))
        .filter(|t| *t > 0)
        .collect()
}

/// Whether the process of `t` has other threads.
pub fn has_siblings(t: &Thread) -> bool {
    let own = t.slot.pid.load(Relaxed);
    let list = THREADS.lock();
    list.iter().any(|k| {
        // SAFETY: as above.
        !core::ptr::eq(k.0, t) && unsafe { (*k.0).slot.pid.load(Acquire) } == own
    })
}

/// In a child that has a copy of the memory: this thread is the only one.
pub fn alone(t: &Thread) {
    let mut list = THREADS.lock();
    list.iter().for_each(|k| forget(k.0));
    list.clear();
    t.slot
        .thread
        .store(core::ptr::from_ref(t).cast_mut(), Release);
    list.push(ThreadPtr(t));
    SEVERAL.store(false, Relaxed);
}

/// Keeps the list from changing while the process is copied.
pub fn hold() -> impl Sized {
    THREADS.lock()
}

/// Another thread of the dying process. What is pointed to outlives threads.
pub struct Other {
    pub tid: i32,
    pub ctx: *const Ctx,
    pub resting: &'static AtomicBool,
    /// If the guest's zmm31 and k7 are in the context block.
    pub wide: Option<Layout>,
}

impl Other {
    pub fn is_resting(&self) -> bool {
        self.resting.load(Acquire)
    }

    pub fn is_in_translated_code(&self) -> bool {
        // SAFETY: a context block is never unmapped; its owner may be changing the word.
        unsafe { read_volatile(&raw const (*self.ctx).host_rsp) != 0 }
    }
}

/// Takes those out of the list for which `leaves` holds.
pub fn remove(mut leaves: impl FnMut(*const Thread) -> bool) -> Vec<*const Thread> {
    let mut left = Vec::new();
    THREADS.lock().retain(|k| {
        let gone = leaves(k.0);
        if gone {
            forget(k.0);
            left.push(k.0);
        }
        !gone
    });
    left
}
