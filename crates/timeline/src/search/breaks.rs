//! Stops before instructions in a long stretch of a thread. Several processors look for them at the same time, each in another
//! stretch, the nearest first. They begin at key frames of the recording, and need no index.
//!
//! Where registers alone decide, machines without marks look, which are some three times as fast. Where a condition reads
//! memory, players do.

use super::effects::Wants;
use super::hit::{Hit, SearchRange};
use crate::base::STRIDE;
use crate::base::sync::{joined, lock, spawn};
use crate::engine::Engine;
use crate::index;
use crate::model::error::replay;
use crate::model::stops::*;
use crate::play::{Begin, Player, begins};
use crate::{Error, Result, ThreadId};
use hindsight_replay::{Machine, Stop as Halt};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The player looks at this many intervals first. Most stops are near.
const NEAR: u64 = 2;
/// On the way back it looks at this many pieces where there is an index: each is an interval.
const INDEXED: u64 = 8;
/// A stretch has at least this many intervals, and `PER_BYTE` instructions for each byte that the program had: memory is laid
/// out where it begins.
const LEAST: u64 = 16;
const PER_BYTE: u64 = 16;
/// A machine with marks takes this many times as long.
const MARKS: u64 = 3;
/// How many times a machine and a player have the program's memory, at most.
const TIMES: u64 = 2;
const TIMES_MARKED: u64 = 4;
/// After this many runs it is asked whether to go on.
const LOOKS: u32 = 4096;

/// What several processors have found.
pub enum Answer {
    /// The nearest stop, if there is one.
    Found(Option<Hit>),
    /// They are no help here.
    Unclear,
}

/// A stretch of the thread: instants `lo..hi`. A machine plays it from `from` on.
struct Stretch {
    from: u64,
    begin: Begin,
    lo: u64,
    hi: u64,
}

/// A machine takes over from the player rather than play this many intervals again, if there are as many to come.
const AGAIN: u64 = 32;

/// How a player looks at the nearest stretch.
type Mine<'a> = &'a mut dyn FnMut(&mut Player, SearchRange) -> Result<Option<Hit>>;

/// The first stop before an instruction in a stretch.
pub fn first(
    wants: &Wants,
    player: &mut Player,
    s: SearchRange,
    stops: &mut Stops,
) -> Result<Option<Hit>> {
    let near = s.hi.min(s.lo.saturating_add(NEAR * player.span()));
    let here = SearchRange { hi: near, ..s };
    let found = wants.first_break(player, here, stops)?;
    if found.is_some() || near == s.hi {
        return Ok(found);
    }
    let rest = SearchRange { lo: near, ..s };
    let mut play = |p: &mut Player, s: SearchRange| wants.first_break(p, s, stops);
    match look(wants, player, rest, Direction::Forward, Some(&mut play))? {
        Answer::Found(hit) => Ok(hit),
        Answer::Unclear => play(player, rest),
    }
}

/// The last stop before an instruction in a stretch.
pub fn last(wants: &Wants, player: &mut Player, s: SearchRange) -> Result<Answer> {
    look(wants, player, s, Direction::Backward, None)
}

/// Whether several processors are to search from `hi` back to `lo`, when the player has looked at so many pieces.
pub fn are_next(wants: &Wants, player: &Player, (lo, hi): (u64, u64), pieces: u64) -> bool {
    let long = hi - lo > NEAR * player.span();
    let alone = match player.is_indexed(hi - 1) {
        true => INDEXED,
        false => player.marked_without_index(hi - 1).is_some() as u64,
    };
    !wants.steps() && long && pieces > alone
}

fn look(
    wants: &Wants,
    player: &mut Player,
    s: SearchRange,
    way: Direction,
    mine: Option<Mine>,
) -> Result<Answer> {
    if wants.has_code() {
        return Ok(Answer::Unclear);
    }
    let engine = Arc::clone(player.engine());
    let marks = !wants.needs_registers_only();
    let mut stretches = stretches(&engine, s)?;
    let Some(nearest) = stretches.first() else {
        return Ok(Answer::Unclear);
    };
    // Forwards, the player is there already. The key frame may lie far before.
    let (before, behind) = (nearest.lo - nearest.from, nearest.hi - nearest.lo);
    let mut mine = mine.filter(|_| marks || before > MARKS * behind);
    let far = AGAIN * player.span();
    if way == Direction::Forward
        && !marks
        && before > far
        && behind > far
        && (nearest.from..=nearest.lo).contains(&player.count())
        && let Some((state, content)) = player.whole_state()?
    {
        mine = None;
        stretches[0].from = state.position;
        stretches[0].begin = Begin::Player(Box::new(state), content);
    }
    let all =
        |of: fn(&Stretch) -> u64| stretches.iter().skip(mine.is_some() as usize).map(of).sum();
    let plays: u64 = all(|t| t.hi - t.from);
    let alone: u64 = all(|t| t.hi - t.lo);
    // On the way back the player would have to make the index, where there is none.
    let times = match (marks, way) {
        (true, Direction::Forward) => jobs(&engine, marks) as u64,
        _ => MARKS,
    };
    if plays > alone.saturating_mul(times) || alone == 0 {
        return Ok(Answer::Unclear);
    }
    if way == Direction::Backward {
        stretches.reverse();
    }
    let mut search = Search {
        engine: &engine,
        thread: s.thread,
        wants,
        way,
        marks,
        cancel: player.cancel.clone(),
        stretches: &stretches,
        next: AtomicUsize::new(0),
        best: AtomicUsize::new(usize::MAX),
        found: Mutex::default(),
        there: Mutex::default(),
    };
    let done = search.run(player, s, mine)?;
    match done {
        None => Ok(Answer::Found(None)),
        Some(Ok(hit)) => Ok(Answer::Found(Some(hit))),
        Some(Err(Error::Cancelled)) => Err(Error::Cancelled),
        // The player comes to the same place, and says more.
        Some(Err(_)) => Ok(Answer::Unclear),
    }
}

