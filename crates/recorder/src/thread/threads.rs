//! All recorded threads in this memory, and what each may know of the others.

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

/// The threads that run in this memory.
struct Threads {
    /// The list of threads. Each adds itself or its child, and takes itself or who has left out of it.
    list: Lock<Vec<ThreadPtr>>,
    /// Whether there is more than one thread, or may be without having been made here. Set with the list locked, read
    /// without. Only a child that has a copy of the memory clears it.
    several: AtomicBool,
}

static THREADS: Threads = Threads {
    list: Lock::mended(Vec::new(), |list| {
        let known = all_slots().map(|p| p.thread.load(Acquire).cast_const());
        let known = known.filter(|t| !t.is_null()).map(ThreadPtr).collect();
        // The old list cannot be relied on, so it is not freed either.
        core::mem::forget(core::mem::replace(list, known));
    }),
    several: AtomicBool::new(false),
};

/// A thread in the list.
struct ThreadPtr(*const Thread);

// SAFETY: other threads read only its atomics and what is never changed after it has begun. The
// thread leaves the list before its memory is freed.
unsafe impl Send for ThreadPtr {}

/// Number of recorded threads in this memory.
pub fn count() -> usize {
    THREADS.list.lock().len()
}

/// The oldest generation of the translation cache that any thread may be running.
pub fn oldest_generation() -> u64 {
    let list = THREADS.list.lock();
    let seen = |k: &ThreadPtr| {
        // SAFETY: see `ThreadPtr`; the list is locked.
        let t = unsafe { &*k.0 };
        // A thread that has not begun comes to the cache before it runs any code, unless it was
        // killed before.
        let runs = t.slot.tid.load(SeqCst) != 0;
        runs.then(|| t.code.seen())
    };
    list.iter().filter_map(seen).min().unwrap_or(u64::MAX)
}

/// The oldest code epoch that any thread in `generation`, the present one, may be running. The
/// caller has locked the cache.
pub fn oldest_epoch(generation: u64) -> u64 {
    let list = THREADS.list.lock();
    let epoch = |k: &ThreadPtr| {
        // SAFETY: see `ThreadPtr`; the list is locked.
        let (begun, seen, announced) = unsafe {
            let begun = (*k.0).slot.tid.load(SeqCst) != 0;
            (begun, (*k.0).code.seen(), (*k.0).code.announced())
        };
        // All other threads come to the cache before they run code of this generation.
        if begun && seen == generation {
            announced
        } else {
            u64::MAX
        }
    };
    list.iter().map(epoch).min().unwrap_or(u64::MAX)
}

/// Mask of the signals that a thread has blocked, and mask of those that the recorder holds for it.
/// `None` if there is no thread of that number.
pub fn masks(tid: i32) -> Option<(u64, u64)> {
    let list = THREADS.list.lock();
    // SAFETY: threads leave the list before their memory is freed, and the list is locked.
    let of = |k: &ThreadPtr| unsafe { &*k.0 };
    let t = list.iter().map(of).find(|t| t.task.tid == tid)?;
    Some((t.signals.mask, t.signals.held()))
}

/// Another thread of the process of `t` that takes a signal if it is sent now. It has not blocked
/// the signal, and does not wait for it in a call.
pub fn takes(t: &Thread, signo: u32) -> Option<i32> {
    let list = THREADS.list.lock();
    // SAFETY: as in `masks`.
    let others = list.iter().map(|k| unsafe { &*k.0 });
    let mut others = others.filter(|o| !core::ptr::eq(*o, t) && !o.task.borrows && !t.task.borrows);
    others
        .find(|o| o.task.tid != 0 && o.signals.takes(signo))
        .map(|o| o.task.tid)
}

/// Another thread of the process of `t` that waits in a call which takes the signal.
pub fn awaits(t: &Thread, signo: u32) -> Option<i32> {
    let list = THREADS.list.lock();
    // SAFETY: as in `masks`.
    let others = list.iter().map(|k| unsafe { &*k.0 });
    let mut others = others.filter(|o| !core::ptr::eq(*o, t) && !o.task.borrows && !t.task.borrows);
    others.find(|o| o.signals.awaits(signo)).map(|o| o.task.tid)
}

/// Whether thread `tid` of this process takes a signal if it is sent now.
pub fn one_takes(tid: i32, signo: u32) -> bool {
    // SAFETY: as in `masks`.
    let of = |k: &ThreadPtr| unsafe { (*k.0).task.tid == tid && (*k.0).signals.takes(signo) };
    THREADS.list.lock().iter().any(of)
}

/// Calls `f` with the number and the filters of each thread.
pub fn each(mut f: impl FnMut(i32, &Filters)) {
    for k in THREADS.list.lock().iter() {
        // SAFETY: as in `masks`.
        let t = unsafe { &*k.0 };
        f(t.task.tid, &t.emulated.filters);
    }
}

/// Whether the calling thread is the only one in this memory. If it is, another one can come only
/// from it.
pub fn is_alone() -> bool {
    !THREADS.several.load(Relaxed)
}

