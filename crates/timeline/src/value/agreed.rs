//! Finds what memory holds where all threads agree on it, whichever of them came last.
//!
//! The index says of each step which bytes it accessed, and what the window of its thread held after it. So a thread's
//! last value of a byte is known without playing the step. There are two exceptions: the thread is still in the step,
//! or it may have written a value that nobody knows.
//!
//! It does not matter which of several threads came last if all of them left the same value. If the values differ,
//! steps are played, the latest first, until no other thread can have come later. What is still open then is searched
//! for exactly.

mod left;

use super::accessed::Mapped;
use super::certain;
use super::past;
use super::query::{Query, floor};
use crate::engine::Engine;
use crate::index::{LINE, PAGE};
use crate::model::memory::{Ground, KnownByte};
use crate::play::Viewpoint;
use crate::recording::maps::What;
use crate::scan::{Instant, When};
use crate::{Position, Result, ThreadId};
use hindsight_isa::observe::MARK;
use left::{InstructionRange, Left, LineView};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A byte, and what threads left of it.
struct Byte {
    i: usize,
    left: Vec<Left>,
}

/// What follows for a byte.
enum Answer {
    /// It holds what this entry of `left` says.
    Is(usize),
    /// The thread with this index must be played up to this count.
    Play(usize, u64),
    /// It must be searched for exactly.
    Open,
}

/// A question in progress.
struct Asker<'a> {
    engine: Arc<Engine>,
    threads: &'a [(ThreadId, u64)],
    /// All threads that have begun.
    others: Vec<ThreadId>,
    floors: Vec<Vec<u64>>,
    mapped: &'a Mapped,
    views: HashMap<(usize, u64, u32, usize), Option<Rc<LineView>>>,
    /// Whether the bytes of a word still hold what they held in a stretch of a thread.
    lasting: HashMap<(u64, usize, InstructionRange), bool>,
    /// What the cursor's thread knows at the cursor: its index in the list, the beginning of its marks, marks and
    /// cells.
    here: Option<(usize, u64, [Vec<u8>; 3])>,
}

/// What was found out about bytes that are not filled in.
pub struct Found {
    /// For each byte a position: its last access was there or later, as far as that is known.
    pub since: Vec<Option<Position>>,
    /// Bytes that nobody accessed.
    pub none: Vec<usize>,
}

/// Fills in what follows. The time of the access is then known only as a stretch of one of the threads. A question for
/// candidates needs it exactly, so it does not come here.
///
/// `threads` are those that accessed any of the bytes, each with the number of instructions that it has completed. No
/// other memory may share the cells.
pub fn find(
    view: &mut Viewpoint,
    image: u32,
    threads: &[(ThreadId, u64)],
    mapped: &Mapped,
    q: &mut Query,
) -> Result<Found> {
    let len = q.m.bytes.len();
    let (mut since, mut none) = (vec![None; len], Vec::new());
    if by_itself(view, image, q)? {
        return Ok(Found { since, none });
    }
    let engine = Arc::clone(view.engine());
    let mut floors = Vec::new();
    for (t, n) in threads {
        floors.push(floor(&engine, *t, &q.m, *n)?);
    }
    let now = q.judge.as_ref().map(|j| &j.now);
    let mut others = engine.threads_of(image);
    others.retain(|t| now.is_none_or(|n| !n.unborn.contains(t)));
    let mut a = Asker {
        engine,
        threads,
        others,
        floors,
        mapped,
        views: HashMap::new(),
        lasting: HashMap::new(),
        here: None,
    };
    a.look_here(view, q)?;
    let mut bytes = Vec::new();
    for i in 0..len {
        q.cancel.check()?;
        if !q.open(i) {
            continue;
        }
        match a.left_of(view, q, i)? {
            Some((b, Some(n))) => a.fill(q, &b, n),
            Some((b, None)) => bytes.push(b),
            None => {}
        }
    }
    // How often each step was played. Each time decides at least one byte.
    let mut played: HashMap<(usize, u64), usize> = HashMap::new();
    while !bytes.is_empty() {
        q.cancel.check()?;
        let mut plays: HashMap<(usize, u64), usize> = HashMap::new();
        let mut rest = Vec::new();
        for b in bytes {
            if b.left.is_empty() && a.floors.iter().all(|f| f[b.i] == 0) {
                none.push(b.i);
                continue;
            }
            since[b.i] = a.sure(view, &b)?.map(|s| s.0);
            match a.answer(view, q, &b)? {
                Answer::Is(n) => a.fill(q, &b, n),
                Answer::Play(k, to) if played.get(&(k, to)).is_none_or(|n| *n <= len) => {
                    *plays.entry((k, to)).or_default() += 1;
                    rest.push(b);
                }
                _ => {}
            }
        }
        bytes = rest;
        let Some((k, to)) = plays.into_iter().max_by_key(|p| (p.1, p.0)).map(|p| p.0) else {
            break;
        };
        *played.entry((k, to)).or_default() += 1;
        a.play(view, q, &mut bytes, k, to)?;
    }
    Ok(Found { since, none })
}