/// How many processors may look at the same time.
fn jobs(engine: &Engine, marks: bool) -> usize {
    let times = if marks { TIMES_MARKED } else { TIMES };
    engine.jobs.min(index::within_memory(engine, times))
}

/// Cuts a stretch at key frames, ascending.
fn stretches(engine: &Arc<Engine>, s: SearchRange) -> Result<Vec<Stretch>> {
    let had = engine.memory().unwrap_or(0);
    let least = match engine.interval {
        0 => (LEAST * index::span(engine, s.thread)).max(had.saturating_mul(PER_BYTE)),
        n => LEAST * n,
    };
    let mut starts: Vec<(u64, Begin)> = Vec::new();
    for (at, begin) in begins(engine, s.thread, (s.lo, s.hi))? {
        if at < s.lo {
            starts.clear();
        }
        if starts.last().is_none_or(|l| at >= l.0 + least) {
            starts.push((at, begin));
        }
    }
    // What is at the same instant as a key frame belongs to the stretch before it: a part of it comes first.
    let behind = |at: u64| (at + 1).clamp(s.lo, s.hi);
    let froms: Vec<u64> = starts.iter().map(|b| b.0).collect();
    let ends = froms.iter().skip(1).map(|at| behind(*at)).chain([s.hi]);
    let list = starts.into_iter().enumerate().zip(ends);
    let mut out: Vec<Stretch> = list
        .map(|((i, (from, begin)), hi)| Stretch {
            from,
            begin,
            lo: if i == 0 { s.lo.max(from) } else { behind(from) },
            hi,
        })
        .collect();
    out.retain(|t| t.lo < t.hi);
    for t in &mut out {
        // Stops count from `first` on.
        t.lo = t.lo.max(s.first.min(t.hi));
    }
    Ok(out)
}

/// A search in several threads.
struct Search<'a> {
    engine: &'a Arc<Engine>,
    thread: ThreadId,
    wants: &'a Wants,
    way: Direction,
    /// A condition reads memory.
    marks: bool,
    cancel: Cancel,
    /// The nearest first.
    stretches: &'a [Stretch],
    /// The number of the next stretch that nobody has looked at.
    next: AtomicUsize,
    /// The number of the nearest stretch that has a stop, or that failed.
    best: AtomicUsize,
    found: Mutex<BTreeMap<usize, Result<Hit>>>,
    /// Forwards: the machine that stands where the search ends, and the number of its stretch.
    there: Mutex<Option<(usize, Machine<'static>)>>,
}