/// Adds a thread to the list.
pub fn register(t: &Thread) {
    let mut list = THREADS.list.lock();
    invariant!(
        !list.iter().any(|k| core::ptr::eq(k.0, t)),
        "a thread is in the list of threads once",
        "thread {}",
        t.task.tid
    );
    log!(Debug, "a thread joins {} others", list.len());
    t.slot
        .thread
        .store(core::ptr::from_ref(t).cast_mut(), Release);
    list.push(ThreadPtr(t));
    // In a process that the recorder has attached to, threads come that were not made here.
    let several = list.len() > 1 || config::get().attached != 0;
    THREADS.several.fetch_or(several, SeqCst);
}

/// Whether another process runs in this memory.
pub fn lends() -> bool {
    // SAFETY: as in `masks`.
    THREADS
        .list
        .lock()
        .iter()
        .any(|k| unsafe { (*k.0).task.borrows })
}

/// All threads but `t` that have begun.
pub fn others(t: &Thread) -> Vec<Other> {
    let list = THREADS.list.lock();
    let others = list.iter().filter(|k| !core::ptr::eq(k.0, t));
    let tell = |k: &ThreadPtr| {
        // SAFETY: threads leave the list before their memory is freed. These fields do not change
        // after a thread has begun.
        let (tid, slot, wide) = unsafe {
            let vectors = &raw const (*k.0).vectors;
            ((*k.0).task.tid, (*k.0).slot, (*vectors).wide().copied())
        };
        Other {
            tid,
            ctx: slot.ctx(),
            resting: &slot.inbox().resting,
            wide,
        }
    };
    others.map(tell).filter(|o| o.tid != 0).collect()
}

/// Takes a thread out of the list.
pub fn unregister(t: *const Thread) {
    let mut list = THREADS.list.lock();
    log!(Debug, "a thread leaves {} others", list.len() - 1);
    forget(t);
    list.retain(|k| k.0 != t);
}

/// Called when a thread leaves the list, with the list locked.
fn forget(t: *const Thread) {
    // SAFETY: the thread is still in the list, so its memory is not freed yet.
    unsafe { (*t).slot.thread.store(null_mut(), Release) };
}

/// Numbers of the other processes that run in this memory.
pub fn borrowers() -> Vec<i32> {
    let list = THREADS.list.lock();
    // SAFETY: as in `masks`.
    let of = |k: &ThreadPtr| unsafe { &*k.0 };
    let all = list.iter().map(of).filter(|t| t.task.borrows);
    all.map(|t| t.slot.tid.load(Acquire))
        .filter(|t| *t > 0)
        .collect()
}

/// Whether the process of `t` has other threads.
pub fn has_siblings(t: &Thread) -> bool {
    let own = t.slot.pid.load(Relaxed);
    let list = THREADS.list.lock();
    list.iter().any(|k| {
        // SAFETY: as in `masks`.
        !core::ptr::eq(k.0, t) && unsafe { (*k.0).slot.pid.load(Acquire) } == own
    })
}

/// Makes `t` the only thread, in a child that has a copy of the memory.
pub fn alone(t: &Thread) {
    let mut list = THREADS.list.lock();
    list.iter().for_each(|k| forget(k.0));
    list.clear();
    t.slot
        .thread
        .store(core::ptr::from_ref(t).cast_mut(), Release);
    list.push(ThreadPtr(t));
    THREADS.several.store(false, Relaxed);
}

/// Keeps the list from changing while the process is copied.
pub fn hold() -> impl Sized {
    THREADS.list.lock()
}

/// Another thread of a dying process. What it points to is never freed, even if the thread ends.
pub struct Other {
    /// The kernel's number.
    pub tid: i32,
    /// Its context block.
    pub ctx: *const Ctx,
    /// See [`Inbox::resting`](crate::thread::inbox::Inbox::resting).
    pub resting: &'static AtomicBool,
    /// The layout of its vector state, if the guest's zmm31 and k7 are in the context block.
    pub wide: Option<Layout>,
}

impl Other {
    /// Whether it stays where it is until the process is dead.
    pub fn is_resting(&self) -> bool {
        self.resting.load(Acquire)
    }

    /// Whether translated code runs in it, by the last that can be seen.
    pub fn is_in_translated_code(&self) -> bool {
        // SAFETY: a context block is never unmapped. Its owner may be changing the word, so it is
        // read as volatile.
        unsafe { read_volatile(&raw const (*self.ctx).host_rsp) != 0 }
    }
}

/// Takes all threads out of the list for which `leaves` is true, and returns them.
pub fn remove(mut leaves: impl FnMut(*const Thread) -> bool) -> Vec<*const Thread> {
    let mut left = Vec::new();
    THREADS.list.lock().retain(|k| {
        let gone = leaves(k.0);
        if gone {
            forget(k.0);
            left.push(k.0);
        }
        !gone
    });
    left
}
