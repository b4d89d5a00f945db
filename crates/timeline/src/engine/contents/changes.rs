//! Finds out what pages hold at a border, and remembers it for borders near by.

use crate::base::sync::lock;
use crate::engine::Engine;
use crate::index::{self, Differences, IndexPart, PAGE};
use crate::{Error, Result};
use hindsight_replay::{Lines, MadePages, SharedPage};
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// A page that has nothing.
const NONE: [u8; PAGE] = [0; PAGE];
/// Several borders are remembered, as long as all but the largest have at most `MOST` bytes together and are at most `MANY`.
/// Several players, each at another place, then do not take the content from each other.
const MOST: usize = 256 << 20;
const MANY: usize = 16;
/// So many neighbouring pages have one list of the intervals that change one of them.
const NEIGHBOURS: u32 = 64;
/// Bytes that a page takes for which nobody has asked, about.
pub const EACH: usize = 40;

/// What is known of borders.
#[derive(Default)]
pub struct Contents(Vec<AtBorder>);

/// What memory holds at a border, as far as somebody has asked for it.
struct AtBorder {
    changes: Arc<Changes>,
    /// The number of the interval that begins there.
    border: usize,
    pages: Lines,
}

/// Which intervals change a page. Most intervals of a long recording change few pages, so it would take long to ask each.
#[derive(Default)]
struct Changing(RwLock<BTreeMap<u32, Vec<usize>>>);

impl Changing {
    /// Notes that an interval changes pages. It must be behind those that were noted before.
    fn add(&self, interval: usize, pages: impl Iterator<Item = u32>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for page in pages {
            let its = all.entry(page / NEIGHBOURS).or_default();
            if its.last() != Some(&interval) {
                its.push(interval);
            }
        }
    }

    /// Those of these intervals, ascending, that may change a page.
    fn among(&self, intervals: Range<usize>, page: u32) -> Vec<usize> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let its = all.get(&(page / NEIGHBOURS)).map_or(&[][..], Vec::as_slice);
        let first = its.partition_point(|i| *i < intervals.start);
        let its = its[first..].iter().copied();
        its.take_while(|i| *i < intervals.end).collect()
    }
}

/// How memory changes in a coarse part.
struct Changes {
    /// The number of the part's body: if the body is made again, its changes may differ.
    body: u64,
    /// What memory holds at its beginning.
    begin: Lines,
    /// How each interval changes it. Those before a border that was asked for are there.
    intervals: Vec<OnceLock<Differences>>,
    /// Which of these change a page.
    changing: Changing,
    /// What has been found out, by the number of the border.
    known: Mutex<Vec<(usize, MadePages)>>,
}

impl Engine {
    /// Asks about all that memory holds at the one of these borders of a coarse part for which the least has to be done.
    pub(super) fn near_border<T>(
        self: &Arc<Self>,
        part: &IndexPart,
        borders: RangeInclusive<usize>,
        progress: &index::Progress,
        ask: impl FnOnce(&Lines) -> T,
    ) -> Result<T> {
        let mut held = lock(&self.at_border);
        held.0.retain(|h| !h.pages.is_bad());
        let mine = |h: &AtBorder| h.changes.is_of(part);
        let target = |h: &AtBorder| h.border.clamp(*borders.start(), *borders.end());
        let mut nearest: Option<usize> = None;
        for (i, h) in held.0.iter().enumerate().filter(|(_, h)| mine(h)) {
            let far = |h: &AtBorder| target(h).abs_diff(h.border);
            if nearest.is_none_or(|n| far(h) < far(&held.0[n])) {
                nearest = Some(i);
            }
        }
        let now = match nearest {
            Some(i) if borders.contains(&held.0[i].border) => held.0.remove(i),
            Some(i) => {
                let (changes, border) = (Arc::clone(&held.0[i].changes), target(&held.0[i]));
                changes.at(self, part, border, progress)?
            }
            None => {
                let changes = Arc::new(Changes::of(self, part)?);
                changes.at(self, part, *borders.start(), progress)?
            }
        };
        let answer = ask(&now.pages);
        // The one used last is the last one.
        held.0.push(now);
        held.shrink();
        Ok(answer)
    }
}

