//! Order numbers, and the locks that make those of atomic operations exact.

use crate::code::cache;
use crate::stream::ring;
use crate::sys::{self, many};
use crate::thread::Thread;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use hindsight_events::Event;
use hindsight_events::ring::{GRANULE, STRIPES, Stripe, stripe_of};

/// What threads use of which nothing is recorded, in place of the control file's.
struct Unrecorded {
    /// The locks that they take.
    stripes: [Stripe; STRIPES],
    /// The counter that they use.
    sequence: AtomicU64,
}

static UNRECORDED: Unrecorded = Unrecorded {
    stripes: [const {
        Stripe {
            owner: AtomicU32::new(0),
        }
    }; STRIPES],
    sequence: AtomicU64::new(0),
};

/// How often somebody looks at a lock between two pauses in which another thread may run.
const SPINS: u32 = 256;

/// Number of pauses before each question to the collector whether the owner still lives.
const PATIENCE: u32 = 1000;

/// Begins to order atomic operations, if there are others now against which they can be ordered.
/// These may be operations of other threads, of which the caller knows, or of processes that share
/// memory.
pub fn attend(t: &mut Thread) {
    if many::is_shared() && many::has_shared_memory() && !t.task.is_silent {
        cache::cache().sequence_atomics(t);
    }
}

impl Thread {
    /// Records an order number, if there is anything to be ordered against.
    pub fn sequence(&mut self) {
        if many::is_shared() && !self.gaps.is_open() {
            self.sequence_always();
        }
    }

    /// Records an order number.
    pub fn sequence_always(&mut self) {
        let number = ring::next_sequence();
        self.event(&Event::Seq { number });
    }

    /// Gives translated code what the order of atomic operations needs (see `hindsight_glue`).
    pub fn attach_sequence(&mut self) {
        let recorded = self.emit.ring().zip(ring::order());
        self.ctx.pen = self.emit.pen() as u64;
        // 0 in a lock says that it is free.
        self.ctx.owner = recorded.map_or(0, |(ring, _)| ring as u64 + 1);
        self.ctx.stripes =
            recorded.map_or(&raw const UNRECORDED.stripes as u64, |(_, (_, s))| s as u64);
        self.ctx.sequence = recorded
            .map_or(&UNRECORDED.sequence, |(_, (n, _))| n)
            .as_ptr() as u64;
    }

    fn stripe(&self, i: usize) -> &'static Stripe {
        // SAFETY: `attach_sequence` set `stripes` to the first of `STRIPES` locks, which are never
        // unmapped.
        unsafe { &*(self.ctx.stripes as *const Stripe).add(i % STRIPES) }
    }

    /// Does what translated code could not do for the atomic operation on `size` bytes at `ctx.ea`.
    /// Takes its lock, draws its number, and records that.
    pub fn sequence_atomic(&mut self, size: u8) {
        let number = if self.ctx.stripe != 0 {
            self.ctx.value
        } else {
            // Must come first: nobody may wait for room with a lock in hand.
            self.emit.reserve();
            self.lock_granules(size);
            // SAFETY: `attach_sequence` set it to a counter that is never unmapped.
            unsafe { &*(self.ctx.sequence as *const AtomicU64) }.fetch_add(1, AcqRel)
        };
        self.event(&Event::Seq { number });
    }

    /// Takes the lock of the operand, and puts its address into `ctx.stripe`. If the operand
    /// reaches into another granule, takes that one's lock, too. [`Thread::release_second`] gives
    /// that one back.
    fn lock_granules(&mut self, size: u8) {
        let first = stripe_of(self.ctx.ea);
        let last = stripe_of(self.ctx.ea.wrapping_add(size.max(1) as u64 - 1));
        // Always in the same order. Otherwise two threads could wait for each other.
        let (low, high) = (first.min(last), first.max(last));
        self.lock_stripe(low);
        if high != low {
            self.lock_stripe(high);
            self.second_lock = Some(high);
            // Translated code gives back only one lock. So the thread has to come to the runtime
            // when the instruction is done.
            self.inbox.leave_requested.store(true, Relaxed);
        }
        self.ctx.stripe = self.stripe(low).owner.as_ptr() as u64;
    }

    fn lock_stripe(&self, i: usize) {
        let lock = &self.stripe(i).owner;
        let me = self.ctx.owner as u32;
        let mut spins = 0u32;
        let mut alive = None;
        while lock.compare_exchange_weak(0, me, Acquire, Relaxed).is_err() {
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(SPINS) {
                if spins.is_multiple_of(SPINS * PATIENCE) {
                    ring::complain(&mut alive);
                }
                // Never sleeps: this thread may hold another lock, and the owner of a lock has to
                // run.
                sys::sched_yield();
            } else {
                core::hint::spin_loop();
            }
        }
    }

    /// Gives back the second lock of an operand, if one is held. The thread stands between two
    /// instructions.
    pub fn release_second(&mut self) {
        if let Some(i) = self.second_lock.take() {
            self.stripe(i).owner.store(0, Release);
        }
    }

    /// Gives back the locks of an atomic operation that has failed.
    pub fn release_atomic(&mut self) {
        if self.ctx.stripe != 0 {
            // SAFETY: a `stripe` that is not 0 is the address of a lock that this thread holds.
            // Locks are never unmapped.
            unsafe { &*(self.ctx.stripe as *const AtomicU32) }.store(0, Release);
            self.ctx.stripe = 0;
        }
        self.release_second();
    }
}

const _: () = assert!(GRANULE >= 16, "an aligned operand lies in one granule");
