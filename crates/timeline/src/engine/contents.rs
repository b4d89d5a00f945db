//! What memory holds at the borders of coarse intervals. A coarse part says of each interval how memory changed in it.
//! These changes lead from one border to the next one, and back.

use super::Engine;
use crate::base::sync::{joined, lock};
use crate::index::{self, IndexPart, IntervalSummary, LINE, Opened, PAGE, PartRange, Start};
use crate::{Error, Result, ThreadId};
use hindsight_replay::{Lines, SharedPage, State};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;

/// Pages of the window, by number.
type Pages = BTreeMap<u32, SharedPage>;

/// What memory holds at a border.
#[derive(Clone)]
pub struct AtBorder {
    /// The part: its thread, and where its intervals begin.
    thread: ThreadId,
    borders: Vec<u64>,
    /// The number of the interval that begins there.
    border: usize,
    pages: Pages,
}

/// Several borders are remembered, as long as all but the largest have at most `MOST` bytes together and are at most `MANY`.
/// Several players, each at another place, then do not take the content from each other.
const MOST: usize = 256 << 20;
const MANY: usize = 16;

/// A border is near if only so many intervals lie between. All of memory is then led there.
const NEAR: usize = 2;
/// At most so many threads unpack changes.
const MOST_JOBS: usize = 4;

impl AtBorder {
    fn is_of(&self, part: &IndexPart) -> bool {
        self.thread == part.thread && self.borders == part.borders
    }

    fn size(&self) -> usize {
        PAGE * self.pages.len()
    }
}

impl Engine {
    /// The state at the beginning of an interval, and what the window then must hold.
    pub fn frame_of(
        self: &Arc<Self>,
        part: &IndexPart,
        interval: usize,
        spare: Vec<u8>,
        progress: &index::Progress,
    ) -> Result<(State, Lines)> {
        let frame = part.frame(self, interval)?;
        if part.range.is_coarse() {
            let (state, accessed) = frame.open().ok_or_else(|| self.bad_frame())?;
            if accessed.has_lines() {
                let lines = accessed.content(spare).ok_or_else(|| self.bad_frame())?;
                return Ok((state, lines));
            }
            drop(spare);
            let accessed: Vec<u32> = accessed.pages.iter().map(|p| p.0).collect();
            let lines = |pages: &Pages| lines_of(pages, accessed.iter().copied());
            let content = match self.some_at_border(part, interval, &accessed, progress)? {
                Some(some) => lines(&some),
                None => self.at_border(part, interval..=interval, lines)?,
            };
            return Ok((state, content));
        }
        frame.load(spare).ok_or_else(|| self.bad_frame())
    }

    /// The state at the beginning of an interval of a coarse part, and all that memory holds there.
    pub fn whole_frame(
        self: &Arc<Self>,
        part: &IndexPart,
        interval: usize,
    ) -> Result<(State, Lines)> {
        let frame = part.frame(self, interval)?;
        let (state, _) = frame.open().ok_or_else(|| self.bad_frame())?;
        let content = |pages: &Pages| lines_of(pages, pages.keys().copied());
        Ok((state, self.at_border(part, interval..=interval, content)?))
    }

    /// What a line holds at one of these borders of a coarse part. It must hold the same at all of them.
    pub fn line_at(
        self: &Arc<Self>,
        part: &IndexPart,
        borders: RangeInclusive<usize>,
        page: u32,
        line: usize,
    ) -> Result<[u8; LINE]> {
        self.at_border(part, borders, |pages| {
            let mut out = [0; LINE];
            if let Some(p) = pages.get(&page) {
                out.copy_from_slice(&p[line * LINE..(line + 1) * LINE]);
            }
            out
        })
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
        let (state, content) = self.frame_of(&coarse, i, Vec::new(), progress)?;
        Ok(Some(Start { state, content }))
    }

    /// What these pages hold at a border that is far from all borders whose content is held. Of the changes on the way only theirs
    /// are unpacked, by several threads: in which order changes are made does not matter. `None`: a border is near.
    fn some_at_border(
        self: &Arc<Self>,
        part: &IndexPart,
        border: usize,
        wanted: &[u32],
        progress: &index::Progress,
    ) -> Result<Option<Pages>> {
        let mut from = 0;
        let mut some: Option<Pages> = None;
        {
            let held = lock(&self.at_border);
            let mine = held.iter().filter(|h| h.is_of(part));
            let far = |h: &AtBorder| h.border.abs_diff(border);
            if let Some(h) = mine.min_by_key(|h| far(h))
                && far(h) <= border
            {
                let its = |page: &u32| Some((*page, h.pages.get(page)?.clone()));
                from = h.border;
                some = Some(wanted.iter().filter_map(its).collect());
            }
        }
        if from.abs_diff(border) <= NEAR {
            return Ok(None);
        }
        let mut some = match some {
            Some(s) => s,
            None => {
                let mut all = self.begins_with(part.range)?;
                let its = |page: &u32| Some((*page, all.remove(page)?));
                wanted.iter().filter_map(its).collect()
            }
        };
        let (next, end) = (AtomicUsize::new(from.min(border)), from.max(border));
        let work = || -> Result<Pages> {
            let mut mine = Pages::new();
            let mut opened = Opened::default();
            loop {
                let i = next.fetch_add(1, Relaxed);
                if i >= end {
                    return Ok(mine);
                }
                if !progress(0) {
                    return Err(Error::Cancelled);
                }
                let change = part.change(self, i)?;
                opened.clear();
                let changed = change.toggle_some(wanted, &mut opened, &mut mine);
                changed.ok_or_else(|| self.bad_frame())?;
            }
        };
        let jobs = self.jobs.clamp(1, MOST_JOBS).min(end - from.min(border));
        let all = std::thread::scope(|s| {
            let others: Vec<_> = (1..jobs).map(|_| s.spawn(work)).collect();
            let mine = work();
            let others = others.into_iter().map(joined);
            std::iter::once(mine)
                .chain(others)
                .collect::<Result<Vec<Pages>>>()
        })?;
        for (page, differs) in all.into_iter().flatten() {
            let page = some.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            let page = Arc::make_mut(page).iter_mut();
            page.zip(differs.iter()).for_each(|(b, d)| *b ^= d);
        }
        Ok(Some(some))
    }

