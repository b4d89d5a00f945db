//! Places in the order of all threads and processes: sequence numbers, and the locks that make those of
//! atomic operations exact.

use crate::code::cache;
use crate::stream::ring;
use crate::sys::{self, many};
use crate::thread::Thread;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use hindsight_events::Event;
use hindsight_events::ring::{GRANULE, STRIPES, Stripe, stripe_of};

/// Locks and numbers of threads of which nothing is recorded.
static NOBODY: [Stripe; STRIPES] = [const {
    Stripe {
        owner: AtomicU32::new(0),
    }
}; STRIPES];
static NOTHING: AtomicU64 = AtomicU64::new(0);

/// Looks at a lock's state between two pauses in which another thread may run.
const SPINS: u32 = 256;

/// Such pauses before the collector is asked whether the owner still lives, and between questions.
const PATIENCE: u32 = 1000;

/// Begins to order atomic operations if there are others now that they can be ordered against: those of
/// other threads, of which the caller knows, or of processes that share memory.
pub fn attend(t: &mut Thread) {
    if many::is_shared() && many::has_shared_memory() && !t.is_silent {
        cache::cache().sequence_atomics(t);
    }
}

impl Thread {
    /// A sequencing event, where there is anything to be ordered against.
    pub fn sequence(&mut self) {
        if many::is_shared() && self.gap.is_none() {
            self.sequence_always();
        }
    }

    /// A sequencing event.
    pub fn sequence_always(&mut self) {
        let number = ring::next_sequence();
        self.event(&Event::Seq { number });
    }

    /// Gives translated code what the order of atomic operations needs (see `hindsight_glue`).
    pub fn attach_sequence(&mut self) {
        let recorded = self.emit.ring().zip(ring::order());
        self.ctx.pen = self.emit.pen() as u64;
        // A lock that says 0 is free.
        self.ctx.owner = recorded.map_or(0, |(ring, _)| ring as u64 + 1);
        self.ctx.stripes = recorded.map_or(&raw const NOBODY as u64, |(_, (_, s))| s as u64);
        self.ctx.sequence = recorded.map_or(&NOTHING, |(_, (n, _))| n).as_ptr() as u64;
    }

    fn stripe(&self, i: usize) -> &'static Stripe {
        // SAFETY: `attach_sequence` set it to the first of STRIPES locks that are never unmapped.
        unsafe { &*(self.ctx.stripes as *const Stripe).add(i % STRIPES) }
    }

    /// Completes what translated code could not: takes the lock of the atomic operation on `size` bytes
    /// at `ctx.ea`, draws its number, records it.
    pub fn sequence_atomic(&mut self, size: u8) {
        let number = if self.ctx.stripe != 0 {
            self.ctx.value
        } else {
            // Nobody is to wait for room with a lock in hand.
            self.emit.reserve();
            self.lock_granules(size);
            // SAFETY: set by `attach_sequence`; a counter that is never unmapped.
            unsafe { &*(self.ctx.sequence as *const AtomicU64) }.fetch_add(1, AcqRel)
        };
        self.event(&Event::Seq { number });
    }

    /// Takes the lock of the operand, whose address goes to `ctx.stripe`; of one that reaches into another
    /// granule also that of the other, which [`Thread::release_second`] gives back.
    fn lock_granules(&mut self, size: u8) {
        let first = stripe_of(self.ctx.ea);
        let last = stripe_of(self.ctx.ea.wrapping_add(size.max(1) as u64 - 1));
        // Always in the same order, lest two threads wait for each other.
        let (low, high) = (first.min(last), first.max(last));
        self.lock_stripe(low);
        if high != low {
            self.lock_stripe(high);
            self.second = Some(high);
            // Translated code gives back only one. The runtime is to see the thread again when the
            // instruction is done.
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
                // Not asleep: it may hold another lock, and who holds one runs.
                sys::sched_yield();
            } else {
                core::hint::spin_loop();
            }
        }
    }

    /// Gives the second lock of an operand back, if one is held: the thread stands between two
    /// instructions.
    pub fn release_second(&mut self) {
        if let Some(i) = self.second.take() {
            self.stripe(i).owner.store(0, Release);
        }
    }

    /// The atomic operation has failed: releases its locks.
    pub fn release_atomic(&mut self) {
        if self.ctx.stripe != 0 {
            // SAFETY: the address of a lock that is held by this thread.
            unsafe { &*(self.ctx.stripe as *const AtomicU32) }.store(0, Release);
            self.ctx.stripe = 0;
        }
        self.release_second();
    }
}

const _: () = assert!(GRANULE >= 16, "an aligned operand lies in one granule");
