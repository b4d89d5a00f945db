//! Remembers what searches found as last accesses to single bytes. So no stretch is replayed twice for the same byte.

use crate::{Direction, Watchpoint};
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

/// Which slices of coarse intervals touched watched memory, as far as searches have played them.
pub struct Slices {
    watches: Vec<Watchpoint>,
    /// By the bounds of the interval.
    of: BTreeMap<(u64, u64), Sliced>,
}

/// Instructions `lo..hi` of a coarse interval were played. These slices touched the memory, ascending.
struct Sliced {
    lo: u64,
    hi: u64,
    touched: Vec<(u64, u64)>,
}

impl Slices {
    /// What is known of these watchpoints: `old`, if that is about them.
    pub fn of(old: Option<Slices>, watches: &[Watchpoint]) -> Slices {
        old.filter(|s| s.watches == watches).unwrap_or(Slices {
            watches: watches.to_vec(),
            of: BTreeMap::new(),
        })
    }

    /// The slice among instructions `lo..hi` of an interval that a search meets first. Without one, `lo` or `hi` gets the place
    /// up to where that is known. With one, nothing is left between them.
    pub fn nearest(
        &self,
        bounds: (u64, u64),
        (lo, hi): (&mut u64, &mut u64),
        way: Direction,
    ) -> Option<(u64, u64)> {
        let its = self.of.get(&bounds)?;
        let within = |s: &&(u64, u64)| s.0 < *hi && *lo < s.1;
        let (found, known) = match way {
            Direction::Forward => (its.touched.iter().find(within), its.lo..its.hi),
            Direction::Backward => (
                its.touched.iter().rfind(within),
                its.lo.saturating_add(1)..its.hi.saturating_add(1),
            ),
        };
        let at = match way {
            Direction::Forward => *lo,
            Direction::Backward => *hi,
        };
        if !known.contains(&at) {
            return None;
        }
        if let Some(s) = found {
            let slice = (s.0.max(*lo), s.1.min(*hi));
            *lo = *hi;
            return Some(slice);
        }
        match way {
            Direction::Forward => *lo = its.hi.min(*hi),
            Direction::Backward => *hi = its.lo.max(*lo),
        }
        None
    }

    /// Takes note of what was played in an interval.
    pub fn add(&mut self, bounds: (u64, u64), (lo, hi): (u64, u64), touched: &[(u64, u64)]) {
        let new = |lo, hi, touched: &[(u64, u64)]| Sliced {
            lo,
            hi,
            touched: touched.to_vec(),
        };
        let its = self.of.entry(bounds).or_insert_with(|| new(lo, lo, &[]));
        // A slice has one instruction more than was played.
        if its.hi == lo || its.touched.last().is_some_and(|s| s.1 == lo) {
            its.hi = hi;
            its.touched.extend_from_slice(touched);
        } else if hi == its.lo {
            its.lo = lo;
            its.touched.splice(0..0, touched.iter().copied());
        } else {
            *its = new(lo, hi, touched);
        }
    }
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
    fn slices_are_met_from_both_sides() {
        const ALL: (u64, u64) = (100, 900);
        let mut s = Slices::of(None, &[]);
        let near = |s: &Slices, lo, hi, way| {
            let (mut lo, mut hi) = (lo, hi);
            let found = s.nearest(ALL, (&mut lo, &mut hi), way);
            (found, lo..hi)
        };
        let (forward, backward) = (Direction::Forward, Direction::Backward);
        assert_eq!(near(&s, 100, 900, forward), (None, 100..900));
        s.add(ALL, (300, 600), &[(320, 341), (500, 521)]);
        // What is beside that is not known.
        assert_eq!(near(&s, 200, 900, forward), (None, 200..900));
        assert_eq!(near(&s, 200, 900, backward), (None, 200..900));
        assert_eq!(near(&s, 300, 900, forward), (Some((320, 341)), 900..900));
        assert_eq!(near(&s, 330, 335, forward), (Some((330, 335)), 335..335));
        assert_eq!(near(&s, 341, 900, forward), (Some((500, 521)), 900..900));
        assert_eq!(near(&s, 521, 900, forward), (None, 600..900));
        assert_eq!(near(&s, 100, 600, backward), (Some((500, 521)), 600..600));
        assert_eq!(near(&s, 100, 500, backward), (Some((320, 341)), 500..500));
        assert_eq!(near(&s, 100, 320, backward), (None, 100..300));
        // More on either side.
        s.add(ALL, (600, 700), &[(680, 701)]);
        s.add(ALL, (701, 800), &[]);
        s.add(ALL, (200, 300), &[(200, 221)]);
        assert_eq!(near(&s, 200, 900, forward), (Some((200, 221)), 900..900));
        assert_eq!(near(&s, 100, 800, backward), (Some((680, 701)), 800..800));
        assert_eq!(near(&s, 701, 900, forward), (None, 800..900));
        // What has nothing in common takes its place.
        s.add(ALL, (100, 150), &[]);
        assert_eq!(near(&s, 300, 900, forward), (None, 300..900));
        assert_eq!(near(&s, 100, 900, forward), (None, 150..900));
        assert_eq!(
            near(&Slices::of(Some(s), &[]), 100, 150, forward).1,
            150..150
        );
    }

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
