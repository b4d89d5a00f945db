//! Leads all that was executed backwards through the search.

use super::code::{Code, Marks, Role};
use super::fine::{Collector, Log, each};
use super::spans::Spans;
use super::{Candidates, Setting};
use crate::breakpath::{Breakpath, Leg, NoWay, StopCandidate};
use crate::{Cancel, Error, Result, Runs, ThreadId, Timeline};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is kept is dropped in so many blocks.
const BLOCKS: usize = 128;
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
    /// The first step from which on data counts. It gets later if there is too much data.
    pub data_from: u64,
    /// Runs that are kept at a time.
    most_runs: usize,
    /// The address of the instruction at the last step, if it is of use.
    pub goal: Option<u64>,
    settings: Vec<Named>,
}

/// A setting.
struct Named {
    address: u64,
    module: u32,
    data: bool,
    /// It can only be set where data counts.
    near: bool,
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

/// The last runs of those that were played: so many that they fit the memory.
struct Kept {
    /// Runs of a block.
    block: usize,
    blocks: VecDeque<Block>,
    /// The steps at which blocks of the first pass begin.
    starts: Vec<u64>,
    first_pass: bool,
}

impl Kept {
    fn new(most_runs: usize) -> Kept {
        Kept {
            block: (most_runs / BLOCKS).max(1),
            blocks: VecDeque::new(),
            starts: Vec::new(),
            first_pass: true,
        }
    }

    /// Adds a run of these steps.
    #[inline(always)]
    fn push(&mut self, number: u32, (from, to): (u64, u64)) {
        match self.blocks.back_mut().filter(|b| b.runs.len() < self.block) {
            Some(b) => {
                b.runs.push(number);
                b.to = to;
            }
            None => self.begin(number, (from, to)),
        }
    }

    fn begin(&mut self, number: u32, (from, to): (u64, u64)) {
        if self.first_pass {
            self.starts.push(from);
        }
        // Its memory serves once more.
        let mut runs = match self.blocks.len() >= BLOCKS {
            true => self.blocks.pop_front().map(|b| b.runs).unwrap_or_default(),
            false => Vec::with_capacity(self.block),
        };
        runs.clear();
        runs.push(number);
        self.blocks.push_back(Block { from, to, runs });
    }

