//! Threads and other children that share the program's memory: how they begin and end.

#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::cores::Other;
use crate::lock::Lock;
use crate::ring::Emitter;
use crate::signals::{self, AltStack, State};
use crate::sys;
use crate::thread::{STACK, Thread, all_places};
use crate::{actions, cache, dispatch, fail, guard, joint, line, order, ring, sharers};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::arch::asm;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::*};
use hindsight_events::{EndKind, Event};
use linux_raw_sys::errno::{EAGAIN, EFAULT, EINVAL};
use linux_raw_sys::general::*;

/// `CLONE_CLEAR_SIGHAND`
pub const CLEAR_SIGHAND: u64 = 1 << 32;

/// All recorded threads that run in this memory.
static THREADS: Lock<Vec<Known>> = Lock::mended(Vec::new(), |list| {
    let known = all_places().map(|p| p.thread.load(Acquire).cast_const());
    let known = known.filter(|t| !t.is_null()).map(Known).collect();
    // What it was cannot be relied on.
    core::mem::forget(core::mem::replace(list, known));
});

/// A thread in the list.
struct Known(*const Thread);

// SAFETY: only atomics of the thread are used through the pointer, and the thread leaves the
// list before its memory goes.
unsafe impl Send for Known {}

/// Number of recorded threads in this memory.
pub fn threads() -> usize {
    THREADS.lock().len()
}

/// The oldest generation of translated code that any thread may be running.
pub fn oldest_generation() -> u64 {
    let list = THREADS.lock();
    let seen = |k: &Known| {
        // SAFETY: see `Known`.
        let t = unsafe { &*k.0 };
        // Who has not begun comes to the cache before it runs any, if it was not killed before.
        let runs = t.place.tid.load(SeqCst) != 0;
        runs.then(|| t.seen.load(SeqCst))
    };
    list.iter().filter_map(seen).min().unwrap_or(u64::MAX)
}

