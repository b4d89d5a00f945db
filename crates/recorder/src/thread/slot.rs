//! Where threads live in the address space.

use crate::sys;
use crate::sys::lock::Lock;
use crate::sys::range::AtomicRange;
use crate::thread::Thread;
use crate::thread::inbox::Inbox;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering::*};
use hindsight_isa::ctx::CTX_SIZE;
use hindsight_isa::predictor::ALIAS;
use hindsight_isa::{Ctx, Predictor};

/// What a thread needs of the address space. In this order, one part behind the other: stack for
/// the runtime, stack for signal handlers, context block, window. A slot outlives its thread and
/// serves the next one.
pub struct ThreadSlot {
    /// Address of the first cell.
    pub(super) window: u64,
    /// Start of the stacks.
    pub stack: u64,
    /// What the thread and its signal handlers tell each other.
    pub(super) inbox: Inbox,
    /// Nonzero while the thread uses a stack.
    pub taken: AtomicU32,
    /// The kernel's number of the thread that uses it, or used it last. 0: none has begun.
    pub tid: AtomicI32,
    /// The process of that thread.
    pub pid: AtomicI32,
    /// Whoever used its stacks is gone and may hold locks. So nobody uses them again.
    pub dead: AtomicBool,
    /// Whoever uses its stacks does nothing here any more but a last system call, and holds no
    /// lock.
    pub left: AtomicBool,
    /// Number of threads that are finding out whether its thread is gone. While it is not 0, nobody
    /// else gets the stacks.
    pub watched: AtomicU32,
    /// The thread's structure while that is in the list of threads, otherwise null.
    pub thread: AtomicPtr<Thread>,
    /// The slot that was made before this one.
    next: AtomicPtr<ThreadSlot>,
}

/// All slots. None is ever freed.
struct Slots {
    /// The slot that was made last; each leads to the one before. Any thread adds some, and locks look for their
    /// owners here, so there is no lock.
    all: AtomicPtr<ThreadSlot>,
    /// The slot of the thread whose runtime uses the first stack.
    first: AtomicPtr<ThreadSlot>,
    /// The first stack: the one that the image brings. Set before there are threads.
    first_stack: AtomicRange,
    /// Slots of threads that have ended. Everything but the stacks is zeroed.
    free: Lock<Vec<&'static ThreadSlot>>,
}

static SLOTS: Slots = Slots {
    all: AtomicPtr::new(null_mut()),
    first: AtomicPtr::new(null_mut()),
    first_stack: AtomicRange::new(),
    free: Lock::mended(Vec::new(), |free| {
        let idle = |p: &&ThreadSlot| {
            !p.dead.load(Acquire) && p.taken.load(Acquire) == 0 && p.thread.load(Acquire).is_null()
        };
        // The old list cannot be relied on, so it is not freed either.
        core::mem::forget(core::mem::replace(free, all().filter(idle).collect()));
    }),
};

/// Says where the first stack lies.
pub fn set_first_stack(stack: Range<u64>) {
    SLOTS.first_stack.set(stack);
}

/// All slots. None is ever freed.
pub fn all() -> impl Iterator<Item = &'static ThreadSlot> {
    // SAFETY: null, or a slot that `ThreadSlot::add` leaked.
    let slot = |p: *mut ThreadSlot| unsafe { p.as_ref() };
    let last = SLOTS.all.load(Acquire);
    core::iter::successors(slot(last), move |p| slot(p.next.load(Acquire)))
}

/// Bytes of a thread's stack in the runtime, and of the stack for signal handlers above it.
pub const STACK: u64 = 128 << 10;

impl ThreadSlot {
    /// Where the thread's stack in the runtime begins: its highest address.
    pub fn stack_end(&self) -> u64 {
        self.stack + STACK
    }

    /// The thread's stack for signal handlers: start and length.
    pub fn signal_stack(&self) -> (u64, u64) {
        (self.stack_end(), STACK)
    }

