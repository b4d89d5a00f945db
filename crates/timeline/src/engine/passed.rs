//! Where machines without marks came by in coarse intervals. Who goes to a place behind need not run from the border again.

use super::Engine;
use crate::ThreadId;
use crate::base::sync::lock;
use crate::index::PAGE;
use hindsight_replay::{Lines, Machine, SharedPage, State};
use std::collections::HashMap;
use std::sync::Arc;

/// Their pages have at most this many bytes together. Pages that several have count once.
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
}

impl Engine {
    /// The last place behind `from`, and not behind `to`, at which a machine of a thread came by.
    pub fn passed(&self, thread: ThreadId, from: u64, to: u64) -> Option<(State, Lines)> {
        let mut all = lock(&self.passed);
        let here = |p: &Place| p.thread == thread && (from + 1..=to).contains(&p.state.position);
        let its = all.places.iter().enumerate().filter(|(_, p)| here(p));
        let (i, _) = its.max_by_key(|(_, p)| p.state.position)?;
        let place = all.places.remove(i);
        let found = (place.state.clone(), place.content.clone());
        all.places.push(place);
        Some(found)
    }

    /// Notes that a machine of a thread comes by. Its pages are made when they are touched.
    pub fn passes(&self, thread: ThreadId, m: &Machine) -> Result<(), hindsight_replay::Error> {
        let state = m.state();
        let known = |p: &Place| p.thread == thread && p.state.position == state.position;
        if lock(&self.passed).places.iter().any(known) || m.held()? > MOST / 2 {
            return Ok(());
        }
        let before = self.passed(thread, 0, state.position);
        let before = before.map(|p| p.1).unwrap_or_default();
        let content = m.content_beside(&before)?;
        let mut pages = Vec::new();
        content.each_made(&mut |page| pages.push(Arc::clone(page)));
        lock(&self.passed).add(Place {
            thread,
            state,
            content,
            pages,
        });
        Ok(())
    }
}

impl Passed {
    fn add(&mut self, place: Place) {
        for page in &place.pages {
            *self.pages.entry(Arc::as_ptr(page) as usize).or_default() += 1;
        }
        self.places.push(place);
        while self.places.len() > MANY || self.pages.len() * PAGE > MOST {
            let old = self.places.remove(0);
            for page in &old.pages {
                let at = Arc::as_ptr(page) as usize;
                if let Some(n) = self.pages.get_mut(&at) {
                    *n -= 1;
                    if *n == 0 {
                        self.pages.remove(&at);
                    }
                }
            }
        }
    }
}