impl Search<'_> {
    /// What the nearest stretch gave that gave something.
    fn run(
        &mut self,
        player: &mut Player,
        s: SearchRange,
        mine: Option<Mine>,
    ) -> Result<Option<Result<Hit>>> {
        let engine = self.engine;
        let others = (jobs(engine, self.marks) - 1).min(self.stretches.len() - 1);
        let cancel = self.cancel.clone();
        self.next = AtomicUsize::new(mine.is_some() as usize);
        let this = &*self;
        engine.show(&cancel, |progress| {
            std::thread::scope(|scope| {
                let work = || -> Result<()> {
                    this.work(progress);
                    Ok(())
                };
                let all: Vec<_> = (0..others).map(|_| spawn(scope, work)).collect();
                if let Some(mine) = mine {
                    let hi = this.stretches[0].hi;
                    let found = mine(player, SearchRange { hi, ..s });
                    this.put(0, found);
                }
                work()?;
                all.into_iter().try_for_each(joined)
            })
        })?;
        let first = lock(&self.found).pop_first();
        let there = lock(&self.there).take();
        let number = first.as_ref().map_or(self.stretches.len() - 1, |f| f.0);
        if let Some((_, machine)) = there.filter(|t| t.0 == number) {
            player.go_on_from(machine)?;
        }
        Ok(first.map(|f| f.1))
    }

    fn put(&self, i: usize, found: Result<Option<Hit>>) {
        if let Some(found) = found.transpose() {
            self.best.fetch_min(i, Relaxed);
            lock(&self.found).insert(i, found);
        }
    }

    /// Looks at one stretch after the other, until there are no more that matter.
    fn work(&self, progress: &index::Progress) {
        let (mut machine, mut player) = (None, None);
        loop {
            let i = self.next.fetch_add(1, Relaxed);
            if i >= self.stretches.len() || i > self.best.load(Relaxed) {
                return;
            }
            if !progress(0) {
                self.put(i, Err(Error::Cancelled));
                return;
            }
            let found = match self.marks {
                true => self.look_with_marks(&mut player, i, progress),
                false => self.look_at(&mut machine, i, progress),
            };
            let is_last = matches!(found, Ok(None)) && i + 1 == self.stretches.len();
            if self.way == Direction::Forward && (is_last || matches!(found, Ok(Some(_)))) {
                self.stay(i, machine.take());
            }
            self.put(i, found);
        }
    }

    /// Keeps the machine that stands where a search forwards may end.
    fn stay(&self, i: usize, machine: Option<Machine<'static>>) {
        let mut there = lock(&self.there);
        if there.as_ref().is_none_or(|t| i < t.0) {
            *there = machine.map(|m| (i, m));
        }
    }

    fn look_at(
        &self,
        machine: &mut Option<Machine<'static>>,
        i: usize,
        progress: &index::Progress,
    ) -> Result<Option<Hit>> {
        let m = match machine {
            Some(m) => m,
            None => {
                let mut m = self.engine.machine(self.thread)?;
                m.digests_only();
                machine.insert(m)
            }
        };
        let fail = |e| replay(self.thread, e);
        m.set_breaks(Vec::new());
        self.stretches[i]
            .begin
            .start(self.engine, self.thread, m, progress)?;
        m.hold().map_err(fail)?;
        let found = self.play(m, i, progress);
        m.release();
        found
    }

    /// Looks at a stretch with a player.
    fn look_with_marks(
        &self,
        player: &mut Option<Box<Player>>,
        i: usize,
        progress: &index::Progress,
    ) -> Result<Option<Hit>> {
        let p = match player {
            Some(p) => p,
            None => player.insert(Box::new(Player::new(self.engine, self.thread)?)),
        };
        p.cancel = self.cancel.clone();
        let s = &self.stretches[i];
        let (mut last, mut looks) = (None, 0u32);
        let mut told = s.lo;
        p.seek_for_conditions(s.lo)?;
        p.set_conditional_breaks(&self.wants.conditional());
        while p.count() < s.hi {
            match p.run(s.hi.min(p.count().saturating_add(STRIDE)))? {
                Halt::Position => {}
                Halt::Break => {
                    last = self.wants.stops_player(p).or(last);
                    // A condition that was cancelled while it read memory seems to hold.
                    p.cancel.check()?;
                    if last.is_some() && self.way == Direction::Forward {
                        return Ok(last);
                    }
                }
                // The thread ends here.
                Halt::Ended(_) | Halt::OutOfEvents => break,
            }
            looks = looks.wrapping_add(1);
            if p.count() - told >= STRIDE || looks.is_multiple_of(LOOKS) {
                if !progress(p.count() - told) {
                    return Err(Error::Cancelled);
                }
                told = p.count();
                if self.best.load(Relaxed) < i {
                    return Ok(None);
                }
            }
        }
        Ok(last)
    }

    fn play(&self, m: &mut Machine, i: usize, progress: &index::Progress) -> Result<Option<Hit>> {
        let s = &self.stretches[i];
        let (mut last, mut breaks, mut looks) = (None, false, 0u32);
        let mut told = m.position();
        while m.position() < s.hi {
            let here = m.position();
            if here >= s.lo && !breaks {
                m.look_again();
                m.set_conditional_breaks(&self.wants.conditional());
                breaks = true;
            }
            let end = if here < s.lo { s.lo } else { s.hi };
            let halt = m.run_to(end.min(here.saturating_add(STRIDE)));
            match halt.map_err(|e| replay(self.thread, e))? {
                Halt::Position => {}
                Halt::Break => {
                    if let Some(reason) = self.wants.stops_machine(m) {
                        last = Some(Hit {
                            thread: self.thread,
                            count: m.position(),
                            reason,
                            pc: Some(m.registers().rip),
                        });
                        if self.way == Direction::Forward {
                            return Ok(last);
                        }
                    }
                }
                // The thread ends here.
                Halt::Ended(_) | Halt::OutOfEvents => break,
            }
            looks = looks.wrapping_add(1);
            // A run also ends where it passed many conditions.
            let passed = m.position() < end.min(here.saturating_add(STRIDE));
            if m.position() - told >= STRIDE || passed || looks.is_multiple_of(LOOKS) {
                if !progress(m.position() - told) {
                    return Err(Error::Cancelled);
                }
                told = m.position();
                if self.best.load(Relaxed) < i {
                    // A nearer stretch has a stop.
                    return Ok(None);
                }
            }
        }
        Ok(last)
    }
}
