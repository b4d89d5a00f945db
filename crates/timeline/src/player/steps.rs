//! Playing from the steps of an interval, which is nearer than from its frame.

use super::Player;
use crate::Result;
use crate::index::Ends;
use std::sync::Arc;

/// An interval of a part, by their numbers, and what its steps are made of.
pub struct Steps {
    of: (u64, usize),
    ends: Arc<Ends>,
    framed: Vec<u8>,
    /// Those of its first steps.
    differences: Vec<u8>,
}

impl Player {
    /// The last step of an interval, but for its first, that begins at `count` or before: its number, and where.
    pub(super) fn step_before(&self, count: u64) -> Result<Option<(usize, u64)>> {
        let place = self.places[self.part(count)];
        let Some(built) = self.inner.part_if_built(place) else {
            return Ok(None);
        };
        if self.inner.step(self.thread).is_none() {
            return Ok(None);
        }
        let ends = built.ends(&self.inner, built.interval(count))?;
        let step = ends.step(count);
        Ok((step > 0).then(|| (step, ends.steps[step].from)))
    }

    /// Begins to play where a step begins, of the interval in which `count` is.
    pub(super) fn start_step(&mut self, count: u64, step: usize) -> Result<()> {
        let part = self.part(count);
        let built = self.inner.part(self.places[part], &self.cancel)?;
        let i = built.interval(count);
        let bad = || self.inner.bad_frame();
        let of = (built.number, i);
        let mut steps = match self.steps.take().filter(|s| s.of == of) {
            Some(s) => s,
            None => {
                let ends = built.ends(&self.inner, i)?;
                Steps {
                    of,
                    framed: ends.framed().ok_or_else(bad)?,
                    differences: Vec::new(),
                    ends,
                }
            }
        };
        let some = &mut steps.differences;
        steps.ends.differences_before(step, some).ok_or_else(bad)?;
        let content = steps.ends.content(step, &steps.framed, &steps.differences);
        let content = content.ok_or_else(bad)?;
        let state = steps.ends.steps.get(step).and_then(|s| s.state.clone());
        let state = state.ok_or_else(bad)?;
        self.steps = Some(steps);
        self.begin(part, built.bounds(i).1, true, &state, content)
    }

    /// Where the interval begins since a step of which marks are; `None`: they are since it began, or since another
    /// place.
    pub fn interval_begin(&self) -> Option<u64> {
        let at = self.at.filter(|at| at.step)?;
        let built = self.inner.part_if_built(self.places[at.part])?;
        Some(built.bounds(built.interval(at.count)).0)
    }
}
