//! Remembers what searches found as last accesses to single bytes. So no stretch is replayed twice for the same byte.

use crate::Watchpoint;
use std::collections::{BTreeMap, HashMap};

/// An access that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The number of instructions completed before it.
    pub count: u64,
    pub address: u64,
    pub len: u64,
    pub write: bool,
}

/// An access to a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Last {
    pub effect: Effect,
    /// What the target's bytes hold after it. The flag of a byte says whether the program's accesses made that known.
    pub bytes: Vec<(u8, bool)>,
}

/// Instructions that access watched memory, as one search leaves them for the next.
pub struct Learned {
    pub watches: Vec<Watchpoint>,
    /// For each, how often it was met, and how often it accessed the memory.
    pub met: BTreeMap<u64, (u64, u64)>,
}

/// At most this many stretches of all bytes are remembered.
const MOST: usize = 1 << 14;
/// At most this many stretches of one byte are remembered.
const EACH: usize = 256;

/// The last access that was found among instructions `lo..hi`.
struct Stretch {
    lo: u64,
    hi: u64,
    last: Option<Last>,
}

/// What a player has found.
#[derive(Default)]
pub struct Swept {
    /// The key is an address, and whether a mark alone counted as an access.
    bytes: HashMap<(u64, bool), Vec<Stretch>>,
    count: usize,
}

impl Swept {
    /// The last access by instructions `lo..hi`. `None`: it is not known. `Some(None)`: there is none.
    pub fn get(&self, key: (u64, bool), lo: u64, hi: u64) -> Option<Option<&Last>> {
        let around = |s: &&Stretch| s.lo <= lo && hi <= s.hi;
        let known = |s: &Stretch| match &s.last {
            None => true,
            // What came before the found access is not known.
            Some(l) => (lo..hi).contains(&l.effect.count) || l.effect.count < lo,
        };
        let list = self.bytes.get(&key)?.iter().filter(around);
        let s = list.into_iter().find(|s| known(s))?;
        Some(s.last.as_ref().filter(|l| l.effect.count >= lo))
    }

    /// Remembers the last access by instructions `lo..hi`.
    pub fn put(&mut self, key: (u64, bool), lo: u64, hi: u64, last: Option<Last>) {
        if self.count >= MOST {
            *self = Swept::default();
        }
        let list = self.bytes.entry(key).or_default();
        if list.len() >= EACH {
            self.count -= list.len();
            list.clear();
        }
        list.push(Stretch { lo, hi, last });
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_only_what_was_found() {
        let last = |count| Last {
            effect: Effect {
                count,
                address: 8,
                len: 1,
                write: true,
            },
            bytes: vec![(1, true)],
        };
        let mut s = Swept::default();
        s.put((8, true), 100, 200, Some(last(150)));
        s.put((8, true), 200, 300, None);
        let get = |a, lo, hi| (s.get((a, true), lo, hi)).map(|l| l.map(|l| l.effect.count));
        assert_eq!(get(8, 100, 200), Some(Some(150)));
        assert_eq!(get(8, 120, 151), Some(Some(150)));
        assert_eq!(get(8, 151, 200), Some(None));
        assert_eq!(get(8, 100, 150), None, "an earlier one may be there");
        assert_eq!(get(8, 210, 300), Some(None));
        assert_eq!(get(8, 150, 250), None);
        assert_eq!(get(9, 100, 200), None);
        assert!(s.get((8, false), 100, 200).is_none());
        for i in 0..3 * MOST as u64 {
            s.put((i / 300, true), i, i + 1, None);
        }
        assert!(s.count <= MOST && s.bytes.values().map(Vec::len).sum::<usize>() == s.count);
    }
}
