//! What a thread left of a byte in an interval.

use crate::Result;
use crate::index::{Ends, LINE, Part};
use crate::past;
use crate::timeline::Inner;
use hindsight_isa::observe::MARK;
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

/// A stretch of a thread.
pub type Stretch = (u64, u64);

/// What is said of a line by an interval of a thread, up to where it is.
pub struct View {
    pub part: Arc<Part>,
    pub ends: Arc<Ends>,
    pub page: u32,
    pub line: usize,
    /// The steps that may have accessed it, by their numbers, and where they begin and end.
    pub steps: Vec<(usize, Stretch)>,
    /// Words that it wrote.
    pub writes: u8,
    /// Which bytes they wrote, as far as it was asked.
    pub wrote: RefCell<Vec<Option<u64>>>,
    /// How it was accessed last, if the interval was over.
    pub masks: Option<[u64; 2]>,
    /// What it holds: before the step in which the thread is, by its number, unless the interval was over.
    pub holds: OnceCell<[u8; LINE]>,
    pub here: usize,
    /// Where that step begins, if it may have accessed the line.
    pub partial: Option<u64>,
    pub from: u64,
    pub to: u64,
    /// What something else may have changed meanwhile, by address and length.
    pub changed: Vec<(u64, u64)>,
}

/// What a thread left of a byte in an interval.
pub struct Left {
    /// The thread, by its number in the list.
    pub k: usize,
    /// Where the interval begins, and where it ends or the thread is.
    pub from: u64,
    pub to: u64,
    /// The stretches in which it may have accessed it, ascending.
    pub steps: Vec<Stretch>,
    /// It did so in this one for sure.
    pub sure: Option<Stretch>,
    pub value: u8,
    pub write: bool,
    /// What it wrote in the last one in which it did may be unknown, which is only seen when that is played.
    pub unseen: Option<Stretch>,
    /// The step in which the thread is has not been played.
    pub partial: bool,
    /// It writes to it in that step, perhaps only later.
    pub writes_on: bool,
    /// The last of the steps was played.
    pub played: bool,
}

impl Left {
    /// What was accessed for sure in a stretch, and nothing behind it.
    pub fn known(k: usize, stretch: Stretch, value: u8, write: bool) -> Left {
        Left {
            k,
            from: stretch.0,
            to: stretch.1,
            steps: vec![stretch],
            sure: Some(stretch),
            value,
            write,
            unseen: None,
            partial: false,
            writes_on: false,
            played: true,
        }
    }

    /// Behind the last instruction that may have accessed it.
    pub fn until(&self) -> u64 {
        match self.partial {
            true => self.to,
            false => self.steps.last().map_or(0, |s| s.1),
        }
    }
}

