//! Where there is no index yet, a player of a quiet thread begins at a key frame of the recording. A machine without
//! marks, which is faster, runs from there to a little before the instant, and hands all memory over. It does so, too, from
//! borders of the coarse level, and from places at which such a machine came by before.
//!
//! Marks then begin where the index has no border. What happened before, the key frames tell (`value/restated`).

use super::{Need, Player, Since};
use crate::base::STRIDE;
use crate::engine::Engine;
use crate::index::{self, IndexPart};
use crate::model::error::replay;
use crate::play::begin::Begin;
use crate::{Error, Result, ThreadId};
use hindsight_replay::{Lines, Machine, State, Stop};
use std::sync::Arc;

/// A part with fewer intervals than this is indexed in less than a second. The index says more about why a byte is known.
const LEAST: u64 = 32;
/// The player itself plays this many intervals rather than let the machine run ahead.
const NEAR: u64 = 4;
/// The machine stays where it is for the next question, if it has at most this many bytes of memory for each instruction of
/// an interval: 128 MiB.
const KEPT: u64 = 4;

/// Where there is a coarse level, the player itself plays this part of a fine interval before the instant. Its marks then say what the
/// last instructions accessed.
const OWN: u64 = 8;
/// Places that are remembered lie a fine interval apart, and at least `APART` instructions. Where somebody chose the length of
/// coarse intervals, each has so many.
const EACH: u64 = 8;
const APART: u64 = 1 << 25;

/// The machine that runs ahead, and the part in which it is.
pub struct Ahead {
    machine: Machine<'static>,
    part: usize,
    /// Its pages are made when they are touched. So it costs little to remember where it comes by.
    remembers: bool,
}

impl Ahead {
    /// Runs the machine of `thread` to position `to`. False if the stream ends before. On the way it remembers places, `every` so many
    /// instructions.
    fn run(
        &mut self,
        engine: &Engine,
        thread: ThreadId,
        (to, every): (u64, u64),
        progress: &index::Progress,
    ) -> Result<bool> {
        while self.machine.position() < to {
            let here = self.machine.position();
            let border = (here / every + 1).saturating_mul(every);
            let next = to.min(here.saturating_add(STRIDE)).min(border);
            let n = next - self.machine.position();
            match self.machine.run_to(next).map_err(|e| replay(thread, e))? {
                Stop::Position | Stop::Break => {}
                _ => return Ok(false),
            }
            if !progress(n) {
                return Err(Error::Cancelled);
            }
            if next == border && self.remembers {
                let passes = engine.passes(thread, &self.machine);
                passes.map_err(|e| replay(thread, e))?;
            }
        }
        Ok(true)
    }
}

impl Player {
    /// The key frame from which a machine is to run ahead: its position, and its chunk.
    fn frame_for(&self, count: u64) -> Result<Option<(u64, usize)>> {
        let scan = self.engine.scan(self.thread)?;
        let alone = !self.engine.has_steps(self.thread);
        let told = scan.told_at(count).filter(|t| alone && t.is_whole());
        Ok(told.map(|t| (t.at, t.chunk())))
    }

    /// Whether a machine that runs ahead comes to `count` sooner than a player that plays on from here.
    pub(super) fn begins_ahead(&self, need: Need, count: u64) -> Result<bool> {
        let far = count - self.count() > self.span().saturating_mul(NEAR);
        Ok(far && need != Need::Marks && self.frame_for(count)?.is_some())
    }

    /// Whether a machine that runs ahead comes to `count` sooner than by the coarse level alone. That makes a part of the fine
    /// level first, for which all memory is copied, or plays with marks from the beginning of the interval.
    pub(super) fn is_sooner_ahead(
        &self,
        built: &IndexPart,
        count: u64,
        need: Need,
    ) -> Result<bool> {
        let interval = built.interval(count);
        let into = count.saturating_sub(built.bounds(interval).0);
        if need == Need::Marks || !built.range.is_coarse() || into < self.span() {
            return Ok(false);
        }
        if self.engine.is_framed(built, interval)? {
            return Ok(false);
        }
        Ok(self.frame_for(count)?.is_some())
    }

