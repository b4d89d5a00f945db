//! Answers questions from a part of the index. Only what a question needs is read, checked and unpacked. It then stays
//! in a cache. Damaged data is made again.

use super::Engine;
use crate::Result;
use crate::base::sync::lock;
use crate::index::{
    Body, Differences, For, IndexFrame, IndexPart, IntervalSet, IntervalSummary, LINE, PAGE,
    PageAccess, Pages, Past, SECTION, in_memory,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Something unpacked, in the cache.
#[derive(Clone)]
pub enum Unpacked {
    Summary(Arc<IntervalSummary>),
    Pages(Arc<Pages>),
    Past(Arc<Past>),
}

/// The key of the cache. All keys begin with a part's number or its body's number, and then name an interval, a section
/// of pages or a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Key {
    Summary(u64, usize),
    Pages(u64, usize),
    Past(u64, u32),
}

impl IndexPart {
    /// The frame at the start of an interval.
    pub fn frame(&self, engine: &Arc<Engine>, interval: usize) -> Result<IndexFrame> {
        self.ask(engine, |body| body.frame(interval))
    }

    /// How memory changed in an interval.
    pub fn summary(&self, engine: &Arc<Engine>, interval: usize) -> Result<Arc<IntervalSummary>> {
        let key = Key::Summary(self.number, interval);
        let kept = lock(&engine.unpacked).get(&key);
        if let Some(Unpacked::Summary(e)) = kept {
            return Ok(e);
        }
        let summary = Arc::new(self.ask(engine, |body| body.summary(interval))?);
        let what = Unpacked::Summary(Arc::clone(&summary));
        lock(&engine.unpacked).put(key, what, summary.size());
        Ok(summary)
    }

    /// How all memory changed in an interval of the coarse level.
    pub fn differences(&self, engine: &Arc<Engine>, interval: usize) -> Result<Differences> {
        self.ask(engine, |body| body.differences(interval))
    }

    /// How a page was accessed. `None`: not at all.
    pub fn past(&self, engine: &Arc<Engine>, page: u32) -> Result<Option<Arc<Past>>> {
        let key = Key::Past(self.number, page);
        let kept = lock(&engine.unpacked).get(&key);
        if let Some(Unpacked::Past(p)) = kept {
            return Ok(Some(p));
        }
        let past = self.ask(engine, |body| body.past(page, &|n| body.pages(engine, n)))?;
        if past.is_empty() {
            return Ok(None);
        }
        let past = Arc::new(past);
        let size = past.iter().map(|(_, t)| 64 + 4 * t.size()).sum();
        lock(&engine.unpacked).put(key, Unpacked::Past(Arc::clone(&past)), size);
        Ok(Some(past))
    }

    /// The intervals that accessed any of these bytes. If only reads or only writes count, the answer is by words.
    /// An interval is then in it if it accessed any word of the bytes in that way.
    pub fn touching(
        &self,
        engine: &Arc<Engine>,
        address: u64,
        len: u64,
        reads: bool,
        writes: bool,
    ) -> Result<IntervalSet> {
        let mut set = IntervalSet::new(self.borders.len());
        self.each(engine, address, len, &mut |past, line, bytes| {
            let wanted = words(bytes);
            for (i, t) in past {
                let [r, w] = t.line(line);
                if reads && writes {
                    // Single bytes are known only for both kinds together.
                    let [r, w] = t.masks(line);
                    if (r | w) & bytes != 0 {
                        set.add(*i as usize);
                    }
                } else if (reads && r & wanted != 0) || (writes && w & wanted != 0) {
                    set.add(*i as usize);
                }
            }
        })?;
        Ok(set)
    }

    /// The last interval before number `below` that accessed any of these bytes.
    pub fn last(
        &self,
        engine: &Arc<Engine>,
        address: u64,
        len: u64,
        below: usize,
    ) -> Result<Option<usize>> {
        let mut best = None;
        self.each(engine, address, len, &mut |past, line, bytes| {
            let n = past.partition_point(|(i, _)| (*i as usize) < below);
            let hit = |(_, t): &&(u32, PageAccess)| {
                let [r, w] = t.masks(line);
                (r | w) & bytes != 0
            };
            let found = past[..n].iter().rfind(hit);
            best = best.max(found.map(|(i, _)| *i as usize));
        })?;
        Ok(best)
    }

