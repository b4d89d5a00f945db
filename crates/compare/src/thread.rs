//! Compares a thread of each recording.

mod kinds;
mod sources;

use crate::align::Alignment;
use crate::cause::{At, Causes, Family, Trail};
use crate::code::{Codes, Keys, codes};
use crate::course::{Course, Next, Parting, Shifts};
use crate::details::{Said, compare};
use crate::events::Events;
use crate::model::{Datum, Difference, Input, Kind, Point, Reason};
use crate::side::Side;
use crate::stream::Worker;
use crate::{Both, Options, Result};
use hindsight_timeline::{
    Cancel, Ending, Happening, Kind as Event, Position, Thread, ThreadId, error_name, syscall_name,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// So many partings are looked into for each branch. Those behind have the same reason, if all of these have.
const ASKED: u64 = 8;
/// Inputs that are kept.
const INPUTS: usize = 100;

/// A thread of each recording.
pub struct Pair {
    /// The threads.
    pub threads: Both<Thread>,
    /// Their events.
    pub events: Events,
}

/// What comparing two threads has found.
#[derive(Default)]
pub struct Found {
    /// Differences, by the position in the first recording.
    pub differences: Vec<(Position, Difference)>,
    /// There may be more.
    pub more: bool,
    /// What the programs got.
    pub inputs: Vec<Input>,
    /// There are more of them.
    pub more_inputs: bool,
    /// Partings that do not count.
    pub passed_over: BTreeMap<Reason, u64>,
    /// Instructions of the first recording that were compared.
    pub compared: u64,
}

impl Found {
    /// Adds what was found in other threads. Keeps the first differences.
    pub fn add(&mut self, other: Found, limit: usize) {
        self.differences.extend(other.differences);
        self.differences.sort_by_key(|d| d.0);
        self.more |= other.more || self.differences.len() > limit;
        self.differences.truncate(limit);
        self.inputs.extend(other.inputs);
        self.more_inputs |= other.more_inputs;
        for (reason, n) in other.passed_over {
            *self.passed_over.entry(reason).or_default() += n;
        }
    }
}

/// Compares two threads, at most up to a position of the first recording.
pub fn compare_threads(
    sides: &mut Both<Side>,
    pair: &Pair,
    family: &mut Family,
    (options, until): (&Options, Option<Position>),
    progress: &dyn Fn(u64),
) -> Result<Found> {
    let ids = [0, 1].map(|s| pair.threads[s].id);
    let images = [0, 1].map(|s| pair.threads[s].image);
    let codes = codes([&sides[0].timeline, &sides[1].timeline], images)?;
    let at = [0, 1].map(|s| pair.threads[s].from);
    let to = [0, 1].map(|s| pair.threads[s].to);
    let mut shifts = Shifts(codes.shifts.clone());
    let mut stacks = [0; 2];
    for s in 0..2 {
        sides[s].cursor.seek_count(ids[s], at[s])?;
        stacks[s] = sides[s].cursor.registers()?.gpr[hindsight_timeline::regs::RSP];
    }
    shifts.add(stacks[0].wrapping_sub(stacks[1]));
    if let [Some(a), Some(b)] = [sides[0].start(images[0])?, sides[1].start(images[1])?] {
        hindsight_origin::shifts([&a, &b])
            .into_iter()
            .for_each(|by| shifts.add(by));
    }
    let worker = |s: usize| -> Result<Worker> {
        Ok(Worker {
            walk: sides[s].timeline.walk(ids[s], Cancel::new())?,
            keys: Keys::new(&sides[s], ids[s], &codes, s),
            events: Arc::new(pair.events.each[s].clone()),
            pair_of: pair.events.pair_of[s].clone(),
            handlers: pair.events.handlers[s].clone(),
            side: s,
            enough: Arc::new(AtomicBool::new(false)),
        })
    };
    let workers = [worker(0)?, worker(1)?];
    let causes = Causes::new(
        sides,
        codes.each.clone(),
        shifts.clone(),
        std::mem::take(family),
    );
    std::thread::scope(|scope| {
        let exact = options.exact || codes.rebuilt;
        let course = Course::new(scope, workers, &pair.events, exact, shifts, (at, to));
        let mut work = Work {
            sides,
            pair,
            codes: &codes,
            options,
            causes,
            ids,
            asked: HashMap::new(),
            found: Found::default(),
        };
        let done = work.run(course, until, &|count| {
            progress(count.saturating_sub(at[0]))
        });
        *family = work.causes.family;
        done.map(|()| work.found)
    })
}

/// By how much memory is shifted that two calls gave the programs.
fn shift(events: Both<&Happening>) -> Option<u64> {
    let results = events.map(|e| match e.kind {
        Event::Syscall { number, result, .. } => {
            let gives = ["mmap", "mremap", "brk", "shmat"];
            let result = result.filter(|r| error_name(*r).is_none());
            result.filter(|_| gives.contains(&syscall_name(number).as_str()))
        }
        _ => None,
    });
    Some(results[0]?.wrapping_sub(results[1]?))
}

struct Work<'a> {
    sides: &'a mut Both<Side>,
    pair: &'a Pair,
    codes: &'a Codes,
    options: &'a Options,
    causes: Causes,
    ids: Both<ThreadId>,
    /// The reasons that were found for the partings behind an instruction, and how often it was asked.
    asked: HashMap<u64, (Reason, u64)>,
    found: Found,
}