    /// Where a machine begins that runs to `to`, and how many instructions are completed there: at the key frame that stands at
    /// `at`, or at a border of the coarse level, if that is much nearer. There memory is laid out as it is touched.
    fn ahead_from(&self, part: usize, to: u64, (at, chunk): (u64, usize)) -> (u64, Begin) {
        let range = self.ranges[part];
        let built = self.engine.part_if_built(range);
        if let Some(built) = built.filter(|_| range.is_coarse() && range.from <= to) {
            let i = built.interval(to);
            let from = built.bounds(i).0;
            if i > 0 && from <= to && at.saturating_add(self.span()) < from {
                return (from, Begin::Border(built, i));
            }
        }
        (at, Begin::KeyFrame(chunk))
    }

    /// So many instructions lie between the places that machines remember.
    fn every(&self) -> u64 {
        match self.engine.coarse {
            0 => self.span().max(APART),
            n => (n / EACH).max(1),
        }
    }

    /// Begins to play a little before `count`, from the last key frame that restates memory. `false`: the index has to
    /// be made.
    pub(super) fn start_ahead(&mut self, part: usize, count: u64, need: Need) -> Result<bool> {
        let thread = self.thread;
        let span = self.span();
        if need == Need::Marks || self.ranges[part].len() < span.saturating_mul(LEAST) {
            return Ok(false);
        }
        let Some(frame) = self.frame_for(count)? else {
            return Ok(false);
        };
        // Without an index, who looks for accesses before the marks makes it.
        let own = match self.engine.part_if_built(self.ranges[part]) {
            Some(_) => span / OWN,
            None => span,
        };
        let to = count.saturating_sub(own).max(frame.0);
        let (border, begin) = self.ahead_from(part, to, frame);
        let passed = self.engine.passed(thread, border, to);
        let at = passed.as_ref().map_or(border, |p| p.0.position);
        let ready = |a: &Ahead| a.part == part && (at..=to).contains(&a.machine.position());
        let mut ahead = match self.ahead.take().filter(ready) {
            Some(a) => a,
            None if !self.may_run(part, &begin, to - at) => return Ok(false),
            None => {
                self.let_go_of_much()?;
                let mut machine = self.engine.machine(thread)?;
                machine.digests_only();
                let cancel = &self.cancel;
                let go_on = |_| !cancel.is_cancelled();
                let remembers = passed.is_some() || !matches!(begin, Begin::KeyFrame(_));
                let begin = match passed {
                    Some((state, content)) => Begin::Player(Box::new(state), content),
                    None => begin,
                };
                begin.start(&self.engine, thread, &mut machine, &go_on)?;
                Ahead {
                    machine,
                    part,
                    remembers,
                }
            }
        };
        let engine = Arc::clone(&self.engine);
        let to = (to, self.every());
        if !engine.show(&self.cancel, |progress| {
            ahead.run(&engine, thread, to, progress)
        })? {
            // The stream ends before. The index says how far it goes.
            return Ok(false);
        }
        self.take_over(ahead, part)?;
        Ok(true)
    }

    /// Whether a machine is to run so many instructions once more. If so, they count from now on.
    fn may_run(&self, part: usize, begin: &Begin, instructions: u64) -> bool {
        match begin {
            Begin::Border(built, i) => self.engine.may_run_coarse(built, *i, instructions),
            _ => (self.engine).may_run_ahead(self.ranges[part], instructions),
        }
    }

    /// Releases memory, if it is much, before another machine needs as much. The player then stands nowhere.
    pub(super) fn let_go_of_much(&mut self) -> Result<()> {
        match self.base.size() as u64 > KEPT * self.span() {
            true => self.let_go(),
            false => Ok(()),
        }
    }

    fn let_go(&mut self) -> Result<()> {
        self.forget_base();
        let emptied = self.machine.set_content(&self.base);
        emptied.map_err(|e| replay(self.thread, e))
    }

