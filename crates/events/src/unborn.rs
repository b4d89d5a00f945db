//! Processes that are being made. The collector waits until they have rings. A process that is killed before
//! that never reports itself. So its parent tells the collector its id, and the collector checks whether it
//! still lives.

use crate::ring::Header;
use crate::shared::{AtomicU32, AtomicU64, Ordering::*};

/// How many of these processes can be named at a time; further ones are only counted.
const NAMES: usize = if cfg!(all(test, loom)) { 1 } else { 64 };

/// For each process that is being made: a ticket in the upper half, and its id once that is known. 0: free.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub struct Names {
    last: AtomicU32,
    all: [AtomicU64; NAMES],
}

/// A process that is being made.
#[derive(Clone, Copy)]
pub struct Unborn {
    ticket: u32,
    /// Its index among the names, if it has one.
    slot: Option<u8>,
}

impl Header {
    /// Announces a process that is about to be made and will have a ring.
    pub fn expect(&self) -> Unborn {
        self.unborn.fetch_add(1, AcqRel);
        let ticket = self.names.last.fetch_add(1, Relaxed).wrapping_add(1).max(1);
        let word = (ticket as u64) << 32;
        let free = |n: &AtomicU64| n.compare_exchange(0, word, AcqRel, Relaxed).is_ok();
        let slot = self.names.all.iter().position(free).map(|i| i as u8);
        Unborn { ticket, slot }
    }

    /// Says that the process was made, with this id in the collector's namespace. It may have its ring
    /// already, or be gone.
    pub fn name(&self, u: Unborn, pid: i32) {
        let word = (u.ticket as u64) << 32;
        if let Some(i) = u.slot {
            let named = word | pid as u32 as u64;
            // This fails if the process has its ring already.
            let _ = self.names.all[i as usize].compare_exchange(word, named, AcqRel, Relaxed);
        }
    }

    /// Says that the process has its ring, or could not be made.
    pub fn born(&self, u: Unborn) {
        let mine = |word: u64| ((word >> 32) as u32 == u.ticket).then_some(0);
        let counted = match u.slot {
            Some(i) => self.names.all[i as usize]
                .fetch_update(AcqRel, Acquire, mine)
                .is_ok(),
            None => true,
        };
        if counted {
            self.unborn.fetch_sub(1, AcqRel);
        }
    }

    /// For the collector: stops waiting for processes that no longer live.
    pub fn bury(&self, lives: impl Fn(i32) -> bool) {
        for n in &self.names.all {
            let word = n.load(Acquire);
            let pid = word as u32 as i32;
            if pid > 0 && !lives(pid) && n.compare_exchange(word, 0, AcqRel, Relaxed).is_ok() {
                self.unborn.fetch_sub(1, AcqRel);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    fn header() -> Box<Header> {
        // SAFETY: the header consists of atomics, for which zero is valid.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn only_who_is_dead_before_the_birth_is_buried() {
        let h = header();
        let all: Vec<Unborn> = (0..NAMES + 3).map(|_| h.expect()).collect();
        assert_eq!(h.unborn.load(Relaxed) as usize, NAMES + 3);
        for (i, u) in all.iter().enumerate() {
            h.name(*u, i as i32 + 1);
        }
        // The processes with even ids died. The last three have no names.
        h.bury(|pid| pid % 2 == 1);
        assert_eq!(h.unborn.load(Relaxed) as usize, NAMES / 2 + 3);
        // Processes that were buried are not counted twice if they report after all.
        all.iter().for_each(|u| h.born(*u));
        assert_eq!(h.unborn.load(Relaxed), 0);
        // One process reports before its parent names it, and another one takes its slot.
        let a = h.expect();
        h.born(a);
        let b = h.expect();
        assert_eq!(a.slot, b.slot);
        h.name(a, 7);
        h.bury(|_| false);
        assert_eq!(h.unborn.load(Relaxed), 1);
        h.name(b, 8);
        h.bury(|_| false);
        assert_eq!(h.unborn.load(Relaxed), 0);
    }

    #[test]
    fn who_is_born_while_others_bury_is_counted_once() {
        let (h, left) = (header(), AtomicU32::new(4));
        std::thread::scope(|s| {
            for t in 0..4 {
                let (h, left) = (&h, &left);
                s.spawn(move || {
                    for i in 0..if cfg!(miri) { 50 } else { 2000 } {
                        let u = h.expect();
                        h.name(u, 1 + (t + i) % 5);
                        std::thread::yield_now();
                        h.born(u);
                    }
                    left.fetch_sub(1, Release);
                });
            }
            s.spawn(|| {
                while left.load(Acquire) > 0 {
                    h.bury(|pid| pid % 2 == 0);
                }
            });
        });
        assert_eq!(h.unborn.load(Relaxed), 0);
    }
}
