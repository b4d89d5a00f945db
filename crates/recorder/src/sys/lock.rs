//! A lock that needs neither thread-local storage nor a C library, and that survives its owner.
//! Signal handlers never wait for one.
//!
//! A process that shares the program's memory may be killed by itself, at any instruction, and the
//! others go on. So a lock says three things:
//!
//! - who owns it, by an address on the owner's stack in the recorder (see
//!   [`crate::thread::owners`]);
//! - whether the value may have been changed since the lock was taken;
//! - whether somebody may sleep until it is given back.
//!
//! Who waits sleeps, and from time to time looks whether the owner still lives. If not, the lock goes to the one that
//! waits:
//!
//! - If nothing was changed, as it is.
//! - If something may be half done, after the value has been mended.
//! - If the value cannot be mended, the recording ends with a message.

#[cfg(all(test, loom))]
mod models;
mod word;

use crate::line;
use crate::sys::fail;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*, compiler_fence};
use word::{MOST_PATIENCE, PATIENCE, SPINS, Word};

/// Bit of [`Lock::owner`]: the value may have been changed.
const CHANGED: u64 = 1;

/// Bit of [`Lock::owner`]: somebody may sleep until the lock is free.
const AWAITED: u64 = 2;

/// The address in a [`Lock::owner`].
fn address(word: u64) -> u64 {
    word & !(CHANGED | AWAITED)
}

/// Who owns a lock.
pub trait Owner {
    /// Whether this address names it.
    fn is(&self, address: u64) -> bool;

    /// Whether an address is on its stacks.
    fn has(&self, address: u64) -> bool;

    /// Whether it does not run in this memory any more. False if that is not known.
    fn is_gone(&self) -> bool;
}

/// Calls the function with the thread on whose stack an address lies, if there is one. During the
/// call no other thread gets that stack.
pub type Find = fn(u64, &mut dyn FnMut(&dyn Owner));

/// A function of type [`Find`], or null.
static FIND: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Says how owners are found. Before that, nobody counts as gone.
pub fn ask(find: Find) {
    FIND.store(find as *mut (), Release);
}

/// A value that one thread at a time may use.
pub struct Lock<T, W = AtomicU64> {
    /// An address on the owner's stack, [`CHANGED`] and [`AWAITED`]. 0: the lock is free.
    owner: W,
    /// Makes the value whole again, after somebody was killed while changing it.
    mend: Option<fn(&mut T)>,
    value: UnsafeCell<T>,
}

// SAFETY: a thread reaches the value only while `owner` names it.
unsafe impl<T: Send, W: Word> Sync for Lock<T, W> {}

/// Access to a locked value. The lock is given back when this is dropped.
pub struct Guard<'a, T, W: Word = AtomicU64>(&'a Lock<T, W>);

impl<T> Lock<T> {
    /// A lock whose value cannot be mended: if somebody is killed while changing it, the recording
    /// ends.
    pub const fn new(value: T) -> Lock<T> {
        Lock::of(AtomicU64::new(0), value, None)
    }

    /// A lock whose value `mend` makes whole again, if its owner was killed while changing it.
    /// `mend` must not rely on parts of the value that may be half changed.
    pub const fn mended(value: T, mend: fn(&mut T)) -> Lock<T> {
        Lock::of(AtomicU64::new(0), value, Some(mend))
    }
}

impl<T, W> Lock<T, W> {
    /// A free lock. `owner` is 0.
    const fn of(owner: W, value: T, mend: Option<fn(&mut T)>) -> Lock<T, W> {
        Lock {
            owner,
            mend,
            value: UnsafeCell::new(value),
        }
    }
}

impl<T, W: Word> Lock<T, W> {
    fn take(&self, me: u64) -> bool {
        self.owner.compare_exchange(0, me, Acquire, Relaxed).is_ok()
    }

