//! Intervals of the coarse level that touched what a search looks for, and whose parts of the fine level are missing.
//!
//! A player plays such an interval once with marks, and looks after each slice whether it touched the memory. That takes a
//! fraction of what a part of the fine level takes. The search then goes on in the slice that did.
//!
//! Several intervals are looked through at the same time, the nearest first. That is of use where the coarse level is not
//! certain: of one kind of access it knows words and not bytes, and an interval in which a search begins counts only in part.

use super::effects::Wants;
use super::hit::SearchRange;
use crate::base::sync::{lock, spawn};
use crate::engine::{Engine, Looked};
use crate::index::{self, IndexPart, Touching};
use crate::model::stops::*;
use crate::play::{Player, Slices};
use crate::{Error, Result};
use hindsight_replay::Stop as Halt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A slice is such a part of a usual interval of the fine level.
const SLICES: u64 = 8;
/// A player has the program's memory so many times, at most.
const TIMES: u64 = 4;
/// So many intervals are looked through for each processor before the search asks the index again.
const EACH: usize = 4;

/// What was found out.
pub enum Cold {
    /// Instructions `lo..hi` touched the memory. Nothing nearer did.
    Touched(u64, u64),
    /// Nothing touched it up to here.
    Nothing(u64),
    /// Playing is no help here. The part of the fine level is to be made.
    Unclear,
}

/// Looks for the interval that has instruction `count`, see [`Player::look`]. The flag says that it is a coarse one, which may
/// have what is searched for: [`nearest`] then tells more.
pub fn look(
    wants: &Wants,
    player: &Player,
    count: u64,
    touched: &mut dyn FnMut(&IndexPart, usize) -> Result<bool>,
) -> Result<(Looked, bool)> {
    if !wants.breaks() && wants.marks_tell() {
        let looked = player.look_at_built(count, touched)?;
        let (part, i) = (&looked.part, looked.interval);
        if !looked.touched || !part.range.is_coarse() {
            return Ok((looked, false));
        }
        if player.engine().may_play_coarse(part, i)? {
            return Ok((looked, true));
        }
    }
    Ok((player.look(count, touched)?, false))
}

/// The nearest slice of a stretch that touched what is watched. The search begins in an interval that [`look`] found.
pub fn nearest(wants: &Wants, player: &mut Player, s: SearchRange, way: Direction) -> Result<Cold> {
    let engine = Arc::clone(player.engine());
    let (mut all, end) = candidates(wants, player, s, way)?;
    if all.is_empty() {
        return Ok(Cold::Unclear);
    }
    let known = Slices::of(player.slices.take(), &wants.watches);
    let mut found = None;
    let mut rest = Vec::new();
    for mut c in all.drain(..) {
        // What an earlier search has looked through is not played again.
        found = known.nearest(c.bounds(), (&mut c.lo, &mut c.hi), way);
        if c.lo < c.hi {
            rest.push(c);
        }
        if found.is_some() {
            break;
        }
    }
    player.slices = Some(known);
    let search = Search {
        engine: &engine,
        wants,
        way,
        cancel: player.cancel.clone(),
        all: &rest,
        next: AtomicUsize::new(0),
        best: AtomicUsize::new(usize::MAX),
        done: Mutex::default(),
    };
    let nearer = match rest.is_empty() {
        true => None,
        false => search.run(player)?,
    };
    Ok(match nearer.or(found) {
        Some((lo, hi)) => Cold::Touched(lo, hi),
        None => Cold::Nothing(end),
    })
}

/// A coarse interval that may have what is searched for.
struct Candidate {
    part: Arc<IndexPart>,
    interval: usize,
    /// Its instructions that count.
    lo: u64,
    hi: u64,
}

impl Candidate {
    fn bounds(&self) -> (u64, u64) {
        self.part.bounds(self.interval)
    }
}

/// The intervals that may have it, the nearest first, and up to where there are no others. Behind one that certainly has it none
/// is looked for.
fn candidates(
    wants: &Wants,
    player: &Player,
    s: SearchRange,
    way: Direction,
) -> Result<(Vec<Candidate>, u64)> {
    let engine = player.engine();
    let most = EACH * jobs(engine);
    let (mut lo, mut hi, mut known) = (s.lo, s.hi, Touching::default());
    let mut out: Vec<Candidate> = Vec::new();
    while lo < hi && out.len() < most {
        let at = match way {
            Direction::Forward => lo,
            Direction::Backward => hi - 1,
        };
        if !player.has_coarse(at) {
            break;
        }
        let touched = &mut |part: &IndexPart, i| wants.touched(engine, part, i, &mut known);
        let looked = player.look_at_built(at, touched)?;
        let (part, interval) = (looked.part, looked.interval);
        let (from, to) = part.bounds(interval);
        let (a, b) = (lo.max(from), hi.min(to));
        if b <= a || looked.touched && !engine.may_play_coarse(&part, interval)? {
            break;
        }
        // In a large one the search would have to begin anew for each slice.
        let certain = (a, b) == (from, to) && wants.are_certain();
        if looked.touched && certain && engine.is_large(&part, interval)? {
            break;
        }
        match way {
            Direction::Forward => lo = b,
            Direction::Backward => hi = a,
        }
        if looked.touched {
            out.push(Candidate {
                part,
                interval,
                lo: a,
                hi: b,
            });
            if certain {
                break;
            }
        }
    }
    let end = match way {
        Direction::Forward => lo,
        Direction::Backward => hi,
    };
    Ok((out, end))
}

