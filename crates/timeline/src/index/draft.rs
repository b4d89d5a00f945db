//! The index of a part in the making.

use super::by_page::{Generations, sections};
use super::codec::{LEVEL, LEVEL_STEPS, LINE, PAGE, bits, put};
use super::frame::{FrameMaker, IndexFrame};
use super::given;
use super::history::History;
use super::maker::Maker;
use super::page_access::PageAccess;
use super::sidecar::Stream;
use super::stored::{Encoded, Scratch, Stored};
use super::summary::{FinalLine, IntervalSummary, covered};
use super::told::Told;
use crate::base::sync::{joined, spawn};
use crate::scan::Scan;
use crate::{Error, Result};
use hindsight_replay::State;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Intervals are joined at the same time until they have so many bytes together, packed.
const MOST_JOINED: usize = 512 << 20;

/// A stretch of a thread between two frames.
#[derive(Clone, Debug)]
pub struct Interval {
    pub from: u64,
    pub to: u64,
    /// Its [`IndexFrame`], compressed.
    pub frame: Stored,
    pub history: Told,
    /// Its [`IntervalSummary`], compressed.
    pub summary: Stored,
}

/// The index of one part of a thread in the making.
#[derive(Clone, Debug)]
pub struct Draft {
    pub from: u64,
    pub to: u64,
    pub intervals: Vec<Interval>,
    /// The first intervals, sorted by page.
    pub generations: Generations,
}

impl Interval {
    /// The sections of the interval in the index, in order.
    pub fn sections(&self) -> impl Iterator<Item = &Stored> {
        [&self.frame, &self.summary].into_iter()
    }

    /// Writes its sections to the file that is to become the index. They need not stay in memory then.
    pub fn put(&mut self, stream: &mut Stream) -> Result<()> {
        [&mut self.frame, &mut self.summary]
            .into_iter()
            .try_for_each(|s| stream.put(s))
    }

    pub fn size(&self) -> usize {
        self.frame.len() + self.summary.len() + self.history.size() + 16
    }

    /// The state at its beginning, and how memory changed in it. What lies in a file is read from there when it is needed.
    pub fn open(&self) -> Result<(State, IntervalSummary)> {
        let damaged = || Error::Unsupported("an interval in memory does not decode".into());
        let frame = IndexFrame {
            position: self.from,
            blob: self.frame.bytes()?,
        };
        let (state, mut framed) = frame.open().ok_or_else(damaged)?;
        drop(frame);
        if let Some((file, at)) = self.frame.place() {
            framed.lines.leave_in(file, at);
        }
        let summary = IntervalSummary::new(&self.summary.bytes()?, framed, self.from);
        let mut summary = summary.ok_or_else(damaged)?;
        if let Some((file, at)) = self.summary.place() {
            summary.leave_in(file, at);
        }
        Ok((state, summary))
    }

    /// This interval and the next one as one.
    ///
    /// - `changes`: memory that something else than the thread's instructions changed in the second, by address and
    ///   length.
    /// - `stepped`: the intervals have steps, and frames with all lines that they access.
    /// - `scratch`: takes what is packed on the way.
    pub fn join(
        &self,
        next: &Interval,
        changes: &[(u64, u64)],
        stepped: bool,
        scratch: Option<&Arc<Scratch>>,
    ) -> Result<Interval> {
        let damaged = || Error::Unsupported("a frame in memory does not decode".into());
        let level = if stepped { LEVEL_STEPS } else { LEVEL };
        let ((state, mine), (behind, others)) = (self.open()?, next.open()?);
        let (had, has) = (self.history.plain()?, next.history.plain()?);
        let (mut frame, mut maker) = (
            FrameMaker::with(scratch.cloned()),
            Maker::with(scratch.cloned()),
        );
        let mut history = History::default();
        // Page by page: all lines of both may be much memory.
        for page in had.pages().chain(has.pages()).collect::<BTreeSet<u32>>() {
            let both = [had, has].map(|history| history.touched(page));
            // The new frame needs each line that the second interval reads. A line that the first read is there
            // already. If the first has only written it, or not touched it, what the second found serves.
            let served = both[0].as_ref().map_or(0, |t| match stepped {
                true => t.any(),
                false => t.reads,
            });
            let mask = mine.framed(page);
            let new = others.framed(page) & !mask & !served;
            let mut base = [0; PAGE];
            for i in bits(mask | new) {
                let from = if mask & (1 << i) != 0 { &mine } else { &others };
                let line = from.first(page, i).ok_or_else(damaged)?;
                base[i * LINE..(i + 1) * LINE].copy_from_slice(&line);
                frame.line(&line);
            }
            frame.page(page, mask | new, level)?;
            let mut words = [[0u8; 2]; 64];
            for t in both.iter().flatten() {
                for (a, b) in words.iter_mut().zip(t.lines()) {
                    *a = [a[0] | b[0], a[1] | b[1]];
                }
            }
            let mut t = PageAccess::new(page, &words);
            let of = |k: usize, summary: &IntervalSummary, i: usize| -> Result<Option<FinalLine>> {
                let touched = both[k].as_ref().filter(|t| t.any() & (1 << i) != 0);
                // Steps keep their contents as they are.
                let line = || match stepped {
                    true => Some([0; LINE]),
                    false => summary.line(page, i),
                };
                let end = touched.map(|t| Some(t.end(i, line()?)));
                end.map(|e| e.ok_or_else(damaged)).transpose()
            };
            let end = |i: usize| -> Result<FinalLine> {
                let (first, last) = (of(0, &mine, i)?, of(1, &others, i)?);
                let wiped = (changes.iter()).fold(0, |m, c| m | covered(page, i, c.0, c.1));
                Ok(match (first, last) {
                    (Some(a), Some(b)) => b.after(&a, wiped),
                    (Some(a), None) => a.wiped(wiped),
                    (None, b) => b.unwrap_or_default(),
                })
            };
            let mut all = [FinalLine::default(); 64];
            for i in bits(t.any()) {
                all[i] = end(i)?;
            }
            match stepped {
                true => bits(t.any()).for_each(|i| t.set_masks(i, all[i].masks)),
                false => {
                    maker.page(&mut t, Some((mask | new, &base)), |i| all[i]);
                    maker.relieve(level)?;
                }
            }
            history.push(&t);
        }
        if stepped {
            maker.stepped = true;
            maker.append(&mine, None).ok_or_else(damaged)?;
            let given = given::between([had, has], [&mine, &others], changes);
            maker.add_to_last(given.ok_or_else(damaged)?);
            maker.append(&others, Some(behind)).ok_or_else(damaged)?;
            maker.thin();
        }
        Ok(Interval {
            from: self.from,
            to: next.to,
            frame: frame.finish(&state, level)?,
            history: history.into(),
            summary: maker.pack(level)?,
        })
    }
}

