//! Finds the last accesses to several stretches of memory together. Each stretch of instructions is replayed once for
//! all of them.

use super::FEW;
use super::done::Done;
use crate::Result;
use crate::index::{PAGE, Touching};
use crate::model::stops::Watch;
use crate::play::{Effect, Last, Player};
use crate::recording::celled::Celled;
use hindsight_isa::observe::MARK;
use hindsight_replay::Stop as Halt;
use std::sync::Arc;

/// A stretch is cut into this many pieces. Reading a few marks takes little time compared with going back.
const SLICES: u64 = 256;
/// Up to this many pieces are looked at one after the other. Each costs one checkpoint and one way back.
const SINGLY: usize = 12;
/// If that was not enough, this many times as many are looked at next.
const GROWTH: usize = 8;

/// A search for accesses by instructions `lo..hi` to these bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    pub address: u64,
    pub len: u64,
    pub lo: u64,
    pub hi: u64,
}

/// The last accesses to a target, the last one first.
#[derive(Clone, Default, Debug)]
pub struct Lasts {
    pub all: Vec<Last>,
    /// There are others before them. It stays unset if only one access is wanted.
    pub more: bool,
}

/// Instructions `lo..hi`, and the targets that they may have accessed. The flag of a target says whether they did for
/// sure.
pub struct Piece {
    pub lo: u64,
    pub hi: u64,
    pub which: Vec<(usize, bool)>,
}

/// A search in one thread.
struct Search<'a> {
    player: &'a mut Player,
    targets: &'a [Target],
    watch: Watch,
    most: usize,
    found: Vec<Lasts>,
    /// Marks count as accesses for now. `left_out` says for which targets a piece was skipped because of that.
    trusting: bool,
    left_out: Vec<bool>,
    /// Marks tell what was read, by whole addresses.
    marks: bool,
    /// Marks tell what was accessed, by whole addresses. Otherwise two addresses of the program share cells.
    exact: bool,
}

