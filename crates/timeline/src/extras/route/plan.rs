//! Leads all that was executed backwards through the search.

use super::code::{Code, Marks};
use super::fine::{Collector, Log, each};
use super::spans::Spans;
use super::{Candidates, Setting};
use crate::breakpath::{Breakpath, Leg, NoWay, StopCandidate};
use crate::{Cancel, Error, Result, Runs, ThreadId, Timeline};
use std::collections::VecDeque;

/// Runs that are kept at a time. Each takes four bytes.
const MOST_RUNS: usize = 1 << 27;
/// Runs of a block. What is kept is dropped block by block.
const BLOCK: usize = 1 << 20;
/// It counts when everything may be set.
const ALL: u8 = 1;
/// It counts under the restriction.
const SOME: u8 = 2;

/// What is looked for, and what was found out so far.
pub struct Plan<'a> {
    spans: Spans,
    candidates: &'a Candidates,
    thread: ThreadId,
    steps: u64,
    /// The first step from which on data counts.
    data_from: u64,
    /// The address of the instruction at the last step, if it is of use.
    pub goal: Option<u64>,
    settings: Vec<Named>,
}

/// A setting.
struct Named {
    address: u64,
    module: u32,
    data: bool,
    /// Whether it counts: [`ALL`] and [`SOME`].
    counts: u8,
}

/// What the search says.
pub struct Found {
    pub way: std::result::Result<Vec<Leg>, NoWay>,
    /// The fewest stops if everything may be set.
    pub all: Option<u64>,
    /// The last step at which something stops that may be set.
    pub nearest: Option<u64>,
}

/// Some runs that follow each other.
struct Block {
    from: u64,
    to: u64,
    runs: Vec<u32>,
}

/// The searches: without restriction, and with it.
struct Searches {
    all: Breakpath,
    some: Option<Breakpath>,
    counts: Vec<u8>,
    /// The classes that cannot be set from the start on, with the first steps at which they can, the latest last.
    late: Vec<(u64, u32)>,
    nearest: Option<u64>,
    part: Vec<StopCandidate>,
}

