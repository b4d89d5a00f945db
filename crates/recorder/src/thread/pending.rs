//! Signals that were sent to the whole process while all of its threads had them blocked. Only
//! those that faults raise are kept here, since these always come to the recorder. The kernel keeps
//! the others.

use crate::sys::context::Info;
use crate::sys::lock::Lock;
use crate::thread::signal_state::bit;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the threads of one process have in common.
pub type Shared = Arc<Pending>;

/// Signals that are kept. There is never more than one of each number.
pub struct Pending {
    list: Lock<Vec<Info>>,
    /// The mask of their numbers, which can be read without the lock.
    set: AtomicU64,
}

impl Pending {
    /// Keeps no signal yet.
    pub fn new() -> Shared {
        Arc::new(Pending {
            list: Lock::new(Vec::new()),
            set: AtomicU64::new(0),
        })
    }

    /// The mask of their numbers.
    pub fn set(&self) -> u64 {
        self.set.load(Relaxed)
    }

    /// Keeps a signal, unless there is one of its number.
    pub fn put(&self, info: Info) {
        let mut list = self.list.lock();
        if self.set() & bit(info.signo as u32) == 0 {
            list.push(info);
            self.tell(&list);
        }
    }

    /// Takes the one with the lowest number in the mask `wanted`.
    pub fn take(&self, wanted: u64) -> Option<Info> {
        if self.set() & wanted == 0 {
            return None;
        }
        let mut list = self.list.lock();
        let all = list.iter().enumerate();
        let matching = all.filter(|(_, i)| bit(i.signo as u32) & wanted != 0);
        let (n, _) = matching.min_by_key(|(_, i)| i.signo)?;
        let info = list.swap_remove(n);
        self.tell(&list);
        Some(info)
    }

    fn tell(&self, list: &[Info]) {
        let set = list.iter().fold(0, |set, i| set | bit(i.signo as u32));
        self.set.store(set, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(signo: i32, code: i32) -> Info {
        Info {
            signo,
            code,
            ..Info::default()
        }
    }

    #[test]
    fn the_first_of_each_number_is_kept_and_the_lowest_comes_first() {
        let p = Pending::new();
        for (signo, code) in [(11, 1), (5, 1), (11, 2)] {
            p.put(info(signo, code));
        }
        assert_eq!(p.set(), bit(5) | bit(11));
        assert!(p.take(bit(7)).is_none());
        let order: Vec<_> = core::iter::from_fn(|| p.take(!0))
            .map(|i| (i.signo, i.code))
            .collect();
        assert_eq!(order, [(5, 1), (11, 1)]);
        assert_eq!(p.set(), 0);
    }
}
