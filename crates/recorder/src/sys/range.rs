//! A range of addresses that is set once and looked at by everybody, signal handlers included.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::*};

/// A range of addresses, empty until it is set. Whoever looks while it is being set still finds it empty, since the end is
/// set last.
pub struct AtomicRange {
    start: AtomicU64,
    end: AtomicU64,
}

impl AtomicRange {
    /// An empty range.
    pub const fn new() -> AtomicRange {
        AtomicRange {
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
        }
    }

    /// Sets an empty range.
    pub fn set(&self, range: Range<u64>) {
        self.start.store(range.start, Release);
        self.end.store(range.end, Release);
    }

    /// Its first address; 0 while it is empty.
    pub fn start(&self) -> u64 {
        self.start.load(Relaxed)
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        address < self.end.load(Acquire) && address >= self.start.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_empty_until_it_is_set_and_has_no_end() {
        let r = AtomicRange::new();
        assert!(!r.contains(0) && !r.contains(5));
        r.set(5..7);
        assert_eq!(r.start(), 5);
        assert_eq!(
            [4, 5, 6, 7].map(|a| r.contains(a)),
            [false, true, true, false]
        );
    }
}