impl View {
    /// `None`: the interval has no steps.
    pub fn new(
        inner: &Arc<Inner>,
        touch: &past::Touch,
        page: u32,
        line: usize,
    ) -> Result<Option<View>> {
        let (part, interval) = touch.interval();
        let ends = part.ends(inner, interval)?;
        if !ends.stepped {
            return Ok(None);
        }
        let end = touch.end();
        let touches = |n: usize| ends.steps[n].touches(page, 1 << line, true);
        let cut = touch.is_cut();
        let here = if cut {
            ends.step(touch.to)
        } else {
            ends.steps.len()
        };
        let whole = |n: &usize| {
            let from = ends.steps[*n].from;
            (*n, (from, ends.end_of(*n).unwrap_or(end)))
        };
        let partial = (cut && ends.steps[here].from < touch.to && touches(here))
            .then(|| ends.steps[here].from);
        let masks = match cut {
            true => None,
            false => Some(part.masks(inner, interval, page, line)?),
        };
        let past = part.past(inner, page)?;
        let past = past.as_ref().and_then(|p| {
            let i = p.binary_search_by_key(&(interval as u32), |e| e.0).ok()?;
            Some(&p[i].1)
        });
        let steps: Vec<_> = (0..here)
            .filter(|n| touches(*n))
            .map(|n| whole(&n))
            .collect();
        Ok(Some(View {
            writes: past.map_or(0, |t| t.line(line)[1]),
            wrote: RefCell::new(vec![None; steps.len()]),
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
                true => inner.scan(part.thread)?.changed(touch.from, touch.to + 1),
                false => Vec::new(),
            },
            part: Arc::clone(part),
            ends,
        }))
    }

    pub fn holds(&self, inner: &Arc<Inner>) -> Result<&[u8; LINE]> {
        if let Some(h) = self.holds.get() {
            return Ok(h);
        }
        let held = self.ends.line_at(self.here, self.page, self.line);
        let held = held.ok_or_else(|| inner.bad_frame())?;
        Ok(self.holds.get_or_init(|| held))
    }

    /// Behind the last instruction that may have accessed it.
    pub fn until(&self) -> u64 {
        match self.partial {
            Some(_) => self.to,
            None => self.steps.last().map_or(self.from, |s| s.1.1),
        }
    }

    /// The bytes that the step in which the thread is writes.
    pub fn writes_on(&self, inner: &Arc<Inner>) -> Result<u64> {
        let w = self.ends.written(self.here, self.page, self.line);
        w.ok_or_else(|| inner.bad_frame())
    }

    /// The bytes that one of the steps wrote.
    pub fn wrote(&self, inner: &Arc<Inner>, n: usize) -> Result<u64> {
        if let Some(w) = self.wrote.borrow()[n] {
            return Ok(w);
        }
        let w = self.ends.written(self.steps[n].0, self.page, self.line);
        let w = w.ok_or_else(|| inner.bad_frame())?;
        self.wrote.borrow_mut()[n] = Some(w);
        Ok(w)
    }
}

impl Left {
    /// Takes over what marks since one place say at another. `None`: what is held there is not known; `false`: nothing is left
    /// of it.
    pub fn take(
        &mut self,
        (since, to): Stretch,
        [read, written]: [u8; 2],
        cell: u8,
    ) -> Option<bool> {
        let seen = self.unseen.filter(|u| u.1 == to);
        if self.until() != to && seen.is_none() {
            return Some(true);
        }
        if to <= self.from {
            return Some(true);
        }
        let marked = read == MARK || written == MARK;
        if !marked && (read, written) != (0, 0) {
            return None;
        }
        if marked && since < self.from {
            // One that plays on from before the interval may have marked it there.
            return None;
        }
        if let (Some(_), false) = (seen, self.until() == to) {
            // Only whether what it wrote is known.
            self.unseen = None;
            return marked.then_some(true);
        }
        if self.partial {
            (self.partial, self.writes_on) = (false, false);
            if marked {
                self.value = cell;
            }
        } else if marked && self.value != cell {
            return None;
        }
        if !marked {
            if seen.is_some() {
                return None;
            }
            self.steps.retain(|s| s.0 < since);
            let until = self.until();
            if let Some(sure) = &mut self.sure {
                sure.1 = sure.1.min(until);
                if sure.0 >= sure.1 {
                    return None;
                }
            }
            return Some(!self.steps.is_empty());
        }
        let stretch = (since.max(self.from), to);
        self.steps = vec![stretch];
        (self.sure, self.unseen, self.played) = (Some(stretch), None, true);
        self.write = written == MARK;
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_from_before_the_interval_say_nothing_of_it() {
        let left = || Left {
            steps: vec![(100, 150), (150, 200)],
            sure: None,
            played: false,
            ..Left::known(0, (100, 200), 7, true)
        };
        let mut l = left();
        assert_eq!(l.take((50, 200), [0, MARK], 7), None);
        let mut l2 = left();
        assert_eq!(l2.take((150, 200), [0, MARK], 7), Some(true));
        assert_eq!((l2.sure, l2.played), (Some((150, 200)), true));
        // That it was not accessed since then is known all the more.
        assert_eq!(l.take((50, 200), [0, 0], 7), Some(false));
        assert_eq!(l.steps, []);
        let mut l3 = left();
        assert_eq!(l3.take((150, 200), [0, 0], 7), Some(true));
        assert_eq!(l3.steps, [(100, 150)]);
    }
}