/// The last accesses of one thread to each target: at most `most`, the last one first. Two other ways to see memory
/// count as reads, too:
///
/// - what the recording says of memory;
/// - a change that was found beside the bytes that an instruction read.
pub fn last_effects(
    player: &mut Player,
    targets: &[Target],
    watch: Watch,
    most: usize,
) -> Result<Vec<Lasts>> {
    let mut hi = targets.iter().map(|t| t.hi).max().unwrap_or(0);
    let engine = Arc::clone(player.engine());
    let (reads, writes) = watch.kinds();
    let changes = engine.changes(engine.image(player.thread))?;
    let until = engine.position(player.thread, hi)?;
    let celled = Celled::at(&changes, Some(until));
    let exact = !(targets.iter()).any(|t| celled.aliases(t.address, t.len));
    let mut s = Search {
        marks: reads && exact,
        exact,
        player,
        targets,
        watch,
        most,
        found: vec![Lasts::default(); targets.len()],
        trusting: true,
        left_out: vec![false; targets.len()],
    };
    // For single bytes, earlier answers are remembered.
    let remembers = |t: &Target| most == 1 && t.len == 1 && reads && writes;
    let marks = s.marks;
    // Which intervals of the present part touched each target.
    let mut known = Touching::default();
    while let Some(lo) = s.open(0, hi).map(|i| targets[i].lo).min()
        && lo < hi
    {
        // The targets that the interval touched.
        let mut which = Vec::new();
        let looked = s.player.look(hi - 1, &mut |part, i| {
            let sets = known.of(part, || {
                let set = |t: &Target| part.touching(&engine, t.address, t.len, reads, writes);
                targets.iter().map(set).collect()
            })?;
            which = sets.iter().map(|set| set.has(i)).collect();
            let from = lo.max(part.bounds(i).0).min(hi - 1);
            Ok(s.open(from, hi).any(|t| which[t]))
        })?;
        let (part, i) = (&looked.part, looked.interval);
        let from = lo.max(looked.bounds().0).min(hi - 1);
        let touched = |t: &usize| which[*t];
        if looked.touched {
            let summary = part.summary(&engine, i)?;
            let end = part.bounds(i).1;
            let step_end = |n: usize| summary.steps.get(n + 1).map_or(end, |s| s.from);
            while hi > from {
                let n = summary.step(hi - 1);
                let lo = summary.steps[n].from.max(from).min(hi - 1);
                let mut which = Vec::new();
                for i in s.open(lo, hi).filter(touched).collect::<Vec<usize>>() {
                    let t = &targets[i];
                    let may = summary.touches(n, t.address, t.len, reads);
                    if !may.ok_or_else(|| engine.bad_frame())? {
                        continue;
                    }
                    let (a, b) = (lo.max(t.lo), hi.min(t.hi));
                    let swept = &s.player.swept;
                    if remembers(t)
                        && let Some(last) = swept.get((t.address, marks), a, b)
                    {
                        s.found[i].all.extend(last.cloned());
                        continue;
                    }
                    // A certain write tells that there are more than are wanted.
                    let sure = summary.stepped && !reads && s.exact;
                    match sure
                        && s.is_full(i)
                        && t.lo <= summary.steps[n].from
                        && step_end(n) <= t.hi
                    {
                        true => s.found[i].more = true,
                        false => which.push(i),
                    }
                }
                let full: Vec<bool> = which.iter().map(|t| s.is_full(*t)).collect();
                s.sweep(lo, hi, which.clone())?;
                for (i, t) in which.iter().map(|i| (*i, &targets[*i])) {
                    if remembers(t) {
                        let last = s.found[i].all.first().cloned();
                        let (a, b) = (lo.max(t.lo), hi.min(t.hi));
                        s.player.swept.put((t.address, marks), a, b, last);
                    }
                }
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

impl Search<'_> {
    /// Whether enough accesses to a target were found.
    fn is_full(&self, target: usize) -> bool {
        self.found[target].all.len() >= self.most
    }

    /// Whether a target is answered, including whether there are more.
    fn is_done(&self, target: usize) -> bool {
        self.is_full(target) && (self.most == 1 || self.found[target].more)
    }

    /// Whether the index is certain that an access of a target lies in an interval before `at`. An interval begins at
    /// `at`.
    fn has_before(&self, target: usize, at: u64) -> Result<bool> {
        let t = &self.targets[target];
        let (reads, writes) = self.watch.kinds();
        // For one kind of access, the index knows words and not bytes.
        let whole = t.address.is_multiple_of(8) && t.len.is_multiple_of(8);
        if !self.exact || !(whole || reads && writes) {
            return Ok(false);
        }
        let mut hi = at;
        let mut known = Touching::default();
        let engine = self.player.engine();
        while t.lo < hi {
            let mut found = false;
            let looked = self.player.look(hi - 1, &mut |part, i| {
                let sets = known.of(part, || {
                    let set = part.touching(engine, t.address, t.len, reads, writes);
                    Ok(vec![set?])
                })?;
                // What a coarse interval tells of its end does not count if the search begins in its middle.
                let (from, to) = part.bounds(i);
                let whole = t.lo <= from && hi <= t.hi && to <= hi;
                found = whole && sets[0].has(i);
                Ok(sets[0].has(i) && !found)
            })?;
            if found {
                return Ok(true);
            }
            hi = looked.bounds().0.min(hi - 1);
        }
        Ok(false)
    }

    /// Targets that want more from instructions `lo..hi`.
    fn open(&self, lo: u64, hi: u64) -> impl Iterator<Item = usize> + '_ {
        let all = 0..self.targets.len();
        all.filter(move |i| {
            let t = &self.targets[*i];
            !self.is_done(*i) && t.lo < hi && lo < t.hi
        })
    }

    /// Searches instructions `lo..hi` for accesses to some targets.
    fn sweep(&mut self, lo: u64, hi: u64, mut which: Vec<usize>) -> Result<()> {
        for trusting in [true, false] {
            self.trusting = trusting;
            self.left_out.fill(false);
            let open = which.iter().map(|t| (*t, false)).collect();
            let mut seen = Vec::new();
            let whole = Piece {
                lo,
                hi,
                which: open,
            };
            self.narrow(vec![whole], &mut seen)?;
            // Some marks belong to no access of an instruction. Then what was looked at was not enough.
            let mut have: Vec<usize> = self.found.iter().map(|f| f.all.len()).collect();
            seen.iter().for_each(|(t, _)| have[*t] += 1);
            let (left_out, most) = (&self.left_out, self.most);
            which.retain(|t| left_out[*t] && have[*t] < most);
            seen.retain(|(t, _)| !which.contains(t));
            while let Some((i, last)) = seen.pop() {
                match self.is_full(i) {
                    false => self.found[i].all.push(last),
                    true => self.found[i].more = true,
                }
            }
            if which.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Looks into ascending pieces, the last ones first. It takes more of them each time, because the last ones may be
    /// enough even if their marks do not promise that.
    fn narrow(&mut self, mut list: Vec<Piece>, seen: &mut Vec<(usize, Last)>) -> Result<()> {
        self.keep_needed(&mut list);
        let mut groups = Vec::new();
        let mut size = SINGLY;
        let mut have: Vec<usize> = self.found.iter().map(|f| f.all.len()).collect();
        // One more than is wanted tells that there are more.
        let enough = self.most + (self.most > 1) as usize;
        while !list.is_empty() {
            let group = list.split_off(list.len().saturating_sub(size));
            let mut found = Vec::new();
            self.look_into(group, &mut found)?;
            found.iter().for_each(|(t, _)| have[*t] += 1);
            for p in &mut list {
                p.which.retain(|(t, _)| have[*t] < enough);
            }
            list.retain(|p| !p.which.is_empty());
            groups.push(found);
            size *= GROWTH;
        }
        seen.extend(groups.into_iter().rev().flatten());
        Ok(())
    }

    /// Looks into ascending pieces. Each is cut into smaller ones; those that accessed a target and may be needed are
    /// looked into. Many pieces are cut together, on one way forward. So the number of ways back does not depend on the
    /// number of accesses. Few pieces are looked at one after the other.
    fn look_into(&mut self, list: Vec<Piece>, seen: &mut Vec<(usize, Last)>) -> Result<()> {
        if list.len() > SINGLY && !list.iter().all(Piece::is_short) {
            let mut finer = Vec::new();
            for p in list {
                match p.is_short() {
                    true => finer.push(p),
                    false => self.cut(&p, &mut finer, false)?,
                }
            }
            return self.narrow(finer, seen);
        }
        for p in list {
            if p.is_short() {
                self.step_through(&p, seen)?;
                continue;
            }
            let mut finer = Vec::new();
            self.cut(&p, &mut finer, true)?;
            self.narrow(finer, seen)?;
        }
        Ok(())
    }

    /// Drops pieces that need not be looked at, because later pieces certainly have enough.
    fn keep_needed(&mut self, list: &mut Vec<Piece>) {
        let mut have: Vec<usize> = self.found.iter().map(|f| f.all.len()).collect();
        for p in list.iter_mut().rev() {
            let (lo, hi) = (p.lo, p.hi);
            p.which.retain(|(t, sure)| {
                let sure = *sure && self.targets[*t].lo <= lo && hi <= self.targets[*t].hi;
                let full = have[*t] >= self.most;
                have[*t] += (sure && self.exact && self.trusting) as usize;
                // A certain access before the wanted ones tells that there are more.
                self.found[*t].more |= full && sure && self.exact && self.most > 1;
                let keep = !full || self.most > 1 && !self.found[*t].more;
                self.left_out[*t] |= !keep;
                keep
            });
        }
        list.retain(|p| !p.which.is_empty() && p.lo < p.hi);
    }

    /// See [`cut`].
    fn cut(&mut self, piece: &Piece, out: &mut Vec<Piece>, back: bool) -> Result<()> {
        cut(self.player, self.targets, self.watch, piece, out, back)
    }

    /// Looks at the instructions of a piece one by one. It appends what it finds to `seen`.
    fn step_through(&mut self, piece: &Piece, seen: &mut Vec<(usize, Last)>) -> Result<()> {
        self.player.reach(piece.lo)?;
        self.player.set_breaks(Vec::new());
        let (hi, which) = (piece.hi, piece.targets());
        let mut done = Done::new(self.player);
        let (targets, watch, marks) = (self.targets, self.watch, self.marks);
        let (reads, writes) = watch.kinds();
        let engine = Arc::clone(self.player.engine());
        let scan = engine.scan(self.player.thread)?;
        self.player.prepared(|player| {
            touched(player, targets, watch, &which);
            while player.count() < hi {
                player.cancel.check()?;
                let count = player.count();
                match done.step(player, hi)? {
                    Some(true) => {}
                    Some(false) => continue,
                    None => break,
                }
                for i in &which {
                    let t = targets[*i];
                    if count < t.lo || t.hi <= count {
                        continue;
                    }
                    let fits = |a: &&hindsight_replay::access::Access| {
                        a.touches(t.address, t.len) && (a.read && reads || a.write && writes)
                    };
                    let access = done.list.iter().find(fits);
                    // Where cells are shared, marks may be those of another address.
                    if access.is_none() && !marks && !(reads && scan.gives(count, t.address, t.len))
                    {
                        continue;
                    }
                    let [r, w, cells] = player.known(t.address, t.len as usize);
                    let effect = match access {
                        Some(a) => Effect {
                            count,
                            address: a.address,
                            len: a.len,
                            write: done.list.iter().filter(fits).any(|a| a.write),
                        },
                        None if r.contains(&MARK) => Effect {
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
                touched(player, targets, watch, &which);
            }
            Ok(())
        })
    }
}

impl Piece {
    fn targets(&self) -> Vec<usize> {
        self.which.iter().map(|w| w.0).collect()
    }

    /// Whether it is looked at instruction by instruction.
    pub fn is_short(&self) -> bool {
        // The last pieces of a cut have one instruction more.
        self.hi - self.lo <= FEW + 1
    }
}

/// Cuts a piece, and appends the pieces that accessed targets to `out`. `back`: the search returns to the beginning of
/// the piece next.
pub fn cut(
    player: &mut Player,
    targets: &[Target],
    watch: Watch,
    piece: &Piece,
    out: &mut Vec<Piece>,
    back: bool,
) -> Result<()> {
    player.cancel.check()?;
    player.reach(piece.lo)?;
    player.set_breaks(Vec::new());
    match back {
        true => player.checkpoint_memory()?,
        false => player.checkpoint_memory_if_far()?,
    }
    let which = piece.targets();
    let size = ((piece.hi - piece.lo) / SLICES).max(FEW);
    player.prepared(|player| {
        touched(player, targets, watch, &which);
        let mut a = piece.lo;
        while a < piece.hi {
            player.cancel.check()?;
            let mut b = piece.hi.min(a + size);
            // It does not matter where exactly a piece ends.
            let mut halt = player.run_near(b)?;
            if halt == Halt::Position && player.count() <= a {
                halt = player.run(b)?;
            }
            let mut some = touched(player, targets, watch, &which);
            if halt == Halt::Position {
                b = player.count();
            } else {
                // The thread ends here.
                some = which.iter().map(|t| (*t, false)).collect();
            }
            // If it stopped near `b`, memory may already have been seen for the next instruction.
            let hi = match watch.kinds().0 {
                true => piece.hi.min(b + 1),
                false => b,
            };
            some.retain(|(t, _)| targets[*t].lo < hi && a < targets[*t].hi);
            if !some.is_empty() {
                out.push(Piece {
                    lo: a,
                    hi,
                    which: some,
                });
            }
            if halt != Halt::Position {
                break;
            }
            a = b;
        }
        Ok(())
    })
}

/// Clears the marks of some targets. Returns the targets that had any, each with whether it was certainly accessed.
/// Some marks only say that something is no longer known.
fn touched(
    player: &mut Player,
    targets: &[Target],
    watch: Watch,
    which: &[usize],
) -> Vec<(usize, bool)> {
    let (reads, writes) = watch.kinds();
    let all = which.iter().map(|i| &targets[*i]);
    let start = all.clone().map(|t| t.address).min().unwrap_or(0);
    let end = all.map(|t| t.address.saturating_add(t.len)).max();
    let len = end.map_or(0, |e| e - start);
    let mut out = Vec::new();
    let mut look = |i: usize, [r, w]: [&[u8]; 2]| {
        let has = |is: fn(&u8) -> bool| reads && r.iter().any(is) || writes && w.iter().any(is);
        if has(|m| *m != 0) {
            out.push((i, has(|m| *m == MARK)));
        }
    };
    if len > PAGE as u64 {
        for i in which {
            let t = &targets[*i];
            let [r, w] = player.marks(t.address, t.len as usize);
            look(*i, [&r, &w]);
        }
    } else {
        // One look at all of them together shows most often that there is nothing.
        let [r, w] = player.marks(start, len as usize);
        let some = |on: bool, marks: &[u8]| on && marks.iter().any(|m| *m != 0);
        if !some(reads, &r) && !some(writes, &w) {
            return out;
        }
        for i in which {
            let t = &targets[*i];
            let from = (t.address - start) as usize;
            let bytes = from..from + t.len as usize;
            look(*i, [&r[bytes.clone()], &w[bytes]]);
        }
    }
    // Only now, because targets may share bytes.
    for (i, _) in &out {
        let t = &targets[*i];
        player.take_marks(t.address, t.len);
    }
    out
}