impl Work<'_> {
    fn run(
        &mut self,
        mut course: Course,
        until: Option<Position>,
        progress: &dyn Fn(u64),
    ) -> Result<()> {
        loop {
            let next = course.next(progress)?;
            let full = self.found.differences.len() >= self.options.limit;
            match next {
                Next::End => {
                    match full {
                        true => self.found.more |= self.ends_differ(),
                        false => self.end()?,
                    }
                    break;
                }
                _ if full => {
                    // Whatever comes is more.
                    self.found.more = true;
                    break;
                }
                Next::Event(n) => {
                    let pair = self.pair.events.pairs[n];
                    let counts = [0, 1].map(|s| self.pair.events.each[s][pair[s]].count);
                    self.aligned().meet(counts);
                    if self.is_behind(until, course.at()[0])? {
                        self.found.more = true;
                        break;
                    }
                    self.event(&mut course, n)?;
                }
                Next::Parting(p) => {
                    if self.is_behind(until, p.at[0])? {
                        self.found.more = true;
                        break;
                    }
                    self.parting(&p)?;
                }
            }
            self.found.compared = course.at()[0].saturating_sub(self.pair.threads[0].from);
        }
        Ok(())
    }

    /// Whether the threads end otherwise.
    fn ends_differ(&self) -> bool {
        let [a, b] = [0, 1].map(|s| &self.pair.threads[s].ending);
        // Whether the recording says how a thread ended that another one killed depends on who was faster.
        a != b && [a, b].iter().all(|e| **e != Ending::Unknown)
    }

    /// Both threads end.
    fn end(&mut self) -> Result<()> {
        if !self.ends_differ() {
            return Ok(());
        }
        let [a, b] = [0, 1].map(|s| &self.pair.threads[s]);
        let to = [a.to, b.to];
        let mut trail = None;
        if let [Ending::Exit(x), Ending::Exit(y)] = [&a.ending, &b.ending] {
            let datum = Datum {
                names: [0, 1].map(|_| "edi".to_owned()),
                bytes: [x, y].map(|v| v.to_le_bytes().to_vec()),
            };
            let at = [0, 1].map(|s| (self.ids[s], to[s]));
            let register = iced_x86::Register::RDI;
            trail = Some((self.causes).of_register(self.sides, at, register, datum)?);
        }
        let endings = [a, b].map(|t| t.ending.to_string());
        self.add(Kind::End { endings }, to, to, trail, None)
    }

    fn is_behind(&self, until: Option<Position>, count: u64) -> Result<bool> {
        let Some(until) = until else { return Ok(false) };
        Ok(self.sides[0].timeline.position(self.ids[0], count)? > until)
    }

    /// A pair of events.
    fn event(&mut self, course: &mut Course, n: usize) -> Result<()> {
        let pair = self.pair.events.pairs[n];
        let events = [0, 1].map(|s| &self.pair.events.each[s][pair[s]]);
        if let Some(by) = shift(events) {
            // What lies there may be elsewhere than all else.
            course.shifts().add(by);
            self.causes.shifts.add(by);
        }
        match compare(self.sides, events)? {
            Said::Same => {}
            Said::Got(input) => self.got(input),
            Said::Different(kind) => {
                let at = [0, 1].map(|s| (self.ids[s], events[s].count));
                let trail = self.trail_of(&kind, at, events.map(|e| e.kind.clone()))?;
                let given = trail.as_ref().is_some_and(Trail::is_given);
                if given && let Some(calls) = kind.calls() {
                    // Whoever started them wanted that.
                    self.got(Input {
                        positions: events.map(|e| e.position),
                        threads: self.ids,
                        calls,
                        files: [None, None],
                        byte: None,
                    });
                    return Ok(());
                }
                let again = events.map(|e| e.count.saturating_add(1));
                self.add(kind, at.map(|a| a.1), at.map(|a| a.1), trail, Some(again))?;
            }
        }
        Ok(())
    }

    fn got(&mut self, input: Input) {
        match self.found.inputs.len() < INPUTS {
            true => self.found.inputs.push(input),
            false => self.found.more_inputs = true,
        }
    }

    /// The threads part.
    fn parting(&mut self, p: &Parting) -> Result<()> {
        let lone = (0..2).any(|s| p.lone[s].iter().any(|n| self.says_something(s, *n)));
        let last = self.last(p);
        let ends = p.next.iter().any(Option::is_none);
        let key = match last {
            Some(at) => self.key(at[0].1)?,
            None => None,
        };
        let passes = p.again.is_some() && !lone && !ends && !self.options.strict;
        if passes {
            let loader = self.codes.loader.is_some() && p.module == self.codes.loader;
            let reason = match (loader, key.and_then(|k| self.asked.get(&k))) {
                (true, _) => Some(Reason::Loader),
                (_, Some((reason, ASKED))) => Some(*reason),
                _ => None,
            };
            if let Some(reason) = reason.filter(|r| !r.counts()) {
                self.aligned().part(p.at, p.again, reason);
                *self.found.passed_over.entry(reason).or_default() += 1;
                return Ok(());
            }
        }
        let trail = match last {
            Some(at) if !self.is_event(p) && !self.is_rebuilt(p) => {
                self.causes.of_branch(self.sides, at)?
            }
            _ => None,
        };
        // Who sends a signal chooses when. Not so an instruction that raises one.
        let sent = self.signals(p)?.is_some() && !self.raised(p);
        let reason = match (&trail, sent) {
            (_, true) => Reason::Schedule,
            (Some(t), _) => t.reason,
            (None, _) => Reason::Unknown,
        };
        self.aligned().part(p.at, p.again, reason);
        if passes && !reason.counts() {
            if let Some(key) = key {
                let known = self.asked.entry(key).or_insert((reason, 0));
                known.1 = if known.0 == reason { known.1 + 1 } else { 0 };
                known.0 = reason;
            }
            *self.found.passed_over.entry(reason).or_default() += 1;
            return Ok(());
        }
        let kind = self.kind(p, last)?;
        let (last, first) = match (&kind, p.next) {
            (Kind::Function { .. }, [Some(a), Some(b)]) => (p.at, [a.count, b.count]),
            _ => (last.map_or(p.at, |l| l.map(|a| a.1)), p.at),
        };
        self.add(kind, last, first, trail, p.again)
    }

    fn aligned(&mut self) -> &mut Alignment {
        let all = &mut self.causes.family.aligned;
        all.entry(self.ids[0]).or_default()
    }

    /// The last instruction that both executed.
    fn last(&self, p: &Parting) -> Option<At> {
        let begun = [0, 1].map(|s| p.at[s] > self.pair.threads[s].from);
        (begun == [true, true]).then(|| [0, 1].map(|s| (self.ids[s], p.at[s] - 1)))
    }

    fn key(&mut self, count: u64) -> Result<Option<u64>> {
        let point = self.sides[0].point(self.ids[0], count)?;
        let mut code = self.codes.each[0].clone();
        Ok(code.exact(point.pc, &mut || Some(point.position)))
    }

    /// Adds a difference.
    fn add(
        &mut self,
        kind: Kind,
        last: Both<u64>,
        first: Both<u64>,
        trail: Option<Trail>,
        again: Option<Both<u64>>,
    ) -> Result<()> {
        let cause = match trail {
            Some(t) => Some(self.causes.tell(self.sides, &t)?),
            None => None,
        };
        let mut points: Vec<Point> = Vec::new();
        let mut next = [None, None];
        let mut stacks = [Vec::new(), Vec::new()];
        let mut places = [None, None];
        for s in 0..2 {
            let (id, side) = (self.ids[s], &mut self.sides[s]);
            points.push(side.point(id, last[s])?);
            if first[s] < self.pair.threads[s].to {
                next[s] = Some(side.point(id, first[s])?);
            }
            // Where they go on in other functions, it is the callers that matter.
            let at = match kind {
                Kind::Function { .. } if next[s].is_some() => first[s],
                _ => last[s],
            };
            stacks[s] = side.stack(id, at)?;
            places[s] = again
                .map(|a| side.timeline.position(id, a[s]))
                .transpose()?;
        }
        let [Some(b), Some(a)] = [points.pop(), points.pop()] else {
            return Ok(());
        };
        let again = match places {
            [Some(a), Some(b)] => Some([a, b]),
            _ => None,
        };
        let position = a.position;
        self.found.differences.push((
            position,
            Difference {
                kind,
                last: Some([a, b]),
                first: next,
                stacks,
                cause,
                again,
            },
        ));
        Ok(())
    }
}
