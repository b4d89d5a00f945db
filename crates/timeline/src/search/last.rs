//! The last accesses to several stretches of memory, found together: each stretch of instructions is
//! replayed once for all of them.

use super::effects::{FEW, check, step_accesses};
use crate::index::{PAGE, Set, Step};
use crate::player::Player;
use crate::stops::{Cancel, Watch};
use crate::{Result, Timeline, maps};
use hindsight_isa::observe::MARK;
use hindsight_replay::Stop as Halt;
use hindsight_replay::access::Finder;
use std::sync::Arc;

/// Parts into which a stretch is cut: to look at the marks of a few bytes takes little of the time that going back takes.
const SLICES: u64 = 64;

/// Bytes to which accesses by instructions `lo..hi` are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    pub address: u64,
    pub len: u64,
    pub lo: u64,
    pub hi: u64,
}

/// An access that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// Instructions completed before it.
    pub count: u64,
    pub address: u64,
    pub len: u64,
    pub write: bool,
}

/// An access to a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Last {
    pub effect: Effect,
    /// What the target's bytes then hold, and whether that is the program's.
    pub bytes: Vec<(u8, bool)>,
}

/// The last accesses to a target, the last one first.
#[derive(Clone, Default, Debug)]
pub struct Lasts {
    pub all: Vec<Last>,
    /// There are others before them; not said where one is all that is wanted.
    pub more: bool,
}

/// A search of one thread.
struct Search<'a> {
    player: &'a mut Player,
    targets: &'a [Target],
    watch: Watch,
    most: usize,
    found: Vec<Lasts>,
    /// Marks tell what was read by its whole address.
    marks: bool,
    /// Marks tell what was accessed by its whole address.
    exact: bool,
    cancel: &'a Cancel,
}

/// The last accesses of one thread to each of the targets, at most `most`, the last one first. A read is also what
/// shows memory otherwise: what the recording says of it, and what was found to have changed beside what an
/// instruction read.
pub fn last_effects(
    player: &mut Player,
    targets: &[Target],
    watch: Watch,
    most: usize,
    cancel: &Cancel,
) -> Result<Vec<Lasts>> {
    let mut hi = targets.iter().map(|t| t.hi).max().unwrap_or(0);
    let inner = Arc::clone(player.inner());
    let (reads, writes) = watch.kinds();
    let changes = Timeline(Arc::clone(&inner)).changes(inner.image(player.thread))?;
    let aliased = |t: &Target| maps::aliased(&changes, t.address, t.len);
    let exact = !targets.iter().any(aliased);
    let mut s = Search {
        marks: reads && exact,
        exact,
        player,
        targets,
        watch,
        most,
        found: vec![Lasts::default(); targets.len()],
        cancel,
    };
    // Of the part at hand: which of its intervals touched each target.
    let mut known: Option<(u64, Vec<Set>)> = None;
    while let Some(lo) = s.open(0, hi).map(|i| targets[i].lo).min()
        && lo < hi
    {
        let part = s.player.index(hi - 1)?;
        let i = part.interval(hi - 1);
        let from = lo.max(part.bounds(i).0).min(hi - 1);
        let sets = match known.take().filter(|k| k.0 == part.number) {
            Some(k) => &known.insert(k).1,
            None => {
                let set = |t: &Target| part.touching(&inner, t.address, t.len, reads, writes);
                let sets = targets.iter().map(set).collect::<Result<_>>()?;
                &known.insert((part.number, sets)).1
            }
        };
        let touched = |t: &usize| sets[*t].has(i);
        if s.open(from, hi).any(|t| touched(&t)) {
            let ends = part.ends(&inner, i)?;
            while hi > from {
                let n = ends.step(hi - 1);
                let (step, lo) = (&ends.steps[n], ends.steps[n].from.max(from).min(hi - 1));
                let alone = ends.steps.len() == 1;
                let may = |t: &usize| alone || targets[*t].is_in(step, reads);
                let open = s.open(lo, hi).filter(touched);
                let which: Vec<usize> = open.filter(may).collect();
                let full: Vec<bool> = which.iter().map(|t| s.is_full(*t)).collect();
                s.sweep(lo, hi, which.clone(), false)?;
                for (t, was) in which.into_iter().zip(full) {
                    if !was && s.is_full(t) && !s.is_done(t) {
                        s.found[t].more = s.has_before(t, part.bounds(i).0)?;
                    }
                }
                hi = lo;
            }
        }
        hi = from;
    }
    Ok(s.found)
}