impl Contents {
    /// Forgets all. Players keep what they have.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets what was used longest ago, as long as there is too much.
    fn shrink(&mut self) {
        while self.0.len() > MANY || self.beside() > MOST {
            self.0.remove(0);
        }
    }

    /// The bytes of all but the largest. The lists of changes of the part used last do not count.
    fn beside(&self) -> usize {
        let last = self.0.last().map(|h| Arc::as_ptr(&h.changes));
        let size = |h: &AtBorder| {
            let other = last.is_none_or(|l| l != Arc::as_ptr(&h.changes));
            let lists = if other { h.changes.size() } else { 0 };
            h.pages.made() * PAGE + h.pages.numbers().count() * EACH + lists
        };
        let sizes = || self.0.iter().map(size);
        sizes().sum::<usize>() - sizes().max().unwrap_or(0)
    }
}

impl Changes {
    fn of(engine: &Arc<Engine>, part: &IndexPart) -> Result<Changes> {
        let based = engine.scan(part.thread)?.is_based(part.range.from);
        let begin = match based {
            true => index::start_of(&engine.recording, part.range)?
                .content
                .in_pages(),
            false => Lines::default(),
        };
        Ok(Changes {
            body: lock(&part.body).number,
            begin,
            intervals: part.borders.iter().map(|_| OnceLock::new()).collect(),
            changing: Changing::default(),
            known: Mutex::default(),
        })
    }

    fn is_of(&self, part: &IndexPart) -> bool {
        self.body == lock(&part.body).number
    }

    /// The bytes that its lists take, about.
    fn size(&self) -> usize {
        self.intervals
            .iter()
            .filter_map(OnceLock::get)
            .map(Differences::size)
            .sum()
    }

    /// What memory holds at a border. Only one thread may ask at a time.
    fn at(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        part: &IndexPart,
        border: usize,
        progress: &index::Progress,
    ) -> Result<AtBorder> {
        let mut all: Vec<u32> = self.begin.numbers().collect();
        let mut sorted = all.len();
        for (i, its) in self.intervals[..border].iter().enumerate() {
            let its = match its.get() {
                Some(its) => its,
                None if !progress(0) => return Err(Error::Cancelled),
                None => {
                    let new = part.differences(engine, i)?;
                    self.changing.add(i, new.pages());
                    its.get_or_init(|| new)
                }
            };
            all.extend(its.pages());
            if all.len() > 2 * sorted + PAGE {
                all.sort_unstable();
                all.dedup();
                sorted = all.len();
            }
        }
        all.sort_unstable();
        all.dedup();
        let changes = Arc::clone(self);
        let page = move |page| changes.page(border, page);
        let pages = Lines::later(all, Box::new(page)).unwrap_or_default();
        let mut known = lock(&self.known);
        known.retain(|k| !k.1.is_gone());
        known.push((border, pages.made_pages()));
        drop(known);
        Ok(AtBorder {
            changes: Arc::clone(self),
            border,
            pages,
        })
    }

    /// What a page holds at a border: what it holds at the nearest border where that is known, and what changed between.
    /// `None`: the data is damaged.
    fn page(&self, border: usize, page: u32) -> Option<SharedPage> {
        let mut nearest = (border, 0, None);
        for (at, known) in lock(&self.known).iter() {
            let far = at.abs_diff(border);
            if far > 0
                && far < nearest.0
                && let Some(its) = known.page(page)
            {
                nearest = (far, *at, Some(its));
            }
        }
        let (_, from, its) = nearest;
        let its = its.or_else(|| self.begin.page(page));
        let mut now = its.unwrap_or_else(|| Arc::new(NONE));
        let between = from.min(border)..from.max(border);
        for i in self.changing.among(between, page) {
            let its = self.intervals[i].get()?;
            if its.has(page) {
                its.toggle(page, Arc::make_mut(&mut now))?;
            }
        }
        Some(now)
    }
}