/// The oldest epoch of the code that any thread in `generation`, the present one, may be running. While
/// the cache is locked.
pub fn oldest_epoch(generation: u64) -> u64 {
    let list = THREADS.lock();
    let epoch = |k: &Known| {
        // SAFETY: see `Known`.
        let (begun, seen, announced) = unsafe {
            let begun = (*k.0).place.tid.load(SeqCst) != 0;
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
    let of = |k: &Known| unsafe { &*k.0 };
    let t = list.iter().map(of).find(|t| t.tid == tid)?;
    Some((t.signals.mask, signals::held(t)))
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
    let of = |k: &Known| unsafe { (*k.0).tid == tid && (*k.0).signals.takes(signo) };
    THREADS.lock().iter().any(of)
}

/// Calls `f` with number and filters of each thread.
pub fn each(mut f: impl FnMut(i32, &crate::filters::Filters)) {
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
    t.place
        .thread
        .store(core::ptr::from_ref(t).cast_mut(), Release);
    list.push(Known(t));
    // Where the recorder came later, threads come without being made here.
    let several = list.len() > 1 || crate::config().attached != 0;
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
    let tell = |k: &Known| {
        // SAFETY: as above; these fields do not change after the thread has begun.
        let (tid, place, layout) = unsafe { ((*k.0).tid, (*k.0).place, (*k.0).layout) };
        // SAFETY: as above.
        let wide = unsafe { (*k.0).wide_checks };
        Other {
            tid,
            ctx: place.ctx(),
            resting: &place.inbox().resting,
            wide: wide.then_some(layout),
        }
    };
    others.map(tell).filter(|o| o.tid != 0).collect()
}

fn unregister(t: *const Thread) {
    let mut list = THREADS.lock();
    forget(t);
    list.retain(|k| k.0 != t);
}

/// The thread is about to leave the list of threads, which is locked.
fn forget(t: *const Thread) {
    // SAFETY: threads leave the list before their memory goes.
    unsafe { (*t).place.thread.store(null_mut(), Release) };
}

/// The processes besides the program's own that run in this memory.
pub fn borrowers() -> Vec<i32> {
    let list = THREADS.lock();
    // SAFETY: as above.
    let of = |k: &Known| unsafe { &*k.0 };
    let all = list.iter().map(of).filter(|t| t.borrows);
    all.map(|t| t.place.tid.load(Acquire))
        .filter(|t| *t > 0)
        .collect()
}

/// Whether the process of `t` has other threads.
pub fn has_siblings(t: &Thread) -> bool {
    let own = t.place.pid.load(Relaxed);
    let list = THREADS.lock();
    list.iter().any(|k| {
        // SAFETY: as above.
        !core::ptr::eq(k.0, t) && unsafe { (*k.0).place.pid.load(Acquire) } == own
    })
}

/// In a child that has a copy of the memory: this thread is the only one.
pub fn alone(t: &Thread) {
    let mut list = THREADS.lock();
    list.iter().for_each(|k| forget(k.0));
    list.clear();
    t.place
        .thread
        .store(core::ptr::from_ref(t).cast_mut(), Release);
    list.push(Known(t));
    SEVERAL.store(false, Relaxed);
}

/// Keeps the list from changing while the process is copied.
pub fn hold() -> impl Sized {
    THREADS.lock()
}

/// There have been children that borrow this memory and for whose end nobody waits.
static BORROWERS: AtomicBool = AtomicBool::new(false);

/// Lets go of children that borrowed this memory, were not made by `vfork`, and have left it.
pub fn sweep() {
    if !BORROWERS.load(Acquire) {
        return;
    }
    let mut left = Vec::new();
    THREADS.lock().retain(|k| {
        // SAFETY: threads leave the list before their memory goes.
        let gone = unsafe { has_left(k.0) };
        if gone {
            forget(k.0);
            left.push(k.0);
        }
        !gone
    });
    for t in left {
        // SAFETY: it is in no list, and executes nothing here any more.
        unsafe { discard(t.cast_mut()) };
    }
}

/// Whether a child has left the memory that it borrowed: it is gone, or a new program image has ended
/// its stream.
///
/// # Safety
/// `t` is in the list of threads.
unsafe fn has_left(t: *const Thread) -> bool {
    // SAFETY: the caller's; these are set before the thread is in the list or are atomics.
    let (borrows, tid, ring) = unsafe { ((*t).borrows, (*t).tid, (*t).ring.load(Acquire)) };
    // SAFETY: the caller's.
    let others = unsafe { (*t).place.pid.load(Acquire) } != sys::getpid();
    (borrows || others && !sharers::is_mixed())
        && tid != 0
        && (sys::has_left(tid) || ring >= 0 && !ring::carries(ring as usize, tid))
}

/// Takes a child that borrowed this memory out of the list, if it is still in it: it has executed
/// a program or ended.
fn returned(child: *mut Thread, tid: u64) {
    let mut list = THREADS.lock();
    let gone = |k: &Known| {
        // SAFETY: threads leave the list before their memory goes.
        core::ptr::eq(k.0, child) && unsafe { (*k.0).tid as u64 } == tid
    };
    if let Some(i) = list.iter().position(gone) {
        forget(child);
        list.swap_remove(i);
        drop(list);
        // SAFETY: the kernel has told that the child has left this memory.
        unsafe { discard(child) };
    }
}

/// What the program asks for.
struct Request {
    flags: u64,
    /// The child's stack pointer; 0: as the parent's.
    sp: u64,
    tls: u64,
    /// For `clone3`: its argument block, with the recorder's stack in it.
    block: [u64; 32],
    size: u64,
}

fn request(nr: u32, a: &[u64; 6]) -> Result<Request, u32> {
    let mut r = Request {
        flags: a[0],
        sp: a[1],
        tls: a[4],
        block: [0; 32],
        size: 0,
    };
    match nr {
        __NR_clone => {}
        __NR_vfork => {
            r.flags = (CLONE_VM | CLONE_VFORK | SIGCHLD) as u64;
            (r.sp, r.tls) = (0, 0);
        }
        _ => {
            if a[1] < 64 || a[1] > 256 {
                return Err(EINVAL);
            }
            let mut bytes = [0; 256];
            guard::read(a[0], &mut bytes[..a[1] as usize]).map_err(|_| EFAULT)?;
            for (w, b) in r.block.iter_mut().zip(bytes.as_chunks().0) {
                *w = u64::from_le_bytes(*b);
            }
            (r.flags, r.sp, r.tls, r.size) =
                (r.block[0], r.block[5] + r.block[6], r.block[7], a[1]);
        }
    }
    Ok(r)
}

/// Whether the call makes a child in the same memory.
pub fn shares_memory(nr: u32, a: &[u64; 6]) -> bool {
    match nr {
        __NR_vfork => true,
        __NR_clone => a[0] & CLONE_VM as u64 != 0,
        __NR_clone3 => guard::load_u64(a[0]).is_ok_and(|f| f & CLONE_VM as u64 != 0),
        _ => false,
    }
}

/// Whether the call makes a child of which nothing is recorded though it runs in this memory.
pub fn lent_memory(nr: u32, a: &[u64; 6]) -> bool {
    let flags = match nr {
        __NR_clone => a[0],
        __NR_clone3 => guard::load_u64(a[0]).unwrap_or(0),
        _ => 0,
    };
    crate::config().children == hindsight_events::config::children::NONE
        && shares_memory(nr, a)
        && flags & CLONE_THREAD as u64 == 0
}

/// Performs a `clone`, `clone3` or `vfork` whose child runs in this memory: the child's id or an
/// error, as the kernel returns it.
pub fn clone(t: &mut Thread, nr: u32, a: &[u64; 6]) -> u64 {
    let mut r = match request(nr, a) {
        Ok(r) => r,
        Err(e) => return crate::syscalls::errno(e),
    };
    order::matters();
    if !t.is_silent {
        cache::cache().order_atomics(t);
    }
    t.sequence_always();
    sweep();
    joint::end(t);
    let Some(child) = prepare(t, &r) else {
        return crate::syscalls::errno(EAGAIN);
    };
    let stack = child.place.stack;
    let top = stack + STACK;
    let mask = sys::set_signal_mask(!0);
    if !child.is_silent && child.borrows {
        child.unborn = ring::expect_process();
    }
    let unborn = child.unborn;
    if child.borrows && r.flags & CLONE_VFORK as u64 == 0 {
        BORROWERS.store(true, Release);
    }
    register(child);
    let child: *mut Thread = child;
    let six = if nr == __NR_clone3 {
        (r.block[5], r.block[6]) = (stack, STACK);
        [r.block.as_ptr() as u64, r.size, 0, 0, 0, 0]
    } else {
        let ids = if nr == __NR_vfork {
            [0, 0]
        } else {
            [a[2], a[3]]
        };
        [r.flags, top, ids[0], ids[1], r.tls, 0]
    };
    let nr = if nr == __NR_vfork { __NR_clone } else { nr };
    // Done by the child: the kernel would clear the recorder's handlers.
    let clear = CLEAR_SIGHAND | CLONE_SIGHAND as u64;
    if nr == __NR_clone3 && r.flags & clear == CLEAR_SIGHAND {
        // SAFETY: the child does not run yet.
        unsafe { (*child).clear_handlers = true };
        r.block[0] &= !CLEAR_SIGHAND;
    }
    // SAFETY: `prepare` gave the child a stack and all that its first function needs.
    let ret = unsafe { sys::raw_clone(nr, six, begin, child) };
    if ret > -4096i64 as u64 {
        ring::expected_process(unborn);
        unregister(child);
        // SAFETY: no child has been made.
        unsafe { discard(child) };
    } else {
        ring::made_process(unborn, ret);
        if r.flags & (CLONE_VFORK | CLONE_THREAD) as u64 == CLONE_VFORK as u64 {
            returned(child, ret);
        }
    }
    sys::set_signal_mask(mask);
    ret
}

/// Where the stack begins that a thread has in the runtime.
pub fn stack_end(t: &Thread) -> u64 {
    t.place.stack + STACK
}

/// A thread's stack for signal handlers: start and length.
pub fn signal_stack(t: &Thread) -> (u64, u64) {
    (stack_end(t), STACK)
}

/// The child's thread structure, with the registers it begins with.
fn prepare(t: &mut Thread, r: &Request) -> Option<&'static mut Thread> {
    let silent = Emitter::silent();
    let child = Thread::make(t.predictor, silent, t.layout, t.wide_checks).ok()?;
    let mut cpu = t.cpu();
    let next = cpu.rip + 2;
    (cpu.gpr[0], cpu.gpr[1]) = (0, next);
    let flags = t.ctx.rflags & hindsight_isa::state::RFLAGS_MASK | 0x202;
    cpu.gpr[11] = flags | t.signals.stepping.flag();
    cpu.rip = next;
    if r.sp != 0 {
        cpu.gpr[4] = r.sp;
    }
    if r.flags & CLONE_SETTLS as u64 != 0 {
        cpu.fs_base = r.tls;
    }
    (child.ctx.gpr, child.ctx.rip, child.ctx.rflags) = (cpu.gpr, cpu.rip, cpu.rflags);
    (child.ctx.fs_base, child.ctx.gs_base) = (cpu.fs_base, cpu.gs_base);
    // The processor's registers are the parent's; these are in memory.
    (child.ctx.xmm, child.ctx.zmm31, child.ctx.k7) = (t.ctx.xmm, t.ctx.zmm31, t.ctx.k7);
    let keeps_stack = r.flags & CLONE_VFORK as u64 != 0;
    let alt = if keeps_stack {
        t.signals.alt
    } else {
        AltStack::NONE
    };
    child.signals = State::with_mask(t.signals.mask);
    child.signals.alt = alt;
    if r.flags & CLONE_THREAD as u64 != 0 {
        child.signals.shared = t.signals.shared.clone();
    }
    child.signals.stepping = t.signals.stepping.of_child();
    child.wanted = t.wanted.of_child();
    child.filters.copy(&t.filters);
    child.forbidden = t.forbidden;
    child.is_silent = t.is_silent;
    child.borrows = r.flags & CLONE_THREAD as u64 == 0;
    if child.borrows && crate::config().children == hindsight_events::config::children::NONE {
        child.is_silent = true;
    }
    child.limits = if child.borrows {
        Arc::new(Lock::new(*t.limits.lock()))
    } else {
        t.limits.clone()
    };
    if r.flags & CLONE_SIGHAND as u64 != 0 {
        child.signals.actions = t.signals.actions.clone();
    } else {
        actions::copy(child, t);
    }
    Some(child)
}

/// The child's first function.
extern "C" fn begin(t: *mut Thread) -> ! {
    // SAFETY: `clone` made it for this thread alone.
    let t = unsafe { &mut *t };
    sys::set_gs_base(t.window + hindsight_isa::ctx::APART as u64);
    t.tid = sys::gettid();
    if t.borrows {
        sharers::arrive();
    }
    t.place.arrive(false);
    if t.borrows {
        actions::begin_process(t);
    }
    if t.clear_handlers {
        actions::clear_handlers(t);
    }
    if !t.is_silent {
        match Emitter::thread() {
            Some(e) => t.set_emitter(e),
            None => fail::die(fail::STATUS, &line!("no ring is free for a new thread")),
        }
        t.ring
            .store(t.emit.ring().map_or(-1, |r| r as i32), Release);
        ring::expected_process(t.unborn.take());
    }
    // SAFETY: the second stack of the thread's place.
    if let Err(e) = unsafe { sys::sigaltstack(t.place.stack + STACK, STACK) } {
        fail::die(
            fail::STATUS,
            &line!("cannot set a thread's signal stack (error {e})"),
        );
    }
    t.code_epoch = cache::cache().code.epoch;
    t.sequence_always();
    t.begin();
    signals::unblock(t);
    dispatch::run(t)
}

/// Ends the calling thread, which is not the last.
pub fn exit(t: &mut Thread, status: i32) -> ! {
    sys::set_signal_mask(!0);
    t.sequence();
    t.event(&Event::End {
        kind: EndKind::Exit,
        code: status as u32 & 0xff,
        message: b"",
    });
    t.publish();
    t.emit.end();
    unregister(t);
    let taken = t.place.taken.as_ptr();
    // SAFETY: the thread is out of the list, its signals are blocked, and nothing below uses it.
    unsafe { discard_structure(t) };
    // SAFETY: the store lets another thread have this one's stacks; what follows uses registers only.
    unsafe {
        asm!(
            "mov dword ptr [rdx], 0",
            "syscall",
            "ud2",
            in("rax") __NR_exit as u64, in("rdi") status, in("rdx") taken,
            options(noreturn),
        );
    }
}

/// # Safety
/// Nothing uses the thread or its stack any more.
unsafe fn discard(t: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        let place = (*t).place;
        if is_at_rest(&*t) {
            discard_structure(t);
        } else {
            // What it was about to free or to move must not be freed again, and locks that it holds are known by its stack.
            (*t).emit.release();
            let Some(next) = place.succeed() else { return };
            (*t).place = next;
            (*t).give_back_place();
            return next.taken.store(0, Release);
        }
        place.taken.store(0, Release);
    }
}

/// Whether a thread that does not run any more had come to its end or not begun, and was not killed somewhere.
fn is_at_rest(t: &Thread) -> bool {
    t.tid == 0 || t.place.left.load(Acquire) && !t.place.dead.load(Acquire)
}

/// # Safety
/// Nothing uses the thread any more, except its stack.
unsafe fn discard_structure(t: *mut Thread) {
    // SAFETY: made by `Thread::make`, which leaked the box.
    let mut t = unsafe { Box::from_raw(t) };
    t.emit.release();
    t.give_back_place();
}
