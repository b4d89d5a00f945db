//! Which code and mappings a ring still needs.
//!
//! A byte of code at an epoch has the content of the last piece with it up to that epoch. If there is none,
//! it has that of the first piece. A mapping is valid from its place in the image's stream until others have
//! covered all of it. So each piece of the stream is valid *from* one time *to* another. It is needed if a
//! time in between is needed.

use std::collections::BTreeMap;

/// Times that are needed: code epochs, or chunk numbers.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Times(BTreeMap<u64, u64>);

impl Times {
    /// Adds all times from `first` to `last`.
    pub fn add(&mut self, mut first: u64, mut last: u64) {
        while let Some((&f, &l)) = self.0.range(..=last).next_back()
            && l >= first
        {
            (first, last) = (first.min(f), last.max(l));
            self.0.remove(&f);
        }
        self.0.insert(first, last);
    }

    /// Whether `from..to` has a needed time.
    pub fn any(&self, from: u64, to: u64) -> bool {
        let Some(before) = to.checked_sub(1).filter(|b| *b >= from) else {
            return false;
        };
        let latest = self.0.range(..=before).next_back();
        latest.is_some_and(|(_, last)| *last >= from)
    }
}

/// Address ranges, each with the time from which something else covers it. Filled backwards.
#[derive(Default)]
struct Cover(BTreeMap<u64, (u64, u64)>);

impl Cover {
    /// Says that from now on `start..end` belongs to `time`.
    fn set(&mut self, start: u64, end: u64, time: u64) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let inside: Vec<u64> = self.0.range(start..end).map(|(s, _)| *s).collect();
        for s in inside {
            self.0.remove(&s);
        }
        self.0.insert(start, (end, time));
    }

    fn split(&mut self, at: u64) {
        if let Some((&s, &(e, time))) = self.0.range(..at).next_back()
            && e > at
        {
            self.0.insert(s, (at, time));
            self.0.insert(at, (e, time));
        }
    }

    /// The times of all parts of `start..end`; `None` for parts that were never set.
    fn parts(&self, start: u64, end: u64) -> Vec<Option<u64>> {
        let mut out = Vec::new();
        let mut at = start;
        let before = self.0.range(..start).next_back();
        for (&s, &(e, time)) in before.into_iter().chain(self.0.range(start..end)) {
            if e <= at {
                continue;
            }
            if s > at {
                out.push(None);
            }
            out.push(Some(time));
            at = e;
        }
        if at < end {
            out.push(None);
        }
        out
    }
}

/// What a stream says about some addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// The first address.
    pub addr: u64,
    /// Their number, in bytes.
    pub len: u64,
    /// From when it is valid. If that is not known exactly: the earliest and the latest possible time.
    pub from: (u64, u64),
}

impl Said {
    fn end(&self) -> u64 {
        self.addr.saturating_add(self.len)
    }
}

/// What happens to an entry of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Nobody needs it; it is removed.
    Gone,
    /// Only the held past needs it.
    Past,
    /// It is valid now.
    Now,
}

/// The fates of pieces of code; their times are epochs. Of two pieces with the same epoch the later one
/// counts. `needed` has the epochs that are needed. The last version of everything is always needed.
pub fn code(said: &[Said], needed: &Times) -> Vec<Fate> {
    let mut order: Vec<usize> = (0..said.len()).collect();
    order.sort_by_key(|i| said[*i].from.0);
    // The first piece at an address is also valid before its epoch.
    let mut first = vec![false; said.len()];
    let mut met = Cover::default();
    for &i in &order {
        let s = &said[i];
        let earlier = |e: &Option<u64>| e.is_some_and(|e| e < s.from.0);
        let parts = met.parts(s.addr, s.end());
        first[i] = !parts.iter().all(earlier);
        // The epoch of the first piece stays.
        if parts.iter().all(Option::is_none) {
            met.set(s.addr, s.end(), s.from.0);
        } else if first[i] {
            let mut at = s.addr;
            while at < s.end() {
                let (end, known) = met.run(at, s.end());
                if !known {
                    met.set(at, end, s.from.0);
                }
                at = end;
            }
        }
    }
    let mut fates = vec![Fate::Gone; said.len()];
    let mut later = Cover::default();
    for &i in order.iter().rev() {
        let s = &said[i];
        let since = if first[i] { 0 } else { s.from.0 };
        let mut fate = Fate::Gone;
        for next in later.parts(s.addr, s.end()) {
            match next {
                None => fate = Fate::Now,
                // No epoch was between the two: this version was never visible.
                Some(next) if next <= s.from.0 => {}
                Some(next) if fate == Fate::Gone && needed.any(since, next) => fate = Fate::Past,
                Some(_) => {}
            }
        }
        fates[i] = fate;
        later.set(s.addr, s.end(), s.from.0);
    }
    fates
}

/// The fates of changes of mappings, in their order. `true`: something was mapped; `false`: something was
/// unmapped. `needed` has the times that are needed.
pub fn mappings(said: &[(Said, bool)], needed: &Times) -> Vec<Fate> {
    let mut fates = vec![Fate::Gone; said.len()];
    let mut later = Cover::default();
    for (i, (s, _)) in said.iter().enumerate().rev() {
        let parts = later.parts(s.addr, s.end());
        // It is valid until its last part is covered.
        let over = parts.iter().try_fold(0, |max, p| p.map(|p| p.max(max)));
        fates[i] = match over {
            None => Fate::Now,
            Some(over) if needed.any(s.from.0, over + 1) => Fate::Past,
            Some(_) => Fate::Gone,
        };
        later.set(s.addr, s.end(), s.from.1);
    }
    // An unmapping is not needed where no earlier mapping is left.
    let mut there = Cover::default();
    for (i, (s, maps)) in said.iter().enumerate() {
        let empty = there.parts(s.addr, s.end()).iter().all(Option::is_none);
        if !maps && empty && fates[i] == Fate::Now {
            fates[i] = Fate::Gone;
        }
        if *maps && fates[i] != Fate::Gone {
            there.set(s.addr, s.end(), 0);
        }
    }
    fates
}

impl Cover {
    /// How far from `at` (at most to `end`) the state is the same, and whether it was set there.
    fn run(&self, at: u64, end: u64) -> (u64, bool) {
        if let Some((_, &(e, _))) = self.0.range(..=at).next_back()
            && e > at
        {
            return (e.min(end), true);
        }
        let next = self.0.range(at..end).next().map_or(end, |(s, _)| *s);
        (next, false)
    }
}
