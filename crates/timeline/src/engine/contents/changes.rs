//! Finds out what pages hold at a border, and remembers it for borders near by.

use crate::base::sync::lock;
use crate::engine::Engine;
use crate::index::{self, Differences, IndexPart, PAGE};
use crate::{Result, ThreadId};
use hindsight_replay::{Lines, MadePages, SharedPage};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes in a page of memory, and one that has nothing.
const NONE: [u8; PAGE] = [0; PAGE];
/// Several borders are remembered, as long as all but the largest have at most `MOST` bytes together and are at most `MANY`.
/// Several players, each at another place, then do not take the content from each other.
const MOST: usize = 256 << 20;
const MANY: usize = 16;

/// What is known of borders.
#[derive(Default)]
pub struct Contents(Vec<AtBorder>);

/// What memory holds at a border, as far as somebody has asked for it.
#[derive(Clone)]
struct AtBorder {
    changes: Arc<Changes>,
    /// The number of the interval that begins there.
    border: usize,
    pages: Lines,
}

/// How memory changes in a coarse part.
struct Changes {
    thread: ThreadId,
    /// Where its intervals begin.
    borders: Vec<u64>,
    /// What memory holds at its beginning.
    begin: Lines,
    /// How each interval changes it. Those before a border that was asked for are there.
    intervals: Vec<OnceLock<Differences>>,
    /// What has been found out, by the number of the border.
    known: Mutex<Vec<(usize, MadePages)>>,
}

impl Engine {
    /// All that memory holds at a border of a coarse part.
    pub(super) fn at_border(self: &Arc<Self>, part: &IndexPart, border: usize) -> Result<Lines> {
        self.near_border(part, border..=border)
    }

    /// All that memory holds at the one of these borders of a coarse part for which the least has to be done.
    pub(super) fn near_border(
        self: &Arc<Self>,
        part: &IndexPart,
        borders: RangeInclusive<usize>,
    ) -> Result<Lines> {
        let mut held = lock(&self.at_border);
        let mine = |h: &AtBorder| h.changes.is_of(part);
        if let Some(i) = held
            .0
            .iter()
            .position(|h| mine(h) && borders.contains(&h.border))
        {
            // The one used last is the last one.
            let found = held.0.remove(i);
            let pages = found.pages.clone();
            held.0.push(found);
            return Ok(pages);
        }
        let far = |h: &&AtBorder| {
            h.border
                .abs_diff(h.border.clamp(*borders.start(), *borders.end()))
        };
        let near = held.0.iter().filter(|h| mine(h)).min_by_key(far);
        let border = near.map_or(*borders.start(), |h| {
            h.border.clamp(*borders.start(), *borders.end())
        });
        let changes = match held.0.iter().find(|h| mine(h)) {
            Some(h) => Arc::clone(&h.changes),
            None => Arc::new(Changes::of(self, part)?),
        };
        let pages = changes.at(self, part, border)?;
        held.0.push(AtBorder {
            changes,
            border,
            pages: pages.clone(),
        });
        held.shrink();
        Ok(pages)
    }
}

impl Contents {
    /// Forgets what was used longest ago, as long as there is too much.
    fn shrink(&mut self) {
        let beside = |all: &[AtBorder]| {
            let sizes = || all.iter().map(|h| h.pages.made() * PAGE);
            sizes().sum::<usize>() - sizes().max().unwrap_or(0)
        };
        while self.0.len() > MANY || beside(&self.0) > MOST {
            self.0.remove(0);
        }
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
            thread: part.thread,
            borders: part.borders.clone(),
            begin,
            intervals: part.borders.iter().map(|_| OnceLock::new()).collect(),
            known: Mutex::default(),
        })
    }

    fn is_of(&self, part: &IndexPart) -> bool {
        self.thread == part.thread && self.borders == part.borders
    }

    /// What memory holds at a border.
    fn at(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        part: &IndexPart,
        border: usize,
    ) -> Result<Lines> {
        let mut all: Vec<u32> = self.begin.numbers().collect();
        for (i, its) in self.intervals[..border].iter().enumerate() {
            let its = match its.get() {
                Some(its) => its,
                None => {
                    let new = part.differences(engine, i)?;
                    its.get_or_init(|| new)
                }
            };
            all.extend(its.pages());
            if i % 16 == 15 {
                all.sort_unstable();
                all.dedup();
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
        Ok(pages)
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
        for i in from.min(border)..from.max(border) {
            let its = self.intervals[i].get()?;
            if its.has(page) {
                its.toggle(page, Arc::make_mut(&mut now))?;
            }
        }
        Some(now)
    }
}
