//! Makes intervals from what a replay leaves.

use super::budget::Budget;
use super::by_page::{Generating, Generations};
use super::coarse::{Change, Differences};
use super::codec::{LEVEL, LINE, bits};
use super::draft::{Draft, Interval};
use super::frame::FrameMaker;
use super::held::Held;
use super::history::History;
use super::maker::Maker;
use super::page_access::PageAccess;
use super::pieces::Packing;
use super::ranges::{Level, PartRange, SPAN};
use super::sidecar::Stream;
use super::spans::{Span, Spans};
use super::steps::{Gathered, Raw};
use super::stored::Scratch;
use super::summary::{FinalLine, words};
use crate::Result;
use crate::scan::Scan;
use hindsight_replay::State;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

/// The size of the whole is predicted only after this many intervals.
const FORESEE: usize = 8;
/// It is also predicted only after this many instructions, or an eighth of all if that is less. The beginning of a
/// program says little about the rest.
const ENOUGH: u64 = FORESEE as u64 * SPAN;
/// The size of one interval of double length, relative to the two that it replaces. An estimate that is too large does
/// less harm than one that is too small. For sqlite 0.82 was measured.
const LONGER: f64 = 0.85;
/// Intervals of the coarse level are at most this many times as long as usual, as long as the level does not take more than its
/// share. Their fine parts take as many times as long to make.
const LONGEST: u64 = 8;

/// The length of intervals, if each takes `its` bytes, and those of `rest` instructions may take `left` bytes together.
/// Where a program touches all of its memory again and again, each takes the same, however long it is. To join them
/// later takes much time and memory.
fn needed(its: u64, left: u64, rest: u64) -> u64 {
    let needed = rest as u128 * its as u128 / left.max(1) as u128;
    u64::try_from(needed).unwrap_or(u64::MAX)
}

/// The greatest length of coarse intervals that are usually `usual` long. `needed` is what they should be if all those to come take
/// as much as the last two, of which the smaller one counts. Of `share` bytes, `left` are left.
///
/// A program may change much in the beginning only. So it does not grow before half of the bytes are gone, and then step by step.
/// Otherwise nothing would be left for the end of a program that goes on like that, and all of it would be one interval.
fn longest(usual: u64, needed: u64, (left, share): (u64, u64)) -> u64 {
    let most = usual.saturating_mul(LONGEST);
    match share.checked_div(left) {
        None => u64::MAX,
        Some(times) if needed > most => most.saturating_mul(1 << times.max(1).ilog2()),
        Some(_) => most,
    }
}

/// What the replay sends.
pub(super) enum Left {
    Marks(Box<Raw>),
    /// Of an interval of the coarse level.
    Change(Box<Change>),
    Differences(Differences),
}

/// Makes intervals from what the replay sends.
pub(super) struct Packer<'a> {
    pub(super) part: Draft,
    /// What pages held when they were last accessed or changed.
    held: Held,
    /// The interval that is being made, if it has no steps.
    frame: FrameMaker,
    summary: Maker,
    history: History,
    /// The differences of the interval of the coarse level that is being made.
    begun: Packing,
    size: u64,
    budget: &'a Budget,
    /// The claim on the budget.
    taken: u64,
    /// How long the intervals to come are.
    spans: &'a Spans,
    span: Span,
    /// Their usual number of instructions.
    usual: u64,
    /// The intervals are as long as their sizes require.
    pub(super) required: bool,
    /// This is the coarse level.
    coarse: bool,
    /// The state when intervals became longer: their number, the instructions done, and the size.
    longer: (usize, u64, u64),
    /// The steps of the present interval, if it is made in steps.
    pub(super) steps: Option<Gathered>,
    /// Takes the sections of intervals, and what is packed before it becomes one.
    stream: Option<&'a mut Stream>,
    scratch: Option<Arc<Scratch>>,
    /// Sorts accesses by page meanwhile. Only for a part that is made in one stretch.
    pub(super) generating: Option<Generating>,
}

impl<'a> Packer<'a> {
    /// A packer for a range. `held` is what pages hold at its beginning, as far as that is known.
    pub(super) fn new(
        range: PartRange,
        budget: &'a Budget,
        spans: &'a Spans,
        held: Held,
    ) -> Packer<'a> {
        Packer {
            part: Draft {
                from: range.from,
                to: range.to,
                intervals: Vec::new(),
                generations: Generations::default(),
            },
            held,
            frame: FrameMaker::default(),
            summary: Maker::default(),
            history: History::default(),
            begun: Packing::default(),
            size: 0,
            budget,
            taken: budget.share(range.to - range.from),
            spans,
            span: spans.last(),
            usual: spans.last().usual,
            required: range.level != Level::Only,
            coarse: range.is_coarse(),
            longer: (0, range.from, 0),
            steps: None,
            stream: None,
            scratch: None,
            generating: None,
        }
    }
}