    /// Goes on from where the machine that ran ahead is. That machine stays there if it has little memory. Otherwise it gives
    /// its memory away.
    fn take_over(&mut self, mut ahead: Ahead, part: usize) -> Result<()> {
        let thread = self.thread;
        let fail = |e| replay(thread, e);
        let state = ahead.machine.state();
        self.forget_base();
        if ahead.machine.held().map_err(fail)? as u64 <= KEPT * self.span() {
            self.base = ahead.machine.content().map_err(fail)?;
            self.ahead = Some(ahead);
        } else {
            self.base = ahead.machine.take_content().map_err(fail)?;
            drop(ahead);
        }
        self.machine.set_content(&self.base).map_err(fail)?;
        self.settled = false;
        let source = self.source(state.position);
        self.machine
            .resume(Box::new(source), &state)
            .map_err(fail)?;
        self.at = Some(Since {
            part,
            count: state.position,
            step: false,
            until: u64::MAX,
            coarse: false,
            ahead: true,
            marks: true,
        });
        let start = self.machine.checkpoint_of_start();
        self.add_checkpoint(start, true);
        Ok(())
    }

    /// The state here with all memory, if the window has that.
    pub fn whole_state(&self) -> Result<Option<(State, Lines)>> {
        let whole = self.at.is_some_and(|at| at.until == u64::MAX);
        let entries = self.engine.scan(self.thread)?.entries(self.count()).next();
        if !whole || entries.is_some() || self.frame_for(self.count())?.is_none() {
            return Ok(None);
        }
        let content = self.machine.content();
        let content = content.map_err(|e| replay(self.thread, e))?;
        Ok(Some((self.machine.state(), content)))
    }

    /// Goes on from where a machine without marks is, if nothing brings the player there sooner. Marks begin there.
    pub fn go_on_from(&mut self, mut machine: Machine<'static>) -> Result<()> {
        let count = machine.position();
        let entries = self.engine.scan(self.thread)?.entries(count).next();
        let told = self.frame_for(count)?.is_some();
        if told && entries.is_none() && !self.is_indexed(count) {
            machine.set_breaks(Vec::new());
            let part = self.part(count);
            self.let_go()?;
            let ahead = Ahead {
                machine,
                part,
                remembers: false,
            };
            self.take_over(ahead, part)?;
        }
        Ok(())
    }

    /// Whether marks begin where the index has no border.
    pub fn is_ahead(&self) -> bool {
        self.at.is_some_and(|at| at.ahead)
    }

    /// The instant from which marks tell accesses up to `count`, if that is near and there is no index.
    pub fn marked_without_index(&self, count: u64) -> Option<u64> {
        let at = self.at.filter(|at| at.ahead && at.count <= count)?;
        let range = self.ranges[at.part];
        let within = range.from <= count && (count < range.to || range.last);
        let near = count - at.count <= self.span().saturating_mul(2);
        let built = || self.engine.nearest_if_built(range, count);
        (within && near && built().is_none()).then_some(at.count)
    }

    /// Whether the index has an interval with instruction `count`.
    pub fn is_indexed(&self, count: u64) -> bool {
        let range = self.ranges[self.part(count)];
        self.engine.nearest_if_built(range, count).is_some()
    }

    /// Where the part ends that has instruction `count`.
    pub fn part_end(&self, count: u64) -> u64 {
        self.ranges[self.part(count)].to
    }

    /// The usual number of instructions in an interval of the index.
    pub fn span(&self) -> u64 {
        index::span(&self.engine, self.thread)
    }

    /// Goes to where `count` instructions are completed, for breakpoints whose conditions look at memory.
    pub fn seek_for_conditions(&mut self, count: u64) -> Result<()> {
        // Where an interval has steps, its beginning is needed.
        match self.engine.has_steps(self.thread) {
            true => self.seek(count),
            false => self.go(count),
        }
    }

    /// Goes to where `count` instructions are completed, from a border of the index. The index is made if there is
    /// none.
    pub fn seek_by_index(&mut self, count: u64) -> Result<()> {
        self.seek(count)?;
        self.end_at(count)
    }
}