impl<'a> Plan<'a> {
    pub fn new(
        spans: Spans,
        candidates: &'a Candidates,
        (thread, steps, data_from): (ThreadId, u64, u64),
    ) -> Plan<'a> {
        Plan {
            spans,
            candidates,
            thread,
            steps,
            data_from,
            goal: None,
            settings: Vec::new(),
        }
    }

    /// A setting by its number, and its address in the recording.
    pub fn setting(&self, number: u32) -> (Setting, u64) {
        let s = &self.settings[number as usize];
        let module = &self.spans.all()[s.module as usize].module;
        let setting = Setting {
            module: module.path.clone(),
            offset: s.address - module.start,
            data: s.data,
        };
        (setting, s.address)
    }

    pub fn is_data(&self, number: u32) -> bool {
        self.settings[number as usize].data
    }

    pub fn find(&mut self, timeline: &Timeline, cancel: &Cancel) -> Result<Found> {
        let mut code = Code::default();
        let runs = timeline.runs(self.thread, cancel.clone())?;
        let mut blocks = VecDeque::new();
        let mut runs = match runs {
            Some(mut runs) => {
                blocks = self.runs(&mut runs, &mut code, (0, self.steps))?;
                Some(runs)
            }
            None => {
                self.instructions(timeline, &mut code, cancel)?;
                None
            }
        };
        let marks = self.marks(&code);
        let log = self.fine(timeline, &marks, cancel)?;
        let mut searches = self.searches();
        log.backwards(|step, stops| searches.push(step, stops));
        drop(log);
        let mut from = self.data_from;
        loop {
            while let Some(b) = blocks.pop_back() {
                from = b.from;
                b.backwards(&marks, &mut searches);
            }
            let Some(runs) = runs.as_mut().filter(|_| from > 0) else {
                break;
            };
            // What was not kept is played again.
            blocks = self.runs(runs, &mut code, (0, from))?;
        }
        Ok(searches.found())
    }

    /// Plays a part, and keeps the last runs of it that come before data counts.
    fn runs(
        &mut self,
        runs: &mut Runs,
        code: &mut Code,
        (from, to): (u64, u64),
    ) -> Result<VecDeque<Block>> {
        let mut blocks: VecDeque<Block> = VecDeque::new();
        let (mut at, mut epoch) = (from, None);
        let spans = &mut self.spans;
        runs.play((from, to), |executed, taken| {
            if executed.interrupted || executed.count != at {
                return false;
            }
            if let Some(before) = epoch.replace(executed.epoch())
                && before != executed.epoch()
            {
                let changed = executed.changed_since(before);
                changed.into_iter().for_each(|page| code.changes(page));
            }
            for run in taken {
                let number = code.number(run, spans, |pc, buf| executed.code(pc, buf));
                let begin = at;
                at += run.instructions();
                if begin >= self.data_from {
                    continue;
                }
                match blocks.back_mut().filter(|b| b.runs.len() < BLOCK) {
                    Some(b) => {
                        b.runs.push(number);
                        b.to = at;
                    }
                    None => {
                        let mut runs = Vec::with_capacity(BLOCK);
                        runs.push(number);
                        blocks.push_back(Block {
                            from: begin,
                            to: at,
                            runs,
                        });
                    }
                }
            }
            if blocks.len() > MOST_RUNS / BLOCK {
                blocks.pop_front();
            }
            true
        })?;
        match at >= to {
            true => Ok(blocks),
            false => Err(Error::Unsupported(format!(
                "parts of the program behind its first {at} instructions were not recorded"
            ))),
        }
    }

    /// Without a replay that tells runs: each instruction counts as one.
    fn instructions(
        &mut self,
        timeline: &Timeline,
        code: &mut Code,
        cancel: &Cancel,
    ) -> Result<()> {
        if self.data_from > 0 {
            return Err(Error::Unsupported(format!(
                "this processor looks at each of {} instructions from the start; at most {} are considered (--limit)",
                self.steps,
                self.steps - self.data_from
            )));
        }
        let spans = &mut self.spans;
        each(timeline, self.thread, (0, self.steps), cancel, |_, m| {
            if let Some(run) = hindsight_replay::Run::alone(m.registers().rip) {
                code.number(run, spans, |pc, buf| m.code(pc, buf));
            }
        })
    }

    fn marks(&mut self, code: &Code) -> Marks {
        let listed = match self.candidates {
            Candidates::Listed { code, .. } => Some(code),
            _ => None,
        };
        let counts = match self.candidates {
            Candidates::Instructions => ALL | SOME,
            _ => ALL,
        };
        let is_listed = |pc: u64| listed.is_some_and(|l| l.contains(&pc));
        let (spans, settings) = (&mut self.spans, &mut self.settings);
        let goal = self.goal.filter(|pc| spans.code_at(*pc).is_some());
        code.marks(goal, is_listed, |pc, first| {
            // Marks stand in files.
            let module = spans.at(pc).unwrap_or(0) as u32;
            let mut counts = if first { counts } else { 0 };
            if is_listed(pc) {
                counts |= SOME;
            }
            settings.push(Named {
                address: pc,
                module,
                data: false,
                counts,
            });
            settings.len() as u32 - 1
        })
    }

    /// Looks at the last steps one by one.
    fn fine(&mut self, timeline: &Timeline, marks: &Marks, cancel: &Cancel) -> Result<Log> {
        let range = (self.data_from, self.steps);
        let (candidates, settings) = (self.candidates, &mut self.settings);
        let mut collector = Collector::new(&mut self.spans, marks, self.data_from);
        let mut name = |word: u64, module: usize| {
            let counts = match candidates {
                Candidates::All | Candidates::Instructions => ALL,
                Candidates::Data => ALL | SOME,
                Candidates::Listed { words, .. } if words.contains(&word) => ALL | SOME,
                Candidates::Listed { .. } => ALL,
            };
            settings.push(Named {
                address: word,
                module: module as u32,
                data: true,
                counts,
            });
            settings.len() as u32 - 1
        };
        let goal = self.steps;
        each(timeline, self.thread, range, cancel, |step, m| {
            collector.arrive(step, m);
            if step < goal {
                collector.execute(step, m, &mut name);
            }
        })?;
        Ok(collector.log)
    }

    fn searches(&self) -> Searches {
        let spans = self.spans.all();
        let make = || {
            let mut b = Breakpath::new(self.steps, 2 * spans.len());
            for s in &self.settings {
                b.setting(2 * s.module + s.data as u32);
            }
            b
        };
        let mut late = Vec::new();
        for (i, s) in spans.iter().enumerate() {
            late.push((s.usable, 2 * i as u32));
            late.push((s.usable.max(self.data_from), 2 * i as u32 + 1));
        }
        late.retain(|l| l.0 > 0);
        late.sort_unstable();
        Searches {
            all: make(),
            some: (*self.candidates != Candidates::All).then(make),
            counts: self.settings.iter().map(|s| s.counts).collect(),
            late,
            nearest: None,
            part: Vec::new(),
        }
    }
}