    /// Where to begin a pass, so that what comes before a step is kept from there on.
    fn start_before(&self, step: u64) -> u64 {
        let before = self.starts.partition_point(|s| *s < step);
        let start = self.starts.get(before.saturating_sub(BLOCKS));
        start.copied().unwrap_or(0)
    }
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
        most_runs: usize,
    ) -> Plan<'a> {
        Plan {
            spans,
            candidates,
            thread,
            steps,
            data_from,
            most_runs,
            goal: None,
            settings: Vec::new(),
        }
    }

    /// A setting by its number, and its address in the recording.
    pub fn setting(&self, number: u32) -> (Setting, u64) {
        let s = &self.settings[number as usize];
        let span = &self.spans.all()[s.module as usize];
        let setting = Setting {
            module: Arc::clone(&span.path),
            offset: s.address - span.range.start,
            data: s.data,
        };
        (setting, s.address)
    }

    pub fn is_data(&self, number: u32) -> bool {
        self.settings[number as usize].data
    }

    /// The file that has an address at a step, and the offset from its lowest address.
    pub fn in_file(&mut self, address: u64, step: u64) -> Option<(Arc<str>, u64)> {
        let found = self.spans.at(address)?;
        let span = &self.spans.all()[found];
        let there = (span.usable..span.gone).contains(&step);
        there.then(|| (Arc::clone(&span.path), address - span.range.start))
    }

    pub fn find(&mut self, timeline: &Timeline, cancel: &Cancel) -> Result<Found> {
        let mut code = Code::default();
        let mut kept = Kept::new(self.most_runs);
        let mut runs = timeline.runs(self.thread, cancel.clone())?;
        self.play(&mut runs, &mut code, &mut kept, (0, self.steps))?;
        let mut marks = self.marks(&code);
        let log = self.fine(timeline, (&marks, &code), cancel)?;
        let mut searches = self.searches();
        log.backwards(|step, stops| searches.push(step, stops));
        drop(log);
        let before = self.data_from;
        let again =
            |kept: &mut Kept, code: &mut Code, range| self.play(&mut runs, code, kept, range);
        coarse(
            before,
            (&mut kept, &mut code, &mut marks),
            &mut searches,
            again,
        )?;
        Ok(searches.found())
    }

    /// Plays a part, and keeps the last runs of it.
    fn play(
        &mut self,
        runs: &mut Runs,
        code: &mut Code,
        kept: &mut Kept,
        (from, to): (u64, u64),
    ) -> Result<()> {
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
                kept.push(number, (begin, at));
            }
            true
        })?;
        match at >= to {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "parts of the program behind its first {at} instructions were not recorded"
            ))),
        }
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
        code.marks(goal, is_listed, |pc, role| {
            // Marks stand in files.
            let module = spans.at(pc).unwrap_or(0) as u32;
            let mut counts = match role {
                Role::First => counts,
                Role::Listed => 0,
                Role::Near => ALL,
            };
            if is_listed(pc) {
                counts |= SOME;
            }
            settings.push(Named {
                address: pc,
                module,
                data: false,
                near: role == Role::Near,
                counts,
            });
            settings.len() as u32 - 1
        })
    }

    /// Looks at the last steps one by one. Of those that access more than is kept, only the last ones count.
    fn fine(
        &mut self,
        timeline: &Timeline,
        known: (&Marks, &Code),
        cancel: &Cancel,
    ) -> Result<Log> {
        let instructions = self.settings.len();
        loop {
            self.settings.truncate(instructions);
            if let Some(log) = self.look(timeline, known, cancel)? {
                return Ok(log);
            }
            // Nothing is executed behind the last step.
            self.data_from = self.steps - (self.steps - self.data_from) / 4;
        }
    }

    /// `None`: there is too much data.
    fn look(
        &mut self,
        timeline: &Timeline,
        known: (&Marks, &Code),
        cancel: &Cancel,
    ) -> Result<Option<Log>> {
        let range = (self.data_from, self.steps);
        let (candidates, settings) = (self.candidates, &mut self.settings);
        let count = range.1 - range.0;
        let mut collector = Collector::new(
            &mut self.spans,
            known,
            timeline.0.model.saves,
            range.0,
            count,
        );
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
                near: true,
                counts,
            });
            settings.len() as u32 - 1
        };
        each(timeline, self.thread, range, cancel, |step, m| {
            collector.step(step, step == range.1, m, &mut name)
        })?;
        Ok((!collector.full).then_some(collector.log))
    }

    fn searches(&self) -> Searches {
        let spans = self.spans.all();
        let make = || {
            let mut b = Breakpath::new(self.steps, 2 * spans.len());
            for s in &self.settings {
                b.setting(2 * s.module + s.near as u32);
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

/// Gives the searches what was executed before data counts. `again` plays a part once more, and keeps it.
fn coarse(
    data_from: u64,
    (kept, code, marks): (&mut Kept, &mut Code, &mut Marks),
    searches: &mut Searches,
    mut again: impl FnMut(&mut Kept, &mut Code, (u64, u64)) -> Result<()>,
) -> Result<()> {
    kept.first_pass = false;
    let mut from = data_from;
    loop {
        while let Some(b) = kept.blocks.pop_back() {
            from = from.min(b.from);
            b.backwards(marks, data_from, searches)?;
        }
        if from == 0 {
            return Ok(());
        }
        // What was not kept is played again.
        again(kept, code, (kept.start_before(from), from))?;
        if kept.blocks.is_empty() {
            return Err(unlike());
        }
        marks.grow(code);
    }
}

fn unlike() -> Error {
    Error::Unsupported("another replay of the program tells other instructions".into())
}

impl Block {
    /// Leaves out what comes behind `data_from`: it was looked at one by one.
    fn backwards(&self, marks: &Marks, data_from: u64, searches: &mut Searches) -> Result<()> {
        let mut step = self.to;
        for run in self.runs.iter().rev() {
            let (len, list) = marks.of(*run).ok_or_else(unlike)?;
            step = step.checked_sub(len).ok_or_else(unlike)?;
            for m in list.iter().rev() {
                let at = step + m.behind as u64;
                // The program stands at step 0 when it starts.
                if at > 0 && at < data_from {
                    searches.push_one(at, m.setting);
                }
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests;