/// Whether some of the memory can change although the image does nothing.
fn by_itself(view: &Viewpoint, image: u32, q: &Query) -> Result<bool> {
    let engine = view.engine();
    let (start, end) = (q.m.address, q.m.address.saturating_add(q.len()));
    let changes = engine.changes(image)?;
    Ok(changes.iter().any(|c| match &c.what {
        What::Map(m) => {
            m.start < end && start < m.end && certain::changes_by_itself(engine, image, m)
        }
        What::Unmap(..) => false,
    }))
}

impl Asker<'_> {
    /// The last step of the cursor's thread costs nothing.
    fn look_here(&mut self, view: &mut Viewpoint, q: &Query) -> Result<()> {
        let home = (view.thread(), view.count());
        if let Some(k) = self.threads.iter().position(|t| *t == home) {
            let p = view.player(home.0)?;
            p.seek_end(home.1)?;
            self.here = Some((k, p.since(), p.known(q.m.address, q.m.bytes.len())));
        }
        Ok(())
    }

    /// What threads left of a byte, the last ones first. For each thread it goes back to its last certain access. Also
    /// says which entry decides, if one does at once. `None`: something else than accesses has changed the byte.
    fn left_of(
        &mut self,
        view: &Viewpoint,
        q: &Query,
        i: usize,
    ) -> Result<Option<(Byte, Option<usize>)>> {
        let at = q.m.address.wrapping_add(i as u64);
        let mut order = Vec::new();
        for (k, (t, n)) in self.threads.iter().enumerate() {
            if let Some(touch) = past::last(&self.engine, *t, at, 1, *n, &q.cancel)? {
                let known = self
                    .here
                    .as_ref()
                    .is_some_and(|h| h.0 == k && h.2[0][i] | h.2[1][i] == MARK);
                order.push((known, view.engine().position(*t, touch.to - 1)?, k));
            }
        }
        order.sort_unstable_by(|a, b| b.cmp(a));
        let mut b = Byte {
            i,
            left: Vec::new(),
        };
        for (_, _, k) in order {
            let n = self.threads[k].1;
            if !self.add(view, q, i, (k, n), &mut b.left)? {
                return Ok(None);
            }
            if let Some((_, n)) = self.sure(view, &b)?
                && self.lasts(view, q, &b, n)?
            {
                return Ok(Some((b, Some(n))));
            }
        }
        Ok(Some((b, None)))
    }

    /// Whether nobody can have written a byte since this entry, or at the same time. Then later reads do not matter.
    fn lasts(&mut self, view: &Viewpoint, q: &Query, b: &Byte, n: usize) -> Result<bool> {
        let one = &b.left[n];
        // The thread itself may write to it once more, before it is at its present place.
        let writes_on = b.left.iter().any(|s| s.k == one.k && s.writes_on);
        let known = !one.unseen && !writes_on;
        let Some(sure) = one.sure.filter(|_| known) else {
            return Ok(false);
        };
        let at = q.m.address.wrapping_add(b.i as u64);
        let thread = self.threads[one.k].0;
        let least = view.engine().position(thread, sure.0)?;
        if self.mapped[b.i].is_some_and(|m| m.0 > least)
            || self.may_have_changed_since(view, q, b.i, one)?
        {
            return Ok(false);
        }
        let key = (at / 8, one.k, sure);
        if let Some(lasting) = self.lasting.get(&key) {
            return Ok(*lasting);
        }
        // The bytes of the word together: most are accessed together.
        let first = (b.i as u64).saturating_sub(at % 8);
        let end = (b.i as u64 + 8 - at % 8).min(q.len());
        let (word, len) = (q.m.address.wrapping_add(first), end - first);
        let engine = view.engine();
        let seen = engine.segment(thread, sure.0)?;
        // What threads may do up to the ends of their present segments counts, too.
        let mut late = seen;
        for (t, n) in self.threads {
            let its = engine.segment(*t, n.saturating_sub(1))?.closes;
            late.closes = late.closes.zip(its).map(|(a, b)| a.max(b));
        }
        let anybody = Instant {
            home: (ThreadId(u32::MAX), 0),
            segment: late,
            unborn: Vec::new(),
        };
        let nobody = When {
            thread: ThreadId(u32::MAX),
            from: sure.0,
            to: sure.1,
        };
        let mut lasting = q.judge.as_ref().is_some_and(|j| {
            let mut all = word..word + len;
            !all.any(|at| j.clobbers.may_have_changed(at, nobody, &seen, &anybody))
        });
        for t in self
            .others
            .iter()
            .filter(|_| lasting)
            .copied()
            .collect::<Vec<_>>()
        {
            let (mut lo, hi) = self.engine.scan(t)?.concurrent(t, &seen, &late);
            if t == thread {
                lo = lo.max(sure.0);
            }
            lasting = lasting && !past::writes(&self.engine, t, word, len, lo, hi, &q.cancel)?;
        }
        self.lasting.insert(key, lasting);
        Ok(lasting)
    }

    /// Adds what thread `k` left of a byte before it had completed `since` instructions.
    fn add(
        &mut self,
        view: &Viewpoint,
        q: &Query,
        i: usize,
        (k, mut since): (usize, u64),
        out: &mut Vec<Left>,
    ) -> Result<bool> {
        let (t, n) = self.threads[k];
        let at = q.m.address.wrapping_add(i as u64);
        if let Some((_, from, [reads, writes, cells])) = self.here.as_ref().filter(|h| h.0 == k)
            && since == n
        {
            let write = writes[i] == MARK;
            match [reads[i], writes[i]] {
                [0, 0] => {}
                _ if write || reads[i] == MARK => {
                    out.push(Left::known(k, (*from, n), cells[i], write));
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
        while let Some(touch) = past::last(&self.engine, t, at, 1, since, &q.cancel)? {
            let engine = view.engine();
            let mut best = None;
            for s in out.iter() {
                let Some(sure) = s.sure else { continue };
                best = best.max(Some(engine.position(self.threads[s.k].0, sure.0)?));
            }
            if best > Some(engine.position(t, touch.to - 1)?) {
                break;
            }
            let floor = self.floors[k][i];
            if floor >= touch.to {
                break;
            }
            if touch.to != n.min(touch.end()) {
                return Ok(false);
            }
            let Some(view) = self.view(k, &touch, at)? else {
                return Ok(false);
            };
            let until = view.until();
            if until > touch.from && best > Some(engine.position(t, until - 1)?) {
                break;
            }
            since = touch.from;
            let Some(left) = self.left(k, &view, at, floor)? else {
                return Ok(false);
            };
            let sure = left.sure.is_some();
            if left.partial || sure {
                out.push(left);
            }
            if sure {
                break;
            }
        }
        Ok(true)
    }

    /// What an interval says of the line at an address. `None`: it has no steps.
    fn view(
        &mut self,
        k: usize,
        touch: &past::AccessingInterval,
        at: u64,
    ) -> Result<Option<Rc<LineView>>> {
        let cell = at as u32 as usize;
        let (page, line) = ((cell / PAGE) as u32, cell % PAGE / LINE);
        let key = (k, touch.from, page, line);
        if let Some(v) = self.views.get(&key) {
            return Ok(v.clone());
        }
        let view = LineView::new(&self.engine, touch, page, line)?.map(Rc::new);
        self.views.insert(key, view.clone());
        Ok(view)
    }

    /// What the interval says of a byte. `None`: something else may have changed the byte, or the written value is not
    /// known.
    fn left(&self, k: usize, view: &LineView, at: u64, floor: u64) -> Result<Option<Left>> {
        let byte = at as usize % LINE;
        let of = |mask: u64| mask & (1 << byte) != 0;
        let within = |c: &(u64, u64)| c.0 <= at && at - c.0 < c.1;
        // The steps that begin after the floor. The step before them may have accessed the byte on both sides of it.
        let begun = |s: &&(usize, InstructionRange)| s.1.0 > floor || floor <= view.from;
        let valid = view.steps.len() - view.steps.iter().filter(begun).count();
        let unclear = valid > 0 && floor < view.steps[valid - 1].1.1;
        let cut = view.masks.is_none();
        let changed = match cut && floor > view.from {
            false => view.changed.iter().any(within),
            true => {
                let border = (view.summary.steps.iter().map(|s| s.from)).find(|from| *from > floor);
                let Some(border) = border.filter(|b| *b <= view.summary.steps[view.here].from)
                else {
                    return Ok(None);
                };
                let scan = self.engine.scan(view.part.thread)?;
                scan.changed(border, view.to + 1).iter().any(within)
            }
        };
        if changed {
            return Ok(None);
        }
        let write = match view.masks.map(|m| m.map(of)) {
            Some([true, true] | [false, false]) => return Ok(None),
            Some([_, written]) => Some(written),
            None => None,
        };
        let accessed = |step| Ok::<_, crate::Error>(view.accessed(&self.engine, step)?.map(of));
        let any = |[read, wrote]: [bool; 2]| read || wrote;
        let mut last = None;
        for (n, stretch) in view.steps[valid..].iter().rev() {
            let [read, wrote] = accessed(*n)?;
            if read || wrote {
                last = Some((*stretch, wrote));
                break;
            }
        }
        if last.is_none() && unclear && any(accessed(view.steps[valid - 1].0)?) {
            if cut {
                return Ok(None);
            }
            // The masks know of nothing before, so this access was a read.
            last = Some(((floor, view.steps[valid - 1].1.1), false));
        }
        if write.is_some() && last.is_none() {
            return Ok(None);
        }
        let [reads_on, writes_on] = match view.partial {
            Some(_) => accessed(view.here)?,
            None => [false; 2],
        };
        let wrote = last.is_some_and(|l| l.1);
        Ok(Some(Left {
            k,
            value: view.holds(&self.engine)?[byte],
            from: view.from,
            to: view.to,
            write: write.unwrap_or(wrote),
            unseen: wrote && write.is_none(),
            partial: reads_on || writes_on,
            writes_on,
            sure: last.map(|l| l.0),
        }))
    }

    /// The latest certain access to a byte: a position at or before it, and the entry's index.
    fn sure(&self, view: &Viewpoint, b: &Byte) -> Result<Option<(Position, usize)>> {
        let mut best = None;
        for (n, s) in b.left.iter().enumerate() {
            if let Some(sure) = s.sure {
                let at = view.engine().position(self.threads[s.k].0, sure.0)?;
                best = best.max(Some((at, n)));
            }
        }
        Ok(best)
    }

    fn answer(&mut self, view: &Viewpoint, q: &Query, b: &Byte) -> Result<Answer> {
        let engine = view.engine();
        let Some((least, sure)) = self.sure(view, b)? else {
            return self.next(view, b, |_| true);
        };
        if self.lasts(view, q, b, sure)? {
            return Ok(Answer::Is(sure));
        }
        if self.mapped[b.i].is_some_and(|m| m.0 > least) {
            return Ok(Answer::Open);
        }
        // Entries that may be the last.
        let mut last = Vec::new();
        for s in &b.left {
            let at = engine.position(self.threads[s.k].0, s.until().saturating_sub(1))?;
            last.push(at >= least);
        }
        let mut all = b.left.iter().zip(&last).filter(|l| *l.1).map(|l| l.0);
        if let Some(s) = all.clone().find(|s| s.partial) {
            return Ok(Answer::Play(s.k, s.to));
        }
        let one = &b.left[sure];
        if !all.clone().all(|s| s.value == one.value) {
            return self.next(view, b, |n| last[n]);
        }
        for s in all.by_ref() {
            if s.unseen {
                return Ok(Answer::Play(s.k, s.until()));
            }
        }
        Ok(match self.may_have_changed_since(view, q, b.i, one)? {
            true => Answer::Open,
            false => Answer::Is(sure),
        })
    }

    /// Plays the entry that may be the last, unless it was played.
    fn next(&self, view: &Viewpoint, b: &Byte, of: impl Fn(usize) -> bool) -> Result<Answer> {
        let mut best = None;
        for (n, s) in b.left.iter().enumerate().filter(|s| of(s.0)) {
            if s.is_open() {
                let to = s.until();
                let at = (view.engine()).position(self.threads[s.k].0, to.saturating_sub(1))?;
                best = best.max(Some((at, n, to)));
            }
        }
        Ok(best.map_or(Answer::Open, |(_, n, to)| Answer::Play(b.left[n].k, to)))
    }

    /// Whether something else than instructions may have changed the byte since its certain access.
    fn may_have_changed_since(
        &self,
        view: &Viewpoint,
        q: &Query,
        i: usize,
        one: &Left,
    ) -> Result<bool> {
        let (Some(j), Some(sure)) = (&q.judge, one.sure) else {
            return Ok(true);
        };
        let thread = self.threads[one.k].0;
        let last = view.engine().segment(thread, sure.1.saturating_sub(1))?;
        if thread != j.now.home.0 && !last.before(&j.now.segment) {
            // The access may not have happened yet.
            return Ok(true);
        }
        // The last thread may have been another one than this.
        let nobody = When {
            thread: ThreadId(u32::MAX),
            from: sure.0,
            to: sure.1,
        };
        let seen = view.engine().segment(self.threads[one.k].0, sure.0)?;
        let at = q.m.address.wrapping_add(i as u64);
        Ok(j.clobbers.may_have_changed(at, nobody, &seen, &j.now))
    }

    fn fill(&self, q: &mut Query, b: &Byte, n: usize) {
        let one = &b.left[n];
        let Some(sure) = one.sure else {
            return;
        };
        q.m.bytes[b.i] = Some(KnownByte {
            value: one.value,
            ground: match one.write {
                true => Ground::Written,
                false => Ground::Read,
            },
        });
        q.when[b.i] = Some(When {
            thread: self.threads[one.k].0,
            from: sure.0,
            to: sure.1,
        });
    }

    /// Plays the last step of a thread that ends at `to` or is cut there. Takes over what it shows of all bytes.
    fn play(
        &mut self,
        view: &mut Viewpoint,
        q: &Query,
        bytes: &mut Vec<Byte>,
        k: usize,
        to: u64,
    ) -> Result<()> {
        let (t, n) = self.threads[k];
        let home = (view.thread(), view.count());
        let (address, len) = (q.m.address, q.m.bytes.len());
        let p = view.player(t)?;
        let (since, [reads, writes, cells]) = match (t, n) == home {
            true if to == n => {
                p.seek_end(n)?;
                (p.since(), p.known(address, len))
            }
            // The helper plays, and this player stays where it is.
            true => p.with_helper(|h| {
                h.seek_end_straight(to)?;
                Ok((h.since(), h.known(address, len)))
            })?,
            false => {
                p.seek_end_straight(to)?;
                (p.since(), p.known(address, len))
            }
        };
        let mut i = 0;
        while i < bytes.len() {
            let b = &mut bytes[i];
            let marks = [reads[b.i], writes[b.i]];
            let mut clear = true;
            let mut more = None;
            for s in b.left.iter_mut().filter(|s| s.k == k) {
                match s.take((since, to), marks, cells[b.i]) {
                    None => clear = false,
                    Some(true) => {}
                    Some(false) => more = Some(s.from),
                }
            }
            if let Some(from) = more {
                b.left.retain(|s| s.partial || s.sure.is_some());
                clear &= self.add(view, q, b.i, (k, from), &mut b.left)?;
            }
            match clear {
                true => i += 1,
                false => {
                    bytes.swap_remove(i);
                }
            }
        }
        Ok(())
    }
}
