//! Plays from the steps of an interval. A step is nearer than the interval's frame.

use super::{Need, Player, Since};
use crate::Result;
use crate::index::{self, IntervalSummary, OpenedSummary};
use std::sync::Arc;

/// An interval (the number of its part, and its own), and what is unpacked of it.
pub struct Steps {
    of: (u64, usize),
    summary: Arc<IntervalSummary>,
    opened: OpenedSummary,
}

impl Player {
    /// The last step that begins at `count` or before. `None`: the interval has no steps.
    pub(super) fn step_before(&self, count: u64) -> Result<Option<u64>> {
        if !self.engine.has_steps(self.thread) {
            return Ok(None);
        }
        // Such a thread has one level only.
        let range = self.ranges[self.part(count)];
        let Some(built) = self.engine.part_if_built(range) else {
            return Ok(None);
        };
        let summary = built.summary(&self.engine, built.interval(count))?;
        Ok((summary.stepped).then(|| summary.steps[summary.step(count)].from))
    }

    /// What is unpacked of an interval.
    fn steps_of(&mut self, built: &index::IndexPart, interval: usize) -> Result<&mut Steps> {
        let of = (built.number, interval);
        let old = self.steps.take();
        let new = match old {
            Some(s) if s.of == of => s,
            old => {
                let mut opened = old.map(|s| s.opened).unwrap_or_default();
                opened.clear();
                Steps {
                    of,
                    summary: built.summary(&self.engine, interval)?,
                    opened,
                }
            }
        };
        Ok(self.steps.insert(new))
    }

    /// Begins to play at the last step or interval that begins at `count` or before.
    pub(super) fn start_nearest(&mut self, count: u64) -> Result<()> {
        match self.step_before(count)? {
            Some(_) => self.start_step(count),
            None => self.start_for(count, Need::State),
        }
    }

    /// Begins to play at a step of the interval that has `count`. The window then has what the step needs.
    pub(super) fn start_step(&mut self, count: u64) -> Result<()> {
        let part = self.part(count);
        let built = self.engine.part(self.ranges[part], &self.cancel)?;
        let i = built.interval(count);
        let engine = Arc::clone(&self.engine);
        let bad = || engine.bad_frame();
        let steps = self.steps_of(&built, i)?;
        if !steps.summary.stepped {
            // The part was made again meanwhile.
            return self.start_for(count, Need::State);
        }
        let step = steps.summary.step(count);
        let content = steps.summary.content(step, None, &mut steps.opened);
        let content = content.ok_or_else(bad)?;
        let state = steps.summary.steps.get(step).and_then(|s| s.state.clone());
        let until = steps.summary.end_of(step).unwrap_or(built.bounds(i).1);
        let state = match state {
            Some(s) => s,
            // The first step begins with the interval's state.
            None => built.frame(&engine, i)?.open().ok_or_else(bad)?.0,
        };
        self.begin(part, until, true, &state, content)
    }

    /// Goes on into the next step of an interval if one ends here. The window gets what that step needs in addition;
    /// marks stay. `false`: no step ends here.
    pub(super) fn cross_step(&mut self, at: Since) -> Result<bool> {
        let here = self.count();
        if !at.step || here != at.until {
            return Ok(false);
        }
        let built = self.engine.part(self.ranges[at.part], &self.cancel)?;
        let i = built.interval(here);
        let (from, to) = built.bounds(i);
        if at.count < from || to <= here {
            return Ok(false);
        }
        let engine = Arc::clone(&self.engine);
        let steps = self.steps_of(&built, i)?;
        let (first, next) = (steps.summary.step(at.count), steps.summary.step(here));
        if steps.summary.steps[next].from != here || steps.summary.steps[first].from != at.count {
            // The part was made again meanwhile.
            return Ok(false);
        }
        let more = steps.summary.content(next, Some(first), &mut steps.opened);
        let more = more.ok_or_else(|| engine.bad_frame())?;
        let until = steps.summary.end_of(next).unwrap_or(to);
        self.machine.add_to_window(&more);
        self.at = Some(Since { until, ..at });
        Ok(true)
    }

    /// Where the interval begins whose step marks count from. `None`: marks count from the interval's beginning, or
    /// from another place.
    pub fn interval_begin(&self) -> Option<u64> {
        let at = self.at.filter(|at| at.step)?;
        let built = self.engine.part_if_built(self.ranges[at.part])?;
        let begin = built.bounds(built.interval(at.count)).0;
        (begin < at.count).then_some(begin)
    }
}
