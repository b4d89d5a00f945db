//! Compares a thread of each recording.

use crate::align::Alignment;
use crate::cause::{At, Causes, Family, Trail};
use crate::code::{Codes, FUNCTION, Keys, codes};
use crate::course::{Course, Next, Parting, Shifts};
use crate::details::{Said, compare};
use crate::model::{Datum, Difference, Input, Kind, Point, Reason};
use crate::side::Side;
use crate::start;
use crate::stream::Worker;
use crate::whole::Pair;
use crate::{Both, Options, Result};
use hindsight_timeline::{
    Cancel, Ending, Happening, Kind as Event, Position, Thread, ThreadId, error_name, syscall_name,
};
use iced_x86::FlowControl;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// So many partings are looked into for each branch. Those behind have the same reason, if all of these have.
const ASKED: u64 = 8;
/// Calls by which a program gets memory, waits or looks around, and does nothing that others see.
const PRIVATE: [&str; 14] = [
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "wait4",
    "waitid",
    "poll",
    "ppoll",
    "nanosleep",
    "clock_nanosleep",
    "rt_sigprocmask",
    "getrandom",
];
/// Inputs that are kept.
const INPUTS: usize = 100;

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
        start::shifts([&a, &b])
            .into_iter()
            .for_each(|by| shifts.add(by));
    }
    let done = Arc::new(AtomicU64::new(0));
    let worker = |s: usize| -> Result<Worker> {
        Ok(Worker {
            walk: sides[s].timeline.walk(ids[s], Cancel::new())?,
            keys: Keys::new(&sides[s], ids[s], &codes, s),
            events: Arc::new(pair.events.each[s].clone()),
            pair_of: pair.events.pair_of[s].clone(),
            handlers: pair.events.handlers[s].clone(),
            side: s,
            enough: Arc::new(AtomicBool::new(false)),
            done: match s {
                0 => Arc::clone(&done),
                _ => Arc::default(),
            },
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
        let done = work.run(course, until, &|| progress(done.load(Relaxed)));
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
        progress: &dyn Fn(),
    ) -> Result<()> {
        loop {
            progress();
            let next = course.next()?;
            let full = self.found.differences.len() >= self.options.limit;
            match next {
                Next::End => {
                    if !full {
                        self.end()?;
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
                        break;
                    }
                    self.event(&mut course, n)?;
                }
                Next::Parting(p) => {
                    if self.is_behind(until, p.at[0])? {
                        break;
                    }
                    self.parting(&p)?;
                }
            }
            self.found.compared = course.at()[0].saturating_sub(self.pair.threads[0].from);
        }
        Ok(())
    }

    /// Both threads end.
    fn end(&mut self) -> Result<()> {
        let [a, b] = [0, 1].map(|s| &self.pair.threads[s]);
        // Whether the recording says how a thread ended that another one killed depends on who was faster.
        let is_known = [a, b].iter().all(|t| t.ending != Ending::Unknown);
        if !is_known || a.ending == b.ending {
            return Ok(());
        }
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

    /// Where an argument, or bytes that a call gives out, come from.
    fn trail_of(&mut self, kind: &Kind, at: At, calls: Both<Event>) -> Result<Option<Trail>> {
        let args = calls.map(|c| match c {
            Event::Syscall { args, .. } => args,
            _ => [0; 6],
        });
        use iced_x86::Register::{R8, R9, R10, RDI, RDX, RSI};
        const ARGUMENTS: [iced_x86::Register; 6] = [RDI, RSI, RDX, R10, R8, R9];
        match kind {
            Kind::Argument { index, .. } => {
                let values = args.map(|a| a.get(*index).copied().unwrap_or(0));
                if let Some((place, datum)) = self.text(at, values)? {
                    return self
                        .causes
                        .of_memory(self.sides, at, place, datum)
                        .map(Some);
                }
                let Some(register) = ARGUMENTS.get(*index) else {
                    return Ok(None);
                };
                let name = format!("{register:?}").to_lowercase();
                let datum = Datum {
                    names: [name.clone(), name],
                    bytes: values.map(|v| v.to_le_bytes().to_vec()),
                };
                let trail = self.causes.of_register(self.sides, at, *register, datum)?;
                Ok(Some(trail))
            }
            Kind::Bytes {
                at: byte, bytes, ..
            } => {
                let events = [0, 1].map(|s| self.sides[s].buffer(at[s].0, at[s].1));
                let [Some(a), Some(b)] = events else {
                    return Ok(None);
                };
                let address = [a, b].map(|a| a.wrapping_add(*byte));
                let datum = Datum {
                    names: address.map(|a| format!("memory at {a:#x}")),
                    bytes: bytes.clone().map(|b| b.into_iter().take(1).collect()),
                };
                let trail = self.causes.of_memory(self.sides, at, address, datum)?;
                Ok(Some(trail))
            }
            _ => Ok(None),
        }
    }

    /// The first byte that differs in memory that arguments point to.
    fn text(&mut self, at: At, values: Both<u64>) -> Result<Option<(Both<u64>, Datum)>> {
        const LONGEST: usize = 4096;
        let mut bytes = [Vec::new(), Vec::new()];
        for s in 0..2 {
            if values[s] < 1 << 16 {
                return Ok(None);
            }
            let c = &mut self.sides[s].cursor;
            c.seek_count(at[s].0, at[s].1)?;
            bytes[s] = c.known_memory(values[s], LONGEST)?.prefix();
        }
        let both = bytes[0].iter().zip(&bytes[1]);
        let Some(first) = both.clone().position(|(a, b)| a != b) else {
            return Ok(None);
        };
        let address = values.map(|v| v.wrapping_add(first as u64));
        Ok(Some((
            address,
            Datum {
                names: address.map(|a| format!("memory at {a:#x}")),
                bytes: bytes.map(|b| vec![b[first]]),
            },
        )))
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
        let signal = self.signals(p)?.is_some();
        let reason = match (&trail, signal) {
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

    /// Whether a call that only one recording has means more than that memory lies elsewhere, or that somebody was faster.
    fn says_something(&self, side: usize, n: usize) -> bool {
        let event = self.pair.events.each[side].get(n).map(|h| &h.kind);
        match event {
            Some(Event::Syscall { number, .. }) => {
                !PRIVATE.contains(&syscall_name(*number).as_str())
            }
            _ => true,
        }
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

    /// Whether they part in, or come from, a file that is another build in the other recording: only functions are compared.
    fn is_rebuilt(&self, p: &Parting) -> bool {
        let all = p.next.iter().flatten().chain(&p.before);
        self.codes.rebuilt && all.into_iter().any(|i| i.len == 0 && i.key & FUNCTION != 0)
    }

    /// Whether they part at an event, and not at a branch.
    fn is_event(&self, p: &Parting) -> bool {
        let event = |i: &crate::stream::Item| i.lone().is_some() || i.pair().is_some();
        p.next.iter().flatten().any(event)
    }

    /// The signals with which they part, if they do.
    fn signals(&self, p: &Parting) -> Result<Option<Both<Option<String>>>> {
        let name = |s: usize| {
            let number = p.next[s]?.lone();
            let pair = p.next[s]?.pair().map(|n| self.pair.events.pairs[n][s]);
            let h = self.pair.events.each[s].get(number.or(pair)?)?;
            match h.kind {
                Event::Signal { number, .. } => {
                    Some(hindsight_timeline::signal_name(number.into()))
                }
                _ => None,
            }
        };
        let names = [name(0), name(1)];
        Ok(names.iter().any(Option::is_some).then_some(names))
    }

    fn kind(&mut self, p: &Parting, last: Option<At>) -> Result<Kind> {
        if let Some(signals) = self.signals(p)? {
            return Ok(Kind::Signal { signals });
        }
        if p.next.iter().any(Option::is_none) {
            let how = |t: &Thread| t.ending.to_string();
            return Ok(Kind::End {
                endings: [0, 1].map(|s| how(&self.pair.threads[s])),
            });
        }
        if self.is_event(p) {
            let mut calls = [None, None];
            for (s, call) in calls.iter_mut().enumerate() {
                let lone = p.next[s].and_then(|i| i.lone());
                let h = lone.and_then(|n| self.pair.events.each[s].get(n));
                *call = h.map(|h| self.sides[s].text(h)).transpose()?;
            }
            return Ok(Kind::Call { calls });
        }
        let rebuilt = self.is_rebuilt(p);
        if rebuilt {
            let mut names = [None, None];
            for (s, name) in names.iter_mut().enumerate() {
                let count = p.next[s].map_or(p.at[s], |i| i.count);
                let point = self.sides[s].point(self.ids[s], count)?;
                *name = point.location.and_then(|l| Some(l.function?.0));
            }
            return Ok(Kind::Function { names });
        }
        let Some(at) = last else {
            return Ok(Kind::Other);
        };
        let Some(step) = self.causes.instruction(0, at[0])? else {
            return Ok(Kind::Other);
        };
        Ok(match step.flow_control() {
            FlowControl::ConditionalBranch => {
                let mut taken = [false; 2];
                for s in 0..2 {
                    let next = self.sides[s].point(self.ids[s], p.at[s])?;
                    let step = self.causes.instruction(s, at[s])?;
                    taken[s] = step.is_some_and(|i| i.next_ip() != next.pc);
                }
                Kind::Branch { taken }
            }
            FlowControl::Next | FlowControl::Interrupt => Kind::Other,
            _ => Kind::Target,
        })
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
