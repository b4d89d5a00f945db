//! What a thread left of a byte in an interval.

use super::past;
use crate::Result;
use crate::engine::Engine;
use crate::index::{IndexPart, IntervalSummary, LINE};
use hindsight_isa::observe::MARK;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// A stretch of a thread: instructions `.0 .. .1`.
pub type InstructionRange = (u64, u64);

/// What an interval of a thread says of a line, up to where the thread is.
pub struct LineView {
    pub part: Arc<IndexPart>,
    pub summary: Arc<IntervalSummary>,
    pub page: u32,
    pub line: usize,
    /// The steps that may have accessed the line: their numbers, beginnings and ends.
    pub steps: Vec<(usize, InstructionRange)>,
    /// For steps that were asked about: the bytes that they only read, and those that they wrote.
    accessed: RefCell<HashMap<usize, [u64; 2]>>,
    /// How the line was accessed last, if the interval is over.
    pub masks: Option<[u64; 2]>,
    /// The content of the line. If the interval is not over, it is that before the thread's present step, `here`.
    pub holds: OnceCell<[u8; LINE]>,
    pub here: usize,
    /// Where the present step begins, if it may have accessed the line.
    pub partial: Option<u64>,
    pub from: u64,
    pub to: u64,
    /// What something else may have changed meanwhile: address and length.
    pub changed: Vec<(u64, u64)>,
}

/// What a thread left of a byte in an interval.
pub struct Left {
    /// The index of the thread in the list.
    pub k: usize,
    /// Where the interval begins. `to` is where it ends, or where the thread is.
    pub from: u64,
    pub to: u64,
    /// It accessed the byte in this stretch. It did not do so later, except perhaps in its present step.
    pub sure: Option<InstructionRange>,
    pub value: u8,
    pub write: bool,
    /// It may have written an unknown value there. Playing the stretch shows that.
    pub unseen: bool,
    /// It accesses the byte in its present step, perhaps only after the present instant. The step was not played.
    pub partial: bool,
    /// It writes to the byte in that step.
    pub writes_on: bool,
}

impl Left {
    /// A certain access in a stretch, with none after it.
    pub fn known(k: usize, stretch: InstructionRange, value: u8, write: bool) -> Left {
        Left {
            k,
            from: stretch.0,
            to: stretch.1,
            sure: Some(stretch),
            value,
            write,
            unseen: false,
            partial: false,
            writes_on: false,
        }
    }

    /// One past the last instruction that may have accessed the byte.
    pub fn until(&self) -> u64 {
        match self.partial {
            true => self.to,
            false => self.sure.map_or(0, |s| s.1),
        }
    }

    /// Whether playing it would tell more.
    pub fn is_open(&self) -> bool {
        self.partial || self.unseen
    }
}

impl LineView {
    /// `None`: the interval has no steps.
    pub fn new(
        engine: &Arc<Engine>,
        touch: &past::AccessingInterval,
        page: u32,
        line: usize,
    ) -> Result<Option<LineView>> {
        let (part, interval) = touch.interval();
        if !engine.has_steps(part.thread) {
            return Ok(None);
        }
        let summary = part.summary(engine, interval)?;
        if !summary.stepped {
            return Ok(None);
        }
        let end = touch.end();
        let touches = |n: usize| summary.steps[n].touches(page, 1 << line, true);
        let cut = touch.is_cut();
        let here = if cut {
            summary.step(touch.to)
        } else {
            summary.steps.len()
        };
        let whole = |n: &usize| {
            let from = summary.steps[*n].from;
            (*n, (from, summary.end_of(*n).unwrap_or(end)))
        };
        let partial = (cut && summary.steps[here].from < touch.to && touches(here))
            .then(|| summary.steps[here].from);
        let masks = match cut {
            true => None,
            false => Some(part.masks(engine, interval, page, line)?),
        };
        let steps: Vec<_> = (0..here)
            .filter(|n| touches(*n))
            .map(|n| whole(&n))
            .collect();
        Ok(Some(LineView {
            accessed: RefCell::default(),
            steps,
            page,
            line,
            masks,
            holds: OnceCell::new(),
            here,
            partial,
            from: touch.from,
            to: touch.to,
            changed: match cut {
                true => engine.scan(part.thread)?.changed(touch.from, touch.to + 1),
                false => Vec::new(),
            },
            part: Arc::clone(part),
            summary,
        }))
    }

