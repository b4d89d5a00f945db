//! Finds what memory holds at a position.

mod accessed;
mod agreed;
mod begin;
mod certain;
mod condition;
mod evident;
mod exposed;
mod files;
mod just;
mod others;
mod past;
mod query;
mod races;
mod restated;

pub use files::cleared;
pub use just::{behind, nothing_between, stays};

use crate::engine::Engine;
use crate::model::memory::{Candidate, Detail, Memory};
use crate::play::Viewpoint;
use crate::recording::forked_by;
use crate::scan::Instant;
use crate::{Position, Result, ThreadId};
use query::{Judge, Query, code, unborn};
use std::sync::Arc;

/// See [`crate::Cursor::memory`].
pub fn memory(view: &mut Viewpoint, address: u64, len: usize, detail: Detail) -> Result<Memory> {
    const WORD: u64 = 4;
    // The kernel changes whole words.
    let start = address & !(WORD - 1);
    let before = (address - start) as usize;
    let most = start.wrapping_neg().wrapping_sub(1).min(1 << 32);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut q = Query::new(
        start,
        (before + len).next_multiple_of(WORD as usize).min(most),
        view.cancel(),
    );
    q.detail = detail;
    if len > 0 && before + len <= q.m.bytes.len() {
        let (home, count) = (view.thread(), view.count());
        let found = find(view, &mut q);
        // The virtual processor goes there only when it is needed: the way back may be long.
        view.note_position(home, count);
        found?;
        if q.m.bytes.iter().any(Option::is_none) {
            code(view.here()?, &mut q.m);
        }
    }
    let covers = |c: &Candidate, at: u64| at.wrapping_sub(c.address) < c.bytes.len() as u64;
    let silent = |i: &usize| {
        let at = start.wrapping_add(*i as u64);
        *i < q.m.bytes.len() && q.open(*i) && !q.m.candidates.iter().any(|c| covers(c, at))
    };
    q.m.silent = (before..before + len).map(|i| silent(&i)).collect();
    q.m.bytes.resize(before + len, None);
    q.m.bytes.drain(..before);
    q.m.address = address;
    let end = address.saturating_add(len as u64);
    q.m.unnamed.retain_mut(|u| {
        let stop = (u.address + u.len).min(end);
        u.address = u.address.max(address);
        u.len = stop.saturating_sub(u.address);
        u.len > 0
    });
    q.m.candidates.retain_mut(|c| {
        let stop = c.address + c.bytes.len() as u64;
        let (from, to) = (c.address.max(address), stop.min(end));
        if from < to {
            c.bytes = c.bytes[(from - c.address) as usize..(to - c.address) as usize].to_vec();
            c.address = from;
        }
        from < to
    });
    Ok(q.m)
}

fn find(view: &mut Viewpoint, q: &mut Query) -> Result<()> {
    evident::find(view, q)?;
    if q.whole() || begin::find(view, q)? {
        return Ok(());
    }
    let mut home = (view.thread(), view.count());
    let engine = Arc::clone(view.engine());
    let mut here = view.position()?;
    let mut image = view.image();
    let mut segment = engine.segment(home.0, home.1)?;
    loop {
        q.cancel.check()?;
        let threads = threads_at(&engine, image, home, here)?;
        let all = engine.threads_of(image).len();
        q.judge = Some(Judge {
            clobbers: engine.clobbers(image)?,
            now: Instant {
                home,
                segment,
                unborn: unborn(&engine, image, home)?,
            },
            engine: engine.clone(),
        });
        let own = image == view.image();
        accessed::find(view, image, (&threads, here), all == 1, q)?;
        certain::certain(view, image, here, own, q)?;
        if own {
            view.set_position(home.0, home.1)?;
        }
        files::made(view, image, &threads, here, q)?;
        certain::dead(&engine, image, q)?;
        if all > 1 {
            let races = match q.detail {
                Detail::Candidates => races::find,
                Detail::Known => others::find,
            };
            races(view, image, &threads, here, q)?;
        } else if own {
            exposed::find(view, q)?;
        }
        files::mapped(view, image, here, q)?;
        if q.whole() {
            return Ok(());
        }
        // A forked process began with its parent's memory.
        let Some(parent) = engine.is_forked(image).then(|| engine.parent(image)) else {
            return Ok(());
        };
        inherited(&engine, image, &threads, here, q)?;
        let Some(forked) = forked_by(&engine, parent, image)? else {
            return Ok(());
        };
        (image, home) = (parent, forked);
        here = engine.position(home.0, home.1)?;
        segment = engine.segment(home.0, home.1)?;
    }
}

/// The threads of an image that have begun by a position, each with the number of instructions that it has completed.
fn threads_at(
    engine: &Arc<Engine>,
    image: u32,
    home: (ThreadId, u64),
    here: Position,
) -> Result<Vec<(ThreadId, u64)>> {
    let mut out = Vec::new();
    for t in engine.threads_of(image) {
        let n = match t == home.0 {
            true => Some(home.1),
            false => engine.count_at(t, here)?,
        };
        out.extend(n.map(|n| (t, n)));
    }
    Ok(out)
}

/// Removes from the question to the parent what the child has changed.
fn inherited(
    engine: &Arc<Engine>,
    image: u32,
    threads: &[(ThreadId, u64)],
    here: Position,
    q: &mut Query,
) -> Result<()> {
    let (address, len) = (q.m.address, q.m.bytes.len());
    let there = engine.mappings(image, here)?;
    for i in 0..len {
        let at = address.wrapping_add(i as u64);
        let shared = there
            .iter()
            .any(|r| r.start <= at && at < r.end && r.is_shared());
        let changed = q.judge.as_ref().is_some_and(|j| j.clobbers.any(at, &j.now));
        q.lost[i] |= q.open(i) && (shared || changed);
    }
    for (t, n) in threads {
        let sources = engine.scan(*t)?.sources_of(address, len, *n);
        for (i, s) in sources.iter().enumerate() {
            q.lost[i] |= q.m.bytes[i].is_none() && s.is_some();
        }
    }
    Ok(())
}
