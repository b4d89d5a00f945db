//! Which low 32 bits of addresses are in use, by which mapping, and which stretches of them are
//! free.
//!
//! As long as no two mappings share low bits, every answer takes the same small time, however many
//! mappings there are. In the quiet regime that is so, but for mappings that cannot be accessed.
//! Once two mappings share low bits, this index says so. Then whoever asks looks at all mappings
//! instead.

use super::table::SPAN;
use alloc::collections::{BTreeMap, BTreeSet};

/// See the module's description.
pub struct Cells {
    /// For each stretch in use, by its beginning: its length and the whole address.
    used: BTreeMap<u64, (u64, u64)>,
    /// Length and beginning of each free stretch. Low bits form a circle: the last is followed by
    /// the first.
    free: BTreeSet<(u64, u64)>,
    /// See [`Cells::is_tangled`].
    tangled: bool,
}

fn low(addr: u64) -> u64 {
    addr & (SPAN - 1)
}

impl Cells {
    /// Nothing is in use.
    pub const fn new() -> Cells {
        Cells {
            used: BTreeMap::new(),
            free: BTreeSet::new(),
            tangled: false,
        }
    }

    /// Two mappings share low bits, or have shared them. So nothing is known.
    pub fn is_tangled(&self) -> bool {
        self.tangled
    }

    fn tangle(&mut self) {
        self.used.clear();
        self.free.clear();
        self.tangled = true;
    }

    /// The last stretch in use that begins at `at` or before it, around the circle.
    fn up_to(&self, at: u64) -> Option<(u64, u64)> {
        let mut before = self.used.range(..=at);
        let last = before.next_back().or_else(|| self.used.last_key_value());
        last.map(|(start, (len, _))| (*start, *len))
    }

    /// Where the free stretch around `at` ends. `at` is not in use.
    fn next(&self, at: u64) -> Option<u64> {
        let mut behind = self.used.range(at..);
        let next = behind.next().or_else(|| self.used.first_key_value());
        next.map(|(start, _)| *start)
    }

    /// The free stretch around `at`: its beginning and length. `None`: `at` is in use.
    fn around(&self, at: u64) -> Option<(u64, u64)> {
        let Some((start, len)) = self.up_to(at) else {
            return Some((at, SPAN));
        };
        if low(at.wrapping_sub(start)) < len {
            return None;
        }
        let begin = low(start + len);
        let end = self.next(at)?;
        Some((begin, low(end.wrapping_sub(begin))))
    }

    /// Adds a mapping of `len` bytes at `addr`. `len` is less than [`SPAN`].
    pub fn add(&mut self, addr: u64, len: u64) {
        if self.tangled {
            return;
        }
        let at = low(addr);
        let room = self.around(at);
        let Some((begin, size)) = room.filter(|(b, n)| low(at.wrapping_sub(*b)) + len <= *n) else {
            return self.tangle();
        };
        let before = low(at.wrapping_sub(begin));
        self.free.remove(&(size, begin));
        for (n, from) in [(before, begin), (size - before - len, low(at + len))] {
            if n != 0 {
                self.free.insert((n, from));
            }
        }
        self.used.insert(at, (len, addr));
    }

    /// Removes a mapping that was added.
    pub fn remove(&mut self, addr: u64, len: u64) {
        let at = low(addr);
        if self.tangled || self.used.remove(&at) != Some((len, addr)) {
            return;
        }
        if self.used.is_empty() {
            // All is free now. Such a stretch has no beginning, so it is not in the list.
            return self.free.clear();
        }
        let Some((begin, size)) = self.around(at) else {
            return self.tangle();
        };
        let before = low(at.wrapping_sub(begin));
        for (n, from) in [
            (before, begin),
            (size.saturating_sub(before + len), low(at + len)),
        ] {
            self.free.remove(&(n, from));
        }
        self.free.insert((size, begin));
    }

    /// Addresses of the mappings that share low bits with `len` bytes at `addr`.
    pub fn meeting(&self, addr: u64, len: u64) -> impl Iterator<Item = u64> {
        let at = low(addr);
        let end = at + len.min(SPAN);
        let first = self
            .up_to(at)
            .filter(|(s, n)| low(at.wrapping_sub(*s)) < *n);
        let first = first.and_then(|(s, _)| self.used.get(&s));
        let here = self.used.range(at..end.min(SPAN));
        let around = self.used.range(..end.saturating_sub(SPAN).min(at));
        let others = here.chain(around).map(|(_, (_, a))| *a);
        let first = first.map(|(_, a)| *a);
        first
            .into_iter()
            .chain(others.filter(move |a| Some(*a) != first))
    }

    /// Free stretches of at least `len` bytes, the shortest first: beginning and length.
    pub fn free(&self, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let whole = self.used.is_empty().then_some((0, SPAN));
        let list = self.free.range((len, 0)..).map(|(n, at)| (*at, *n));
        whole.into_iter().chain(list)
    }

    /// The longest free stretch.
    pub fn longest(&self) -> Option<(u64, u64)> {
        self.free.last().map(|(n, at)| (*at, *n))
    }
}
