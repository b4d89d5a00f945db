//! How many bytes an index may have.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit in bytes for an index, or for some parts of it. The threads that make it claim their needs from it. A thread
/// that cannot yet predict its size has its share by instructions.
pub struct Budget {
    pub(super) bytes: u64,
    instructions: u64,
    taken: AtomicU64,
}

impl Budget {
    /// A limit of `bytes` for a recording of `instructions`.
    pub fn new(bytes: u64, instructions: u64) -> Budget {
        Budget {
            bytes,
            instructions: instructions.max(1),
            taken: AtomicU64::new(bytes),
        }
    }

    /// A budget without a limit.
    pub fn unlimited() -> Budget {
        // Half of the greatest number: adding a predicted size to it does not overflow.
        Budget::new(u64::MAX / 2, 1)
    }

    /// The bytes for a stretch whose size is not yet predicted.
    pub(super) fn share(&self, instructions: u64) -> u64 {
        let share = instructions.min(self.instructions) as u128 * self.bytes as u128;
        (share / self.instructions as u128) as u64
    }

    /// Changes a claim. The caller had claimed `before` bytes, now wants `wanted`, and has used `used`. Returns the new
    /// claim, and how much the caller may use. Nobody gets more than is left: the others keep at least their shares.
    pub(super) fn claim(&self, before: u64, wanted: u64, used: u64) -> (u64, u64) {
        let mut all = self.taken.load(Relaxed);
        loop {
            let others = all.saturating_sub(before);
            let left = self.bytes.saturating_sub(others);
            let now = wanted.min(left).max(used);
            let done = self
                .taken
                .compare_exchange_weak(all, others + now, Relaxed, Relaxed);
            match done {
                Ok(_) => return (now, left),
                Err(other) => all = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_from_the_shares_of_others() {
        let budget = Budget::new(1000, 100);
        let [a, b] = [60, 40].map(|n| budget.share(n));
        // A claim that is too large gets what is left. The other thread still has its share.
        let (a, mine) = budget.claim(a, 5000, 10);
        assert_eq!((a, mine), (600, 600));
        let (b, mine) = budget.claim(b, 300, 10);
        assert_eq!((b, mine), (300, 400));
        // What one thread gives back is free for another. What is used stays used.
        let (a, mine) = budget.claim(a, 5000, 10);
        assert_eq!((a, mine), (700, 700));
        assert_eq!(budget.claim(b, 5000, 20), (300, 300));
        assert_eq!(budget.claim(a, 5000, 800), (800, 700));
        assert_eq!(budget.claim(b, 5000, 20).1, 200);
    }
}
