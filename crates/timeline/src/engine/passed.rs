//! Where machines without marks came by in coarse intervals. Who goes to a place behind need not run from the border again.

use super::Engine;
use super::contents::EACH;
use crate::ThreadId;
use crate::base::sync::lock;
use crate::index::PAGE;
use hindsight_replay::{Lines, Machine, SharedPage, State};
use std::collections::HashMap;
use std::sync::Arc;

/// They hold at most this many bytes. Pages that several have count once, and what the largest border holds does not count: it is
/// remembered anyway.
const MOST: usize = 256 << 20;
/// They are at most this many.
const MANY: usize = 64;

/// Places at which machines came by, the one used last at the end.
#[derive(Default)]
pub struct Passed {
    places: Vec<Place>,
    /// How many places have a page, by its address.
    pages: HashMap<usize, u32>,
}

/// A place at which a machine came by.
struct Place {
    thread: ThreadId,
    state: State,
    content: Lines,
    /// The pages that were made of it when the machine came by.
    pages: Vec<SharedPage>,
    /// How many pages it has, made or not.
    listed: usize,
}

impl Engine {
    /// The last place behind `from`, and not behind `to`, at which a machine of a thread came by.
    pub fn passed(&self, thread: ThreadId, from: u64, to: u64) -> Option<(State, Lines)> {
        let mut all = lock(&self.passed);
        all.shrink();
        let here = |p: &Place| p.thread == thread && (from + 1..=to).contains(&p.state.position);
        let its = all.places.iter().enumerate().filter(|(_, p)| here(p));
        let (i, _) = its.max_by_key(|(_, p)| p.state.position)?;
        let place = all.places.remove(i);
        let found = (place.state.clone(), place.content.clone());
        all.places.push(place);
        Some(found)
    }

    /// Notes that a machine of a thread comes by, if its pages are made when they are touched and few are.
    pub fn passes(&self, thread: ThreadId, m: &Machine) -> Result<(), hindsight_replay::Error> {
        let state = m.state();
        let before = self.passed(thread, 0, state.position);
        let known = matches!(&before, Some((s, _)) if s.position == state.position);
        if known || m.held()? > MOST / 2 {
            return Ok(());
        }
        let before = before.map(|p| p.1).unwrap_or_default();
        let content = m.content_beside(&before)?;
        let mut pages = Vec::new();
        content.each_made(&mut |_, page| pages.push(Arc::clone(page)));
        if content.is_later() {
            lock(&self.passed).add(Place {
                thread,
                state,
                listed: content.numbers().count(),
                content,
                pages,
            });
        }
        Ok(())
    }
}

impl Passed {
    /// Forgets all. Players keep what they have.
    pub fn clear(&mut self) {
        self.places.clear();
        self.pages.clear();
    }

    fn add(&mut self, place: Place) {
        for page in &place.pages {
            *self.pages.entry(Arc::as_ptr(page) as usize).or_default() += 1;
        }
        self.places.push(place);
        self.shrink();
    }

    /// Forgets what is damaged, and what was used longest ago, as long as there is too much.
    fn shrink(&mut self) {
        while let Some(bad) = self.places.iter().position(|p| p.content.is_bad()) {
            self.remove(bad);
        }
        while self.places.len() > MANY || self.held() > MOST {
            self.remove(0);
        }
    }

    fn remove(&mut self, i: usize) {
        for page in &self.places.remove(i).pages {
            let at = Arc::as_ptr(page) as usize;
            if let Some(n) = self.pages.get_mut(&at) {
                *n -= 1;
                if *n == 0 {
                    self.pages.remove(&at);
                }
            }
        }
    }

    /// The bytes that count for [`MOST`].
    fn held(&self) -> usize {
        let mut roots: Vec<&Lines> = Vec::new();
        for root in self.places.iter().filter_map(|p| p.content.root()) {
            if !roots.iter().any(|r| r.is_same(root)) {
                roots.push(root);
            }
        }
        let sizes = || roots.iter().map(|r| r.made() * PAGE);
        let lists = self.places.iter().map(|p| p.listed * EACH);
        self.pages.len() * PAGE + lists.sum::<usize>() + sizes().sum::<usize>()
            - sizes().max().unwrap_or(0)
    }
}