    pub fn holds(&self, engine: &Arc<Engine>) -> Result<&[u8; LINE]> {
        if let Some(h) = self.holds.get() {
            return Ok(h);
        }
        let held = self.summary.line_at(self.here, self.page, self.line);
        let held = held.ok_or_else(|| engine.bad_frame())?;
        Ok(self.holds.get_or_init(|| held))
    }

    /// One past the last instruction that may have accessed the line.
    pub fn until(&self) -> u64 {
        match self.partial {
            Some(_) => self.to,
            None => self.steps.last().map_or(self.from, |s| s.1.1),
        }
    }

    /// The bytes of the line that a step only read, and those that it wrote.
    pub fn accessed(&self, engine: &Arc<Engine>, step: usize) -> Result<[u64; 2]> {
        if let Some(a) = self.accessed.borrow().get(&step) {
            return Ok(*a);
        }
        let its = self.summary.accessed(step, self.page, self.line);
        let its = its.ok_or_else(|| engine.bad_frame())?;
        self.accessed.borrow_mut().insert(step, its);
        Ok(its)
    }
}

impl Left {
    /// Takes over what the marks of a played stretch say. `None`: the value is not known. `Some(false)`: nothing is
    /// left of this entry.
    pub fn take(
        &mut self,
        (since, to): InstructionRange,
        [read, written]: [u8; 2],
        cell: u8,
    ) -> Option<bool> {
        if !self.is_open() || self.until() != to || to <= self.from {
            return Some(true);
        }
        let marked = read == MARK || written == MARK;
        if !marked && (read, written) != (0, 0) {
            return None;
        }
        if marked && since < self.from {
            // A player that goes on from before the interval may have made the mark there.
            return None;
        }
        let partial = std::mem::take(&mut self.partial);
        self.writes_on = false;
        if marked {
            if !partial && self.value != cell {
                return None;
            }
            (self.value, self.write) = (cell, written == MARK);
            (self.sure, self.unseen) = (Some((since.max(self.from), to)), false);
            return Some(true);
        }
        match self.sure {
            // The played stretch is that of the access.
            Some(sure) if !partial || since <= sure.0 => None,
            sure => Some(sure.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_played_says_more_of_what_is_open() {
        // The thread is in a step that may have accessed the byte. It accessed it before, too.
        let left = || Left {
            partial: true,
            to: 250,
            ..Left::known(0, (100, 200), 7, true)
        };
        let mut l = left();
        assert_eq!(l.take((200, 250), [MARK, 0], 8), Some(true));
        assert_eq!((l.sure, l.value, l.write), (Some((200, 250)), 8, false));
        let mut l = left();
        assert_eq!(l.take((200, 250), [0, 0], 8), Some(true));
        assert_eq!((l.sure, l.value, l.is_open()), (Some((100, 200)), 7, false));
        let mut l = left();
        assert_eq!(l.take((100, 250), [0, 0], 8), None, "it was accessed there");
        let mut l = left();
        l.sure = None;
        assert_eq!(l.take((200, 250), [0, 0], 8), Some(false));
        // Another stretch was played, so nothing follows.
        let mut l = left();
        assert_eq!(l.take((100, 200), [0, 0], 8), Some(true));
        assert!(l.is_open());
        // It may have written an unknown value.
        let unseen = || Left {
            unseen: true,
            ..Left::known(0, (100, 200), 7, true)
        };
        let mut l = unseen();
        assert_eq!(l.take((100, 200), [0, MARK], 7), Some(true));
        assert!(!l.is_open());
        for marks in [[0, 0], [0, 1]] {
            assert_eq!(unseen().take((100, 200), marks, 7), None, "{marks:?}");
        }
        assert_eq!(unseen().take((100, 200), [0, MARK], 8), None);
        // Marks from before the interval say nothing of it.
        assert_eq!(unseen().take((50, 200), [0, MARK], 7), None);
    }
}