    /// The value, if the lock is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T, W>> {
        self.take(here()).then(|| Guard(self))
    }

    /// Waits until the lock is free.
    pub fn lock(&self) -> Guard<'_, T, W> {
        self.lock_as(here())
    }

    /// The same for a thread that is known by the address `me`.
    #[inline]
    fn lock_as(&self, me: u64) -> Guard<'_, T, W> {
        if !self.take(me) {
            self.wait(me);
        }
        Guard(self)
    }

    /// Waits until the lock is free. The value counts as changed from here on.
    pub fn lock_to_change(&self) -> Guard<'_, T, W> {
        let mut guard = self.lock();
        let _: &mut T = &mut guard;
        guard
    }

    #[cold]
    fn wait(&self, me: u64) {
        for _ in 0..SPINS {
            if self.take(me) {
                return;
            }
            core::hint::spin_loop();
        }
        let mut patience = PATIENCE;
        loop {
            // Others may sleep as well. Who has slept cannot know.
            if self.take(me | AWAITED) {
                return;
            }
            let word = self.owner.load(Relaxed);
            if word == 0 {
                continue;
            }
            let awaited = word | AWAITED;
            if word != awaited
                && self
                    .owner
                    .compare_exchange(word, awaited, Relaxed, Relaxed)
                    .is_err()
            {
                continue;
            }
            // Who gives the lock back, or is woken, may be killed before the next one is. So nobody
            // sleeps for ever.
            if self.owner.sleep(awaited, patience) {
                if self.inherit(me) {
                    return;
                }
                patience = (patience * 2).min(MOST_PATIENCE);
            }
        }
    }

    /// Takes the lock from an owner that is gone. Returns whether it has.
    fn inherit(&self, me: u64) -> bool {
        let find = FIND.load(Acquire);
        if find.is_null() {
            return false;
        }
        // SAFETY: it is not null, so `ask` has stored a function of this type.
        let find = unsafe { core::mem::transmute::<*mut (), Find>(find) };
        let mut done = false;
        find(address(self.owner.load(Acquire)), &mut |owner| {
            invariant!(
                !owner.has(me),
                "a thread does not wait for a lock that it holds",
                "{}",
                core::any::type_name::<T>()
            );
            done = self.inherit_from(owner, me);
        });
        done
    }

    fn inherit_from(&self, owner: &dyn Owner, me: u64) -> bool {
        // `owner` exists, so from here on nobody else gets the stack that it is known by.
        let word = self.owner.load(SeqCst);
        if !owner.is(address(word)) || !owner.is_gone() {
            return false;
        }
        let changed = word & CHANGED != 0;
        // It counts as changed until it is whole: this thread may be killed as well.
        let mine = me | word & (CHANGED | AWAITED);
        if self
            .owner
            .compare_exchange(word, mine, Acquire, Relaxed)
            .is_err()
        {
            return false;
        }
        log!(
            Warn,
            "takes the lock of {} from one that is gone; it was {}",
            core::any::type_name::<T>(),
            if changed {
                "changing it"
            } else {
                "only looking"
            }
        );
        match (changed, self.mend) {
            (false, _) => {}
            // SAFETY: this thread has just become the owner.
            (true, Some(mend)) => mend(unsafe { &mut *self.value.get() }),
            (true, None) => fail::die(
                fail::STATUS,
                &line!(
                    "a process that shared this one's memory was killed while it changed {}; the recording ends here",
                    core::any::type_name::<T>()
                ),
            ),
        }
        true
    }
}

/// An address on the present stack.
#[cfg(miri)]
fn here() -> u64 {
    // It executes no assembly.
    let here = 0u64;
    &raw const here as u64
}

/// An address on the present stack.
#[cfg(not(miri))]
#[inline]
fn here() -> u64 {
    let sp: u64;
    // SAFETY: reads a register. In code that a compiler has made it is a multiple of 8.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags))
    };
    sp & !7
}

impl<T, W: Word> Deref for Guard<'_, T, W> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held while the guard lives.
        unsafe { &*self.0.value.get() }
    }
}

impl<T, W: Word> DerefMut for Guard<'_, T, W> {
    fn deref_mut(&mut self) -> &mut T {
        if self.0.owner.load(Relaxed) & CHANGED == 0 {
            self.0.owner.fetch_or(CHANGED, Relaxed);
        }
        // A thread is killed between two of its instructions, so the order of instructions is all
        // that counts.
        compiler_fence(SeqCst);
        // SAFETY: the lock is held while the guard lives, and the guard is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T, W: Word> Drop for Guard<'_, T, W> {
    fn drop(&mut self) {
        if self.0.owner.swap(0, Release) & AWAITED != 0 {
            self.0.owner.wake();
        }
    }
}