    /// How an interval accessed the bytes of a line last; see [`IntervalSummary`].
    pub fn masks(
        &self,
        engine: &Arc<Engine>,
        interval: usize,
        page: u32,
        line: usize,
    ) -> Result<[u64; 2]> {
        let past = self.past(engine, page)?;
        let found = past.as_ref().and_then(|p| {
            let i = p.binary_search_by_key(&(interval as u32), |e| e.0);
            Some(p[i.ok()?].1.masks(line))
        });
        Ok(found.unwrap_or_default())
    }

    /// Calls back for each line of the bytes that was accessed, with the mask of those bytes in the line.
    fn each(
        &self,
        engine: &Arc<Engine>,
        address: u64,
        len: u64,
        show: &mut dyn FnMut(&Past, usize, u64),
    ) -> Result<()> {
        const CELLS: u64 = 1 << 32;
        let mut one = |past: &Past, from: usize, to: usize| {
            for line in from / LINE..to.div_ceil(LINE) {
                let first = from.saturating_sub(line * LINE);
                let end = (to - line * LINE).min(LINE);
                show(past, line, (u64::MAX << first) & (u64::MAX >> (LINE - end)));
            }
        };
        let end = address.saturating_add(len);
        if len > SECTION as u64 {
            // Visits only pages that exist.
            for page in self.ask(engine, |body| body.accessed(engine))? {
                let start = page as u64 * PAGE as u64;
                let into = start.wrapping_sub(address) % CELLS;
                // The page may begin in the stretch, or the stretch in the page, or both.
                let rest = len.saturating_sub(into).min(PAGE as u64) as usize;
                let begin = (CELLS - into).min(PAGE as u64) as usize;
                let (from, to) = match begin {
                    ..PAGE if rest == 0 => (begin, PAGE),
                    ..PAGE => (0, PAGE),
                    _ if len >= CELLS => (0, PAGE),
                    _ if rest == 0 => continue,
                    _ => (0, rest),
                };
                if let Some(past) = self.past(engine, page)? {
                    one(&past, from, to);
                }
            }
            return Ok(());
        }
        let mut at = address;
        while at < end {
            let next = end.min((at | (PAGE as u64 - 1)).saturating_add(1));
            let page = (at as u32) / PAGE as u32;
            if let Some(past) = self.past(engine, page)? {
                let from = at as usize % PAGE;
                one(&past, from, from + (next - at) as usize);
            }
            at = next;
        }
        Ok(())
    }

    /// Answers from the bytes of the part. If these are damaged, the part is made again with the same intervals.
    fn ask<T>(&self, engine: &Arc<Engine>, what: impl Fn(&Body) -> Option<T>) -> Result<T> {
        let body = lock(&self.body).clone();
        if let Some(answer) = what(&body) {
            return Ok(answer);
        }
        engine.sidecar.found_damaged(self.range);
        let mut body = lock(&self.body);
        if what(&body).is_none() {
            let draft = engine.again(self.range, &self.borders)?;
            let encoded = draft.encode()?;
            drop(draft);
            let (bytes, len) = in_memory(&encoded)?;
            let new = Body::open(self.range, &encoded.0, bytes, len);
            let same = |b: &Body| {
                b.spans
                    .iter()
                    .map(|s| s.from)
                    .eq(self.borders.iter().copied())
            };
            *body = Arc::new(new.filter(same).ok_or_else(|| engine.bad_frame())?);
            if !engine.unsaved {
                // If saving fails, the next question makes the part again.
                let _ = engine
                    .sidecar
                    .add(self.range, &encoded, For::Question, None);
            }
        }
        what(&body).ok_or_else(|| engine.bad_frame())
    }
}

impl Body {
    /// All pages that the part accessed.
    fn accessed(&self, engine: &Engine) -> Option<BTreeSet<u32>> {
        let mut out = BTreeSet::new();
        for n in 0..self.pages.len() {
            out.extend(self.pages(engine, n)?.at.iter().map(|p| p.0));
        }
        Some(out)
    }

    /// The index of a section of pages.
    fn pages(&self, engine: &Engine, n: usize) -> Option<Arc<Pages>> {
        let key = Key::Pages(self.number, n);
        let kept = lock(&engine.unpacked).get(&key);
        if let Some(Unpacked::Pages(p)) = kept {
            return Some(p);
        }
        let pages = Arc::new(self.unpack_pages(n)?);
        let size = pages.raw.len() + 16 * pages.at.len();
        lock(&engine.unpacked).put(key, Unpacked::Pages(Arc::clone(&pages)), size);
        Some(pages)
    }
}

/// The words of a line that contain any of these bytes.
fn words(bytes: u64) -> u8 {
    (0..8).fold(0, |w, i| w | ((bytes >> (8 * i) & 0xff != 0) as u8) << i)
}