impl<'a> Packer<'a> {
    /// Sections are written on the way.
    pub(super) fn write_to(&mut self, stream: Option<&'a mut Stream>) {
        self.scratch = stream.as_ref().and_then(|s| s.scratch().map(Arc::new));
        let scratch = || self.scratch.clone();
        let (frame, summary) = (FrameMaker::with(scratch()), Maker::with(scratch()));
        (self.begun, self.frame, self.summary) = (Packing::with(scratch()), frame, summary);
        self.stream = stream;
    }
}

impl Packer<'_> {
    pub(super) fn run(
        &mut self,
        left: &Receiver<Left>,
        used: &SyncSender<Raw>,
        scan: &Scan,
    ) -> Result<()> {
        while let Ok(left) = left.recv() {
            self.take(left, used, scan)?;
        }
        self.finish()
    }

    /// Packs what a replay sent. Its buffer goes to `used`.
    pub(super) fn take(&mut self, left: Left, used: &SyncSender<Raw>, scan: &Scan) -> Result<()> {
        let interval = match left {
            Left::Change(change) => Some(change.pack(self.begun.take())?),
            Left::Differences(some) => {
                some.pack(&mut self.begun)?;
                None
            }
            Left::Marks(mut raw) => {
                let interval = self.pack_marks(&mut raw, scan)?;
                let _ = used.try_send(*raw);
                interval
            }
        };
        let Some(mut interval) = interval else {
            return Ok(());
        };
        if let Some(stream) = &mut self.stream {
            interval.put(stream)?;
            // If a section could not be written, what it was packed into must stay.
            if let Some(scratch) = self.scratch.as_ref().filter(|_| stream.is_whole()) {
                scratch.clear();
            }
        }
        let its = interval.size() as u64;
        self.size += its;
        let done = interval.to;
        if self.required {
            self.span = self.required_span(its, done);
        }
        self.part.intervals.push(interval);
        match self.coarse {
            true => self.say_by_page(done)?,
            false => self.shorten(scan, done)?,
        }
        self.spans.decide(self.span);
        Ok(())
    }

    /// How long intervals are to be behind instruction `done`, if the last one takes `its` bytes.
    fn required_span(&self, its: u64, done: u64) -> Span {
        let (from, to) = (self.part.from, self.part.to);
        let share = self.budget.share(to - from);
        let left = share.saturating_sub(self.size);
        let rest = to.saturating_sub(done);
        let last = self.part.intervals.last().map_or(0, Interval::size) as u64;
        let steady = needed(its.min(last), left, rest);
        let most = match self.coarse {
            true => longest(self.usual, steady, (left, share)),
            false => u64::MAX,
        };
        let needed = needed(its, left, rest);
        Span {
            usual: needed.max(self.usual).min(most),
            least: needed,
            lines: usize::MAX,
        }
    }

    /// Ends the part.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some(generating) = &mut self.generating {
            self.part.generations = generating.finish()?;
        }
        Ok(())
    }

    /// Makes intervals longer, those to come and perhaps those that are there, if the part would become too large.
    fn shorten(&mut self, scan: &Scan, done: u64) -> Result<()> {
        let n = self.part.intervals.len();
        let foreseen = self.foreseen(done);
        let wanted = match foreseen[0] {
            0.0 if done < self.part.to => self.taken,
            all => self.size.max(all as u64),
        };
        let (taken, mine) = self.budget.claim(self.taken, wanted, self.size);
        self.taken = taken;
        let over = |size: f64| n > 1 && size > mine as f64;
        if !over(self.size as f64) && !over(foreseen[0]) {
            return self.say_by_page(done);
        }
        // If longer intervals from here on suffice, those that are made need not be joined.
        if over(self.size as f64) || over(foreseen[1]) {
            let file = (self.stream.as_deref_mut(), self.scratch.as_ref());
            self.part.thin(scan, self.steps.is_some(), file)?;
            // The sections were about the old intervals.
            self.generating = self.generating.as_ref().map(|_| Generating::default());
            self.size = self.part.size() as u64;
        }
        self.span.usual = self.span.usual.saturating_mul(2);
        self.longer = (self.part.intervals.len(), done, self.size);
        Ok(())
    }

    /// Lets another thread sort by page what the intervals made so far accessed.
    fn say_by_page(&mut self, done: u64) -> Result<()> {
        let Some(generating) = &mut self.generating else {
            return Ok(());
        };
        let part = &self.part;
        let share = (done - part.from) as f64 / (part.to - part.from).max(1) as f64;
        let mut histories = part.intervals.iter().map(|i| i.history.clone());
        generating.add(&mut histories, part.intervals.len(), share)
    }

    /// The predicted size of the whole index: first with intervals as they are, then with longer ones from here on. 0:
    /// it is too early to say. With a prediction, few intervals are made that must be joined later.
    fn foreseen(&self, done: u64) -> [f64; 2] {
        let (intervals, from, size) = self.longer;
        let enough = ENOUGH.min((self.part.to - self.part.from) / 8);
        if self.part.intervals.len() < intervals + FORESEE || done - from < enough {
            return [0.0; 2];
        }
        let rate = (self.size - size) as f64 / (done - from).max(1) as f64;
        let rest = (self.part.to - done) as f64 * rate;
        [1.0, LONGER].map(|share| self.size as f64 + rest * share)
    }

    /// Packs an interval or a portion of it, or keeps one of its steps.
    fn pack_marks(&mut self, raw: &mut Raw, scan: &Scan) -> Result<Option<Interval>> {
        let Some(steps) = &mut self.steps else {
            self.pack(raw)?;
            let whole = raw.state.take().map(|s| self.interval(s, raw.to));
            return whole.transpose();
        };
        let Some(state) = raw.state.take() else {
            return Ok(None);
        };
        steps.add(state, raw, scan, self.held.in_memory());
        match raw.last {
            true => steps.finish(raw.to, self.held.in_memory()).map(Some),
            false => Ok(None),
        }
    }

    /// Packs a portion of an interval: for the frame the lines that were read, as they were at the start; the history; the
    /// summary. What it makes does not depend on how many portions there are.
    fn pack(&mut self, raw: &mut Raw) -> Result<()> {
        self.history.reserve(raw.pages.len());
        let (frame, summary, history) = (&mut self.frame, &mut self.summary, &mut self.history);
        let (mut at, mut masks) = (0, raw.pages.iter().map(|p| p.1));
        let pages = raw.pages.iter().map(|p| p.0);
        self.held.each(pages, &mut |page, held| {
            let lines = masks.next().unwrap_or(0);
            let n = lines.count_ones() as usize;
            let (marks, cells) = (&raw.marks[at..at + n], &raw.cells[at..at + n]);
            at += n;
            let mut touched = PageAccess::of(page, lines, marks);
            let mut wanted = 0u64;
            for i in bits(touched.reads) {
                let line = &held.get().as_chunks::<LINE>().0[i];
                if words(line).iter().fold(0, |all, w| all | w) != 0 {
                    wanted |= 1 << i;
                    frame.line(line);
                }
            }
            frame.page(page, wanted, LEVEL)?;
            let rank = |i: usize| (lines & ((1 << i) - 1)).count_ones() as usize;
            let base = Some((wanted, held.get()));
            summary.page(&mut touched, base, |i| FinalLine {
                masks: marks[rank(i)].last,
                bytes: cells[rank(i)],
            });
            summary.relieve(LEVEL)?;
            for (i, now) in bits(lines).zip(cells) {
                // Others may have the page, too. What does not change is not copied.
                if held.get().as_chunks().0[i] != *now {
                    held.get_mut().as_chunks_mut().0[i] = *now;
                }
            }
            history.push(&touched);
            Ok(())
        })?;
        self.held.put(&mut raw.changed)?;
        Ok(())
    }

    /// The interval whose portions were packed. It began with `state`.
    fn interval(&mut self, state: State, to: u64) -> Result<Interval> {
        let next = Maker::with(self.scratch.clone());
        let mut summary = std::mem::replace(&mut self.summary, next);
        let interval = Interval {
            from: state.position,
            to,
            frame: self.frame.finish(&state, LEVEL)?,
            history: std::mem::take(&mut self.history).into(),
            summary: summary.pack(LEVEL)?,
        };
        // The buffer is used again.
        self.summary.bytes = summary.bytes;
        self.summary.bytes.clear();
        Ok(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_as_long_as_the_budget_requires() {
        // Fifty fit.
        assert_eq!(needed(10, 500, 40_000), 800);
        // Only five fit.
        assert_eq!(needed(100, 500, 40_000), 8000);
        // None fits.
        assert!(needed(100, 0, 40_000) >= 40_000);
        assert_eq!(needed(u64::MAX, 1, u64::MAX), u64::MAX);
        assert_eq!(needed(0, 0, 0), 0);
    }

    #[test]
    fn intervals_grow_step_by_step_where_the_level_takes_more_than_its_share() {
        let of = |needed, left| longest(10, needed, (left, 800));
        // Less than half is gone, or what is left suffices.
        assert_eq!([of(1000, 800), of(1000, 401), of(80, 1)], [80; 3]);
        assert_eq!([of(81, 400), of(81, 201), of(81, 200)], [160, 160, 320]);
        assert_eq!(of(1000, 1), 80 << 9);
        assert_eq!(of(0, 0), u64::MAX);
        assert_eq!(longest(u64::MAX, u64::MAX, (1, u64::MAX)), u64::MAX);
    }
}
