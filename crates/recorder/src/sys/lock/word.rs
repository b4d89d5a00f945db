//! The word of a lock, and how its threads wait. Loom has a word of its own: see `models.rs`.

use core::sync::atomic::{AtomicU64, Ordering};

/// How often a thread looks at the lock before it sleeps. Most locks are held for less than it takes
/// to go to sleep.
#[cfg(not(all(test, loom)))]
pub const SPINS: u32 = 64;
#[cfg(all(test, loom))]
pub const SPINS: u32 = 1;

/// For how many milliseconds a thread sleeps before the first look at whether the owner lives.
/// Before each further look it is doubled. Looks keep living owners from mapping memory.
pub const PATIENCE: u32 = 64;

/// The most milliseconds between two looks.
pub const MOST_PATIENCE: u32 = 4096;

/// A word that several threads change.
pub trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    fn swap(&self, value: u64, order: Ordering) -> u64;

    /// Sleeps while the word is `value`, until somebody wakes this thread, or for no reason. True if
    /// it was not woken for `millis` milliseconds.
    fn sleep(&self, value: u64, millis: u32) -> bool;

    /// Wakes one of those that sleep.
    fn wake(&self);
}

/// The calls of an atomic number.
macro_rules! word {
    ($atomic:ty, $sleep:expr, $wake:expr) => {
        impl Word for $atomic {
            #[inline]
            fn load(&self, order: Ordering) -> u64 {
                <$atomic>::load(self, order)
            }

            #[inline]
            fn compare_exchange(
                &self,
                old: u64,
                new: u64,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                <$atomic>::compare_exchange(self, old, new, success, failure)
            }

            #[inline]
            fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
                <$atomic>::fetch_or(self, bits, order)
            }

            #[inline]
            fn swap(&self, value: u64, order: Ordering) -> u64 {
                <$atomic>::swap(self, value, order)
            }

            fn sleep(&self, value: u64, millis: u32) -> bool {
                $sleep(self, value, millis)
            }

            fn wake(&self) {
                $wake(self)
            }
        }
    };
}

word!(
    AtomicU64,
    crate::sys::futex_sleep,
    crate::sys::futex_wake_one
);
// Here all sleeps end at once. `models.rs` has a word whose sleeps end only if somebody wakes.
#[cfg(all(test, loom))]
word!(
    loom::sync::atomic::AtomicU64,
    |_, _, _| {
        loom::thread::yield_now();
        true
    },
    |_| ()
);