impl Target {
    /// Whether a step may have accessed it, or only written to it.
    fn is_in(&self, step: &Step, reads: bool) -> bool {
        step.touches_any(self.address, self.len, reads)
    }
}

impl Search<'_> {
    /// Whether as much was found of a target as is wanted.
    fn is_full(&self, target: usize) -> bool {
        self.found[target].all.len() >= self.most
    }

    /// Whether all is known of a target that is wanted: also whether there are more.
    fn is_done(&self, target: usize) -> bool {
        self.is_full(target) && (self.most == 1 || self.found[target].more)
    }

    /// Whether the index says without doubt that an instruction of a target's accessed it in an interval before
    /// `at`, where one begins.
    fn has_before(&self, target: usize, at: u64) -> Result<bool> {
        let t = &self.targets[target];
        let (reads, writes) = self.watch.kinds();
        // Of one kind alone words are known, not bytes.
        let whole = t.address.is_multiple_of(8) && t.len.is_multiple_of(8);
        if !self.exact || !(whole || reads && writes) {
            return Ok(false);
        }
        let mut hi = at;
        let mut known: Option<(u64, Set)> = None;
        while t.lo < hi {
            let part = self.player.index(hi - 1)?;
            let set = match known.take().filter(|k| k.0 == part.number) {
                Some(k) => &known.insert(k).1,
                None => {
                    let set =
                        part.touching(self.player.inner(), t.address, t.len, reads, writes)?;
                    &known.insert((part.number, set)).1
                }
            };
            let i = part.interval(hi - 1);
            let from = part.bounds(i).0;
            if t.lo <= from && hi <= t.hi && set.has(i) {
                return Ok(true);
            }
            hi = from.min(hi - 1);
        }
        Ok(false)
    }

    /// Targets of which more is wanted from among instructions `lo..hi`.
    fn open(&self, lo: u64, hi: u64) -> impl Iterator<Item = usize> + '_ {
        let all = 0..self.targets.len();
        all.filter(move |i| {
            let t = &self.targets[*i];
            !self.is_done(*i) && t.lo < hi && lo < t.hi
        })
    }

    /// Looks for accesses to some of the targets by instructions `lo..hi`. `marked`: there are some to each.
    fn sweep(&mut self, lo: u64, hi: u64, mut which: Vec<usize>, marked: bool) -> Result<()> {
        check(self.cancel)?;
        for i in &which {
            let t = &self.targets[*i];
            let all = t.lo <= lo && hi <= t.hi;
            self.found[*i].more |= marked && all && self.exact && self.is_full(*i);
        }
        which.retain(|i| !self.is_done(*i));
        if which.is_empty() || hi <= lo {
            return Ok(());
        }
        // What is said of memory just there counts.
        self.player.reach(lo)?;
        self.player.set_breaks(Vec::new());
        if hi - lo <= FEW {
            return self.step_through(hi, &which);
        }
        self.player.snapshot_if_far()?;
        let size = ((hi - lo) / SLICES).max(1);
        let mut touched: Vec<(u64, u64, Vec<usize>, bool)> = Vec::new();
        let mut a = lo;
        self.touched(&which);
        while a < hi {
            let b = hi.min(a + size);
            let halt = self.player.run(b)?;
            let (mut some, sure) = self.touched(&which);
            if halt != Halt::Position {
                // The thread's end.
                some.clone_from(&which);
            }
            let within = |i: &usize| self.targets[*i].lo < b && a < self.targets[*i].hi;
            some.retain(within);
            if !some.is_empty() {
                touched.push((a, b, some, sure && halt == Halt::Position));
            }
            if halt != Halt::Position {
                break;
            }
            a = b;
        }
        while let Some((a, b, some, marked)) = touched.pop() {
            self.sweep(a, b, some, marked)?;
        }
        Ok(())
    }

    /// Takes the marks of targets; those that had any, and whether each of these was accessed: some marks only say that
    /// something is not known any more.
    fn touched(&mut self, which: &[usize]) -> (Vec<usize>, bool) {
        let (reads, writes) = self.watch.kinds();
        let all = which.iter().map(|i| &self.targets[*i]);
        let start = all.clone().map(|t| t.address).min().unwrap_or(0);
        let end = all.map(|t| t.address.saturating_add(t.len)).max();
        let len = end.map_or(0, |e| e - start);
        let mut out = which.to_vec();
        let mut sure = true;
        let mut any = |marks: [(bool, &[u8]); 2]| {
            let has = |is: fn(&u8) -> bool| marks.iter().any(|(on, m)| *on && m.iter().any(is));
            let any = has(|m| *m != 0);
            sure &= !any || has(|m| *m == MARK);
            any
        };
        if len > PAGE as u64 {
            out.retain(|i| {
                let t = &self.targets[*i];
                let [r, w, _] = self.player.known(t.address, t.len as usize);
                any([(reads, &r), (writes, &w)])
            });
        } else {
            // Looked at together, which most often shows that there is nothing.
            let [r, w] = self.player.marks(start, len as usize);
            let some = |on: bool, marks: &[u8]| on && marks.iter().any(|m| *m != 0);
            if !some(reads, &r) && !some(writes, &w) {
                return (Vec::new(), false);
            }
            out.retain(|i| {
                let t = &self.targets[*i];
                let from = (t.address - start) as usize;
                let bytes = from..from + t.len as usize;
                any([(reads, &r[bytes.clone()]), (writes, &w[bytes])])
            });
        }
        // Only now: targets may have bytes in common.
        for i in &out {
            let t = &self.targets[*i];
            self.player.take_marks(t.address, t.len);
        }
        (out, sure)
    }

    /// Looks at one instruction after the other, from where the player is.
    fn step_through(&mut self, hi: u64, which: &[usize]) -> Result<()> {
        let mut finder = Finder::new();
        let mut list = Vec::new();
        let mut seen: Vec<(usize, Last)> = Vec::new();
        let (reads, writes) = self.watch.kinds();
        if self.marks {
            self.touched(which);
        }
        while self.player.count() < hi {
            check(self.cancel)?;
            let count = self.player.count();
            match step_accesses(self.player, &mut finder, hi, &mut list)? {
                Some(true) => {}
                Some(false) => continue,
                None => break,
            }
            for i in which {
                let t = self.targets[*i];
                if count < t.lo || t.hi <= count {
                    continue;
                }
                let fits = |a: &&hindsight_replay::access::Access| {
                    a.touches(t.address, t.len) && (a.read && reads || a.write && writes)
                };
                let [r, w, cells] = self.player.known(t.address, t.len as usize);
                let effect = match list.iter().find(fits) {
                    Some(a) => Effect {
                        count,
                        address: a.address,
                        len: a.len,
                        write: list.iter().filter(fits).any(|a| a.write),
                    },
                    None if self.marks && r.contains(&MARK) => Effect {
                        count,
                        address: t.address,
                        len: t.len,
                        write: false,
                    },
                    None => continue,
                };
                let known = (r.iter().zip(&w)).map(|(r, w)| *r == MARK || *w == MARK);
                let bytes = cells.into_iter().zip(known).collect();
                seen.push((*i, Last { effect, bytes }));
            }
            if self.marks {
                self.touched(which);
            }
        }
        while let Some((i, last)) = seen.pop() {
            match self.is_full(i) {
                false => self.found[i].all.push(last),
                true => self.found[i].more = true,
            }
        }
        Ok(())
    }
}