impl Block {
    fn backwards(&self, marks: &Marks, searches: &mut Searches) {
        let mut step = self.to;
        for run in self.runs.iter().rev() {
            let (len, list) = marks.of(*run);
            step -= len;
            for m in list.iter().rev() {
                let at = step + m.behind as u64;
                // The program stands at step 0 when it starts.
                if at > 0 {
                    searches.push_one(at, m.setting);
                }
            }
        }
    }
}

impl Searches {
    /// The same for one setting that stops exactly once.
    #[inline(always)]
    fn push_one(&mut self, step: u64, setting: u32) {
        let soon = self.late.last().is_some_and(|l| l.0 > step);
        if self.some.is_none() && self.nearest.is_some() && !soon {
            self.all.push_one(step, setting);
            return;
        }
        let stop = StopCandidate {
            setting,
            exact: true,
        };
        self.push(step, &[stop]);
    }

    fn push(&mut self, step: u64, stops: &[StopCandidate]) {
        self.late_behind(step);
        let counts = |of: u8| {
            let counts = &self.counts;
            move |s: &&StopCandidate| counts[s.setting as usize] & of != 0
        };
        let last = if self.some.is_some() { SOME } else { ALL };
        if self.nearest.is_none() && stops.iter().filter(counts(last)).any(|s| s.exact) {
            self.nearest = Some(step);
        }
        if self.some.is_none() {
            // All settings count.
            self.all.push(step, stops);
            return;
        }
        let mut part = std::mem::take(&mut self.part);
        for (of, search) in [(ALL, Some(&mut self.all)), (SOME, self.some.as_mut())] {
            let Some(search) = search else { continue };
            part.clear();
            part.extend(stops.iter().filter(counts(of)));
            if !part.is_empty() {
                search.push(step, &part);
            }
        }
        self.part = part;
    }

    /// Tells the searches what cannot be set at a step and before.
    fn late_behind(&mut self, step: u64) {
        while let Some((_, class)) = self.late.last().filter(|l| l.0 > step) {
            let first = self.late.last().map_or(0, |l| l.0);
            self.all.late(*class, first);
            if let Some(some) = &mut self.some {
                some.late(*class, first);
            }
            self.late.pop();
        }
    }

    fn found(mut self) -> Found {
        self.late_behind(0);
        let all = self.all.way();
        let stops = |way: &Vec<Leg>| way.iter().map(|l| l.hits).sum();
        Found {
            all: all.as_ref().ok().map(stops),
            way: self.some.map_or(all, Breakpath::way),
            nearest: self.nearest,
        }
    }
}