    /// A free slot, the one that was given back last, or a new one. The error is the errno of the
    /// failed mapping.
    pub(super) fn take(predictor: Predictor) -> Result<&'static ThreadSlot, i32> {
        let mut free = SLOTS.free.lock();
        // A thread that has just ended may still be on its stack, on its way out. Clearing the
        // number before looking at `watched` is what counts: whoever begins to watch later sees
        // that the number is gone.
        let left = |p: &&'static ThreadSlot| {
            p.taken.load(Acquire) == 0 && {
                p.tid.store(0, SeqCst);
                p.watched.load(SeqCst) == 0
            }
        };
        let slot = match free.iter().rposition(left) {
            Some(i) => free.remove(i),
            None => {
                drop(free);
                ThreadSlot::map(predictor)?
            }
        };
        slot.taken.store(1, Relaxed);
        slot.pid.store(0, Relaxed);
        slot.left.store(false, Relaxed);
        slot.inbox.reset();
        Ok(slot)
    }

    /// The calling thread lives here from now on. `first`: its runtime uses the first stack.
    pub fn arrive(&'static self, first: bool) {
        let tid = sys::gettid();
        if !crate::thread::owners::is_mixed() {
            // Another thread with this number can only have been killed.
            let others = all().filter(|p| !core::ptr::eq(*p, self) && p.taken.load(Acquire) != 0);
            for p in others.filter(|p| p.tid.load(Acquire) == tid) {
                p.dead.store(true, Release);
                p.tid.store(0, Release);
            }
        }
        self.tid.store(tid, Release);
        self.pid.store(sys::getpid(), Release);
        if first {
            SLOTS
                .first
                .store(core::ptr::from_ref(self).cast_mut(), Release);
        }
    }

    /// The slot on whose stacks an address lies.
    pub fn at(address: u64) -> Option<&'static ThreadSlot> {
        if SLOTS.first_stack.contains(address) {
            // SAFETY: null, or a slot that `ThreadSlot::add` leaked.
            return unsafe { SLOTS.first.load(Acquire).as_ref() };
        }
        all().find(|p| (p.stack..p.stack + 2 * STACK).contains(&address))
    }

    /// The context block of the thread that lives here.
    pub fn ctx(&self) -> *const Ctx {
        (self.window - CTX_SIZE as u64) as *const Ctx
    }

    /// What the signal handlers of the thread that lives here have to say.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn map(predictor: Predictor) -> Result<&'static ThreadSlot, i32> {
        let (stack, window) = map_window(predictor)?;
        Ok(ThreadSlot::add(stack, window))
    }

    /// Makes a slot that succeeds this one, whose thread was killed. It has the same window and
    /// context block, but other stacks: nobody ever uses the old ones again. `None` if they cannot
    /// be mapped.
    pub fn succeed(&self) -> Option<&'static ThreadSlot> {
        self.dead.store(true, Release);
        sys::madvise_dontneed(self.stack, 2 * STACK);
        let stack =
            sys::mmap_anon_noreserve(0, 2 * STACK, sys::PROT_READ | sys::PROT_WRITE).ok()?;
        Some(ThreadSlot::add(stack, self.window))
    }

    fn add(stack: u64, window: u64) -> &'static ThreadSlot {
        let slot = alloc::boxed::Box::leak(alloc::boxed::Box::new(ThreadSlot {
            window,
            stack,
            inbox: Inbox::new(),
            taken: AtomicU32::new(1),
            tid: AtomicI32::new(0),
            pid: AtomicI32::new(0),
            dead: AtomicBool::new(false),
            left: AtomicBool::new(false),
            watched: AtomicU32::new(0),
            thread: AtomicPtr::new(null_mut()),
            next: AtomicPtr::new(null_mut()),
        }));
        let mut last = SLOTS.all.load(Acquire);
        loop {
            slot.next.store(last, Relaxed);
            match SLOTS.all.compare_exchange(last, slot, AcqRel, Acquire) {
                Ok(_) => return slot,
                Err(now) => last = now,
            }
        }
    }
}

/// Bytes at the window's start that are mapped again behind its end: enough for [`ALIAS`] cells.
pub const SHARED: u64 = 8192;
const _: () = assert!(SHARED >= ALIAS as u64);

/// Reserves stacks, context block, window, and the alias of the window's first cells. Returns the
/// stacks and the window.
fn map_window(p: Predictor) -> Result<(u64, u64), i32> {
    let before = 2 * STACK + CTX_SIZE as u64;
    let total = before + p.size().max(SHARED) + SHARED;
    let stack = sys::mmap_anon_noreserve(0, total, sys::PROT_READ | sys::PROT_WRITE)?;
    let first = stack + before;
    if p.size() > SHARED {
        sys::madvise_wipe_on_fork(first + SHARED, p.size() - SHARED);
    }
    map_shared(first, p).map(|_| (stack, first))
}

/// Maps fresh memory for the first cells of the window that begins at `first`, and the same memory
/// again behind the window's end.
pub(super) fn map_shared(first: u64, p: Predictor) -> Result<(), i32> {
    // In a small window they are repeated more than once.
    let len = SHARED.min(p.size());
    sys::mmap_shared_fixed(first, len)?;
    let (begin, end) = (first + p.size(), first + p.size() + SHARED);
    (begin..end)
        .step_by(len as usize)
        .try_for_each(|at| sys::duplicate_shared(first, len, at))
}

impl ThreadSlot {
    /// Its thread has ended, and everything but the stacks is zeroed: the next thread may have it.
    pub(super) fn give_back(&'static self) {
        SLOTS.free.lock().push(self);
    }
}

/// Gives up all free slots, in a child that has a copy of the memory. Their first pages are shared
/// with the parent's.
pub(super) fn abandon_free() {
    for slot in core::mem::take(&mut *SLOTS.free.lock()) {
        slot.dead.store(true, Release);
    }
}

/// Keeps the list of free slots from changing while the process is copied.
pub fn hold() -> impl Sized {
    SLOTS.free.lock()
}