    /// Asks about memory at the one of these borders that is the nearest to the last question.
    fn at_border<T>(
        self: &Arc<Self>,
        part: &IndexPart,
        borders: RangeInclusive<usize>,
        ask: impl FnOnce(&Pages) -> T,
    ) -> Result<T> {
        let mut held = lock(&self.at_border);
        let beside = |all: &[AtBorder], one| {
            let sizes = || all.iter().map(AtBorder::size).chain([one]);
            sizes().sum::<usize>() - sizes().max().unwrap_or(0)
        };
        let target = |h: &AtBorder| h.border.clamp(*borders.start(), *borders.end());
        let far = |h: &AtBorder| target(h).abs_diff(h.border);
        let nearest = (0..held.len()).filter(|i| held[*i].is_of(part));
        let mut now = match nearest.min_by_key(|i| far(&held[*i])) {
            // The one used last is the last one.
            Some(i)
                if far(&held[i]) > 1
                    && held.len() < MANY
                    && beside(&held, held[i].size()) <= MOST =>
            {
                held[i].clone()
            }
            Some(i) if far(&held[i]) <= *borders.start() => held.remove(i),
            _ => {
                // It may become as large as they are. At the part's beginning it does not.
                let all: usize = held.iter().map(AtBorder::size).sum();
                if *borders.start() > 0 && all > MOST {
                    held.clear();
                }
                AtBorder {
                    thread: part.thread,
                    borders: part.borders.clone(),
                    border: 0,
                    pages: self.begins_with(part.range)?,
                }
            }
        };
        let to = target(&now);
        self.lead(part, &mut now, to)?;
        let answer = ask(&now.pages);
        held.push(now);
        while held.len() > MANY || beside(&held, 0) > MOST {
            held.remove(0);
        }
        Ok(answer)
    }

    /// Leads to another border. One thread unpacks the changes, the other one makes them.
    fn lead(self: &Arc<Self>, part: &IndexPart, now: &mut AtBorder, to: usize) -> Result<()> {
        let back = to < now.border;
        let mut on_the_way: Vec<usize> = (now.border.min(to)..now.border.max(to)).collect();
        if back {
            on_the_way.reverse();
        }
        let unpack = |interval: usize| -> Result<_> {
            let change = part.change(self, interval)?;
            let differences = change.differences().ok_or_else(|| self.bad_frame())?;
            Ok((change, differences))
        };
        let mut make = |interval: usize, (change, differences): (IntervalSummary, Vec<u8>)| {
            let changed = change.toggle(&differences, &mut now.pages);
            changed.ok_or_else(|| self.bad_frame())?;
            now.border = interval + !back as usize;
            Ok(())
        };
        match on_the_way[..] {
            [] => return Ok(()),
            [one] => return make(one, unpack(one)?),
            _ => {}
        }
        std::thread::scope(|s| {
            let (send, receive) = sync_channel(1);
            s.spawn(move || {
                for i in on_the_way {
                    // When the other thread fails, nobody receives any more.
                    if send.send((i, unpack(i))).is_err() {
                        break;
                    }
                }
            });
            receive.into_iter().try_for_each(|(i, u)| make(i, u?))
        })
    }

    /// What changes in a part are relative to.
    fn begins_with(&self, range: PartRange) -> Result<Pages> {
        let mut pages = Pages::new();
        if self.scan(range.thread)?.is_based(range.from) {
            let start = index::start_of(&self.recording, range)?;
            let mut put = |page, its| {
                pages.insert(page, its);
            };
            start.content.each_shared(&mut put);
        }
        Ok(pages)
    }
}

/// These pages. Those that are not held are zero.
fn lines_of(pages: &Pages, accessed: impl Iterator<Item = u32>) -> Lines {
    Lines::shared(accessed.map(|page| (page, pages.get(&page).cloned()))).unwrap_or_default()
}