impl Draft {
    /// Its approximate size in bytes.
    pub fn size(&self) -> usize {
        self.intervals.iter().map(Interval::size).sum()
    }

    /// The part as bytes.
    pub fn encode(&self) -> Result<Encoded> {
        let (mut directory, mut out) = (Vec::new(), Vec::new());
        put(&mut directory, self.to);
        put(&mut directory, self.intervals.len() as u64);
        let mut section = |directory: &mut Vec<u8>, bytes: Stored| {
            put(directory, bytes.len() as u64);
            directory.extend_from_slice(&bytes.sum()?.to_le_bytes());
            out.push(bytes);
            Ok::<_, Error>(())
        };
        for i in &self.intervals {
            put(&mut directory, i.to - i.from);
            i.sections()
                .try_for_each(|s| section(&mut directory, s.clone()))?;
        }
        let said = &self.generations;
        let rest = self.intervals[said.intervals..].iter();
        let rest: Vec<_> = rest.map(|i| &i.history).collect();
        let last = sections(&rest, said.intervals)?;
        put(&mut directory, said.all.len() as u64 + 1);
        for generation in said.all.iter().chain([&last]) {
            put(&mut directory, generation.len() as u64);
            let mut before = 0;
            for (page, bytes) in generation {
                put(&mut directory, (page - before) as u64);
                before = *page;
                section(&mut directory, Stored::Memory(bytes[..].into()))?;
            }
        }
        Ok((directory, out))
    }

    /// Halves the number of frames. Then the file that is to become the index has the new ones.
    pub fn thin(
        &mut self,
        scan: &Scan,
        stepped: bool,
        (stream, scratch): (Option<&mut Stream>, Option<&Arc<Scratch>>),
    ) -> Result<()> {
        // All processors are free for this now.
        let cores = hindsight_guard::processors();
        let mut old = std::mem::take(&mut self.intervals).into_iter().peekable();
        let join = |a: Interval, b: Option<Interval>| match b {
            Some(b) => a.join(&b, &scan.changed(b.from, b.to), stepped, scratch),
            None => Ok(a),
        };
        let mut file = stream.as_ref().map(|stream| stream.another());
        while old.peek().is_some() {
            // Only a few at a time, and fewer large ones: what becomes of all of them together is much memory.
            let (mut few, mut size) = (Vec::new(), 0);
            while few.len() < cores
                && size < MOST_JOINED
                && let Some(a) = old.next()
            {
                let b = old.next();
                size += a.size() + b.as_ref().map_or(0, Interval::size);
                few.push((a, b));
            }
            let new: Vec<Interval> = std::thread::scope(|s| {
                let join = &join;
                let few = few.into_iter();
                let all: Vec<_> = few.map(|(a, b)| spawn(s, move || join(a, b))).collect();
                all.into_iter().map(joined).collect::<Result<_>>()
            })?;
            for mut interval in new {
                if let Some(file) = &mut file {
                    interval.put(file)?;
                }
                self.intervals.push(interval);
            }
        }
        if let (Some(stream), Some(file)) = (stream, file) {
            *stream = file;
        }
        Ok(())
    }
}