/// How many processors may look at the same time.
fn jobs(engine: &Engine) -> usize {
    engine.jobs.min(index::within_memory(engine, TIMES)).max(1)
}

/// A search in several coarse intervals.
struct Search<'a> {
    engine: &'a Arc<Engine>,
    wants: &'a Wants,
    way: Direction,
    cancel: Cancel,
    /// The nearest first.
    all: &'a [Candidate],
    /// The number of the next one that nobody has looked at.
    next: AtomicUsize,
    /// The number of the nearest one that has a slice, or that failed.
    best: AtomicUsize,
    done: Mutex<BTreeMap<usize, Done>>,
}

/// What a player found in an interval. It is kept if it touched the memory there.
type Done = (Result<Played>, Option<Player>);

/// Instructions `lo..hi` were played. These slices touched the memory, ascending.
struct Played {
    lo: u64,
    hi: u64,
    touched: Vec<(u64, u64)>,
}

impl Search<'_> {
    /// The nearest slice.
    fn run(self, player: &mut Player) -> Result<Option<(u64, u64)>> {
        let others = jobs(self.engine).min(self.all.len()) - 1;
        let (this, thread) = (&self, player.thread);
        self.engine.show(&self.cancel, |progress| {
            std::thread::scope(|scope| {
                let work = move || {
                    // Without address space for one more player the others do it all.
                    let Ok(mut p) = Player::new(this.engine, thread) else {
                        return;
                    };
                    p.cancel = this.cancel.clone();
                    while let Some(i) = this.take(progress) {
                        let played = this.play(&mut p, i, progress);
                        if played.as_ref().is_ok_and(|p| !p.touched.is_empty()) {
                            // Nothing behind it matters.
                            return this.put(i, played, Some(p));
                        }
                        this.put(i, played, None);
                    }
                };
                for _ in 0..others {
                    spawn(scope, work);
                }
                while let Some(i) = this.take(progress) {
                    let played = this.play(player, i, progress);
                    this.put(i, played, None);
                }
            });
        });
        let done = self.done.into_inner().unwrap_or_else(|e| e.into_inner());
        let mut nearest = None;
        for (i, (played, by)) in done {
            let c = &self.all[i];
            let played = match played {
                Ok(p) => p,
                // Whatever failed behind the nearest one does not matter.
                Err(_) if nearest.is_some() => break,
                Err(e) => return Err(e),
            };
            if let Some(slices) = &mut player.slices {
                slices.add(c.bounds(), (played.lo, played.hi), &played.touched);
            }
            let its = match self.way {
                Direction::Forward => played.touched.first(),
                Direction::Backward => played.touched.last(),
            };
            if nearest.is_none()
                && let Some(slice) = its
            {
                nearest = Some(*slice);
                if let Some(by) = by {
                    // It stands nearer.
                    player.change_places(by);
                }
            }
        }
        self.cancel.check()?;
        Ok(nearest)
    }

    /// The number of the next interval that matters.
    fn take(&self, progress: &index::Progress) -> Option<usize> {
        let i = self.next.fetch_add(1, Relaxed);
        let matters = i < self.all.len() && i <= self.best.load(Relaxed);
        (matters && progress(0)).then_some(i)
    }

    fn put(&self, i: usize, played: Result<Played>, by: Option<Player>) {
        if played.as_ref().map_or(true, |p| !p.touched.is_empty()) {
            self.best.fetch_min(i, Relaxed);
        }
        lock(&self.done).insert(i, (played, by));
    }

    /// Plays an interval with marks, until a nearer one touched the memory.
    fn play(&self, player: &mut Player, i: usize, progress: &index::Progress) -> Result<Played> {
        let c = &self.all[i];
        let size = (player.span() / SLICES).max(1);
        let mut touched = Vec::new();
        player.seek_straight(c.lo)?;
        player.set_breaks(Vec::new());
        self.wants.clear(player);
        let mut at = c.lo;
        while at < c.hi && self.best.load(Relaxed) > i {
            let halt = player.run(c.hi.min(at.saturating_add(size)))?;
            let here = player.count();
            let ends = halt != Halt::Position;
            let hi = if ends { c.hi } else { here };
            let some = self.wants.clear(player);
            if some || ends {
                // Memory may have been seen already for the next instruction.
                touched.push((at, c.hi.min(hi.saturating_add(1))));
            }
            if !progress(hi.saturating_sub(at)) {
                return Err(Error::Cancelled);
            }
            at = hi;
            if some && self.way == Direction::Forward {
                break;
            }
        }
        self.engine.note_coarse(&c.part, c.interval, at - c.lo);
        Ok(Played {
            lo: c.lo,
            hi: at,
            touched,
        })
    }
}
