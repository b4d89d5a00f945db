//! Where threads live in the address space.

use crate::inbox::Inbox;
use crate::lock::Lock;
use crate::sys;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::*};
use hindsight_isa::ctx::CTX_SIZE;
use hindsight_isa::predictor::ALIAS;
use hindsight_isa::{Ctx, Predictor};

/// What a thread needs of the address space: stacks for the runtime and for signal handlers, the
/// context block and the window, one behind the other. It outlives the thread and serves the next one.
pub struct Place {
    pub(super) window: u64,
    /// Start of the stacks.
    pub stack: u64,
    pub(super) inbox: Inbox,
    /// Nonzero as long as the thread uses a stack.
    pub taken: AtomicU32,
}

/// Places of threads that have ended, with everything but the stacks zeroed.
pub(super) static FREE: Lock<Vec<&'static Place>> = Lock::new(Vec::new());

/// Bytes of a thread's stack in the runtime, and of its stack for signal handlers behind it.
pub const STACK: u64 = 128 << 10;

impl Place {
    /// Where the stack begins that the thread has in the runtime.
    pub fn stack_end(&self) -> u64 {
        self.stack + STACK
    }

    /// The thread's stack for signal handlers: start and length.
    pub fn signal_stack(&self) -> (u64, u64) {
        (self.stack_end(), STACK)
    }

    /// The place of the thread that ended last, or a new one. `Err` is the errno of the failed mapping.
    pub(super) fn take(predictor: Predictor) -> Result<&'static Place, i32> {
        let mut free = FREE.lock();
        // A thread that has just ended may still be on its way out, on its stack.
        let left = |p: &&'static Place| p.taken.load(Acquire) == 0;
        let place = match free.iter().rposition(left) {
            Some(i) => free.remove(i),
            None => {
                drop(free);
                Place::map(predictor)?
            }
        };
        place.taken.store(1, Relaxed);
        place.inbox.reset();
        Ok(place)
    }

    /// The context block of the thread that lives here.
    pub fn ctx(&self) -> *const Ctx {
        (self.window - CTX_SIZE as u64) as *const Ctx
    }

    /// What the signal handlers of the thread that lives here have to say.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn map(predictor: Predictor) -> Result<&'static Place, i32> {
        let (stack, window) = map_window(predictor)?;
        Ok(alloc::boxed::Box::leak(alloc::boxed::Box::new(Place {
            window,
            stack,
            inbox: Inbox::new(),
            taken: AtomicU32::new(0),
        })))
    }
}

/// Bytes at the window's start that are mapped again behind its end: enough for [`ALIAS`] cells.
pub const SHARED: u64 = 8192;
const _: () = assert!(SHARED >= ALIAS as u64);

/// Reserves stacks, context block, window, and the alias of its first cells, with holes around them as
/// guards. Returns the stacks and the window.
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

/// Maps fresh memory for the first cells of the window that begins at `first`, and again behind
/// its end.
pub(super) fn map_shared(first: u64, p: Predictor) -> Result<(), i32> {
    // A smaller predictor repeats more than once.
    let len = SHARED.min(p.size());
    sys::mmap_shared_fixed(first, len)?;
    let (begin, end) = (first + p.size(), first + p.size() + SHARED);
    (begin..end)
        .step_by(len as usize)
        .try_for_each(|at| sys::duplicate_shared(first, len, at))
}

/// Keeps the list of free places from changing while the process is copied.
pub fn hold() -> impl Sized {
    FREE.lock()
}
