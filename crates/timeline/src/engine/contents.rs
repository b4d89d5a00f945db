//! What memory holds at the borders of coarse intervals. A coarse part says of each interval how memory changed in it.
//! These changes lead from one border to the next one, and back: for each page apart, when somebody needs it.

mod changes;

pub use changes::{Contents, EACH};

use super::Engine;
use crate::base::sync::{joined, spawn};
use crate::index::{self, IndexPart, LINE, PartRange, Start};
use crate::{Error, Result};
use hindsight_replay::{Lines, SharedPage, State};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// At most so many threads find out what pages hold.
const MOST_JOBS: usize = 4;
/// Each of them asks for so many pages at a time whether to go on.
const SOME: usize = 256;

impl Engine {
    /// The state at the beginning of an interval, and what the window then must hold.
    pub fn frame_of(
        self: &Arc<Self>,
        part: &IndexPart,
        interval: usize,
        spare: Vec<u8>,
        progress: &index::Progress,
    ) -> Result<(State, Lines)> {
        self.frame_with(part, interval, spare, true, progress)
    }

    /// The same. `may_wait`: where that is much, it may be all that memory holds, found out when it is touched.
    fn frame_with(
        self: &Arc<Self>,
        part: &IndexPart,
        interval: usize,
        spare: Vec<u8>,
        may_wait: bool,
        progress: &index::Progress,
    ) -> Result<(State, Lines)> {
        let frame = part.frame(self, interval)?;
        if !part.range.is_coarse() {
            return frame.load(spare).ok_or_else(|| self.bad_frame());
        }
        let (state, accessed) = frame.open().ok_or_else(|| self.bad_frame())?;
        if accessed.has_lines() {
            // A program that accesses much in no order touches most of it soon. It costs less as a whole.
            let lines = accessed.content(spare);
            return Ok((state, lines.ok_or_else(|| self.bad_frame())?));
        }
        let all = self.near_border(part, interval..=interval, progress, Lines::clone)?;
        if may_wait && self.is_much(accessed.pages.len()) {
            return Ok((state, all));
        }
        let pages: Vec<u32> = accessed.pages.iter().map(|p| p.0).collect();
        Ok((state, self.some_of(&all, &pages, progress)?))
    }

    /// The state at the beginning of an interval of a coarse part, and all that memory holds there.
    pub fn whole_frame(
        self: &Arc<Self>,
        part: &IndexPart,
        interval: usize,
        progress: &index::Progress,
    ) -> Result<(State, Lines)> {
        let frame = part.frame(self, interval)?;
        let (state, _) = frame.open().ok_or_else(|| self.bad_frame())?;
        let all = self.near_border(part, interval..=interval, progress, Lines::clone)?;
        Ok((state, all))
    }

    /// What a line holds at one of these borders of a coarse part. It must hold the same at all of them.
    pub fn line_at(
        self: &Arc<Self>,
        part: &IndexPart,
        borders: RangeInclusive<usize>,
        page: u32,
        line: usize,
    ) -> Result<[u8; LINE]> {
        let its = self.near_border(part, borders, &|_| true, |all| {
            let its = all.page(page);
            (!all.is_bad()).then_some(its)
        })?;
        let mut out = [0; LINE];
        if let Some(p) = its.ok_or_else(|| self.bad_frame())? {
            out.copy_from_slice(&p[line * LINE..(line + 1) * LINE]);
        }
        Ok(out)
    }

    /// What a replay of a range begins with. `None`: with the key frame of the recording.
    pub(super) fn start(
        self: &Arc<Self>,
        range: PartRange,
        progress: &index::Progress,
    ) -> Result<Option<Start>> {
        let index::Level::Fine { of } = range.level else {
            return Ok(None);
        };
        if of == range.from {
            return Ok(None);
        }
        let all = self.part_ranges_of(range.thread);
        let coarse = all.iter().find(|p| p.from == of);
        let coarse = *coarse.ok_or(Error::NoThread(range.thread))?;
        let coarse = match self.part_if_built(coarse) {
            Some(c) => c,
            None => self.build(coarse, progress)?,
        };
        let i = coarse.interval(range.from);
        if coarse.bounds(i) != (range.from, range.to) {
            return Err(Error::Index {
                path: self.sidecar.path.display().to_string(),
                what: "its coarse level was made anew while it was in use; ask again".into(),
            });
        }
        // Its replay touches all of it.
        let (state, content) = self.frame_with(&coarse, i, Vec::new(), false, progress)?;
        Ok(Some(Start { state, content }))
    }

    /// These pages of all that memory holds, found out by several threads.
    fn some_of(&self, all: &Lines, wanted: &[u32], progress: &index::Progress) -> Result<Lines> {
        let jobs = self.jobs.clamp(1, MOST_JOBS);
        let each = wanted.len().div_ceil(jobs).max(SOME);
        let work = |pages: &[u32]| -> Result<Vec<(u32, Option<SharedPage>)>> {
            let mut mine = Vec::with_capacity(pages.len());
            for some in pages.chunks(SOME) {
                if !progress(0) {
                    return Err(Error::Cancelled);
                }
                mine.extend(some.iter().map(|page| (*page, all.page(*page))));
            }
            Ok(mine)
        };
        let parts = std::thread::scope(|s| {
            let (first, rest) = wanted.split_at(each.min(wanted.len()));
            let others: Vec<_> = rest
                .chunks(each)
                .map(|pages| spawn(s, move || work(pages)))
                .collect();
            let mine = work(first);
            let others = others.into_iter().map(joined);
            std::iter::once(mine)
                .chain(others)
                .collect::<Result<Vec<_>>>()
        })?;
        if all.is_bad() {
            return Err(self.bad_frame());
        }
        Ok(Lines::shared(parts.into_iter().flatten()).unwrap_or_default())
    }
}
