//! The word of a lock, and how its threads wait. Loom has a word of its own: see `models.rs`.

use core::sync::atomic::{AtomicU64, Ordering};

/// How often a thread looks at the lock between two pauses in which another thread may run.
#[cfg(not(all(test, loom)))]
pub const SPINS: u32 = 64;
#[cfg(all(test, loom))]
pub const SPINS: u32 = 1;

/// Number of pauses before the first look at whether the owner lives. Before each further look it
/// is doubled. Nearly always the owner was gone before anybody waited, and looks keep living owners
/// from mapping memory.
#[cfg(not(all(test, loom)))]
pub const PATIENCE: u32 = 4;
#[cfg(all(test, loom))]
pub const PATIENCE: u32 = 1;

/// The most pauses between two looks.
#[cfg(not(all(test, loom)))]
pub const MOST_PATIENCE: u32 = 1024;
#[cfg(all(test, loom))]
pub const MOST_PATIENCE: u32 = 1;

/// Lets another thread run.
#[cfg(not(all(test, loom)))]
pub fn pause() {
    crate::sys::sched_yield();
}
#[cfg(all(test, loom))]
pub fn pause() {
    loom::thread::yield_now();
}

/// A word that several threads change.
pub trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
}

/// The calls of an atomic number.
macro_rules! word {
    ($atomic:ty) => {
        impl Word for $atomic {
            #[inline]
            fn load(&self, order: Ordering) -> u64 {
                <$atomic>::load(self, order)
            }

            #[inline]
            fn store(&self, value: u64, order: Ordering) {
                <$atomic>::store(self, value, order);
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
        }
    };
}

word!(AtomicU64);
#[cfg(all(test, loom))]
word!(loom::sync::atomic::AtomicU64);
