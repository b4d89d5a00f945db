//! Whether memory may also have other values, because the order of threads is not determined. It tells as much as is
//! possible without finding those values.

use super::past;
use super::query::Query;
use super::races;
use crate::play::Viewpoint;
use crate::{Position, Result, ThreadId};
use std::ops::Range;
use std::sync::Arc;

/// Says which threads may have written other values at the same time. The same bytes are known afterwards as with
/// [`races::find`]. `threads` are those that have begun, each with the number of instructions that it has completed.
pub fn find(
    view: &mut Viewpoint,
    image: u32,
    threads: &[(ThreadId, u64)],
    here: Position,
    q: &mut Query,
) -> Result<()> {
    let engine = Arc::clone(view.engine());
    let Some(now) = q.judge.as_ref().map(|j| j.now.clone()) else {
        return Ok(());
    };
    let mut others = engine.threads_of(image);
    others.retain(|t| !now.unborn.contains(t));
    let (mut open, mut unsure, mut said) = (Vec::new(), Vec::new(), Vec::new());
    for word in judged(view, q, &others)? {
        q.cancel.check()?;
        for (bytes, when) in races::runs(q, &others, word) {
            let (mut rivals, before) = races::rivals(view, &others, q, &bytes, when)?;
            if let Some(t) = before {
                unsure.extend(bytes.clone());
                if !rivals.contains(&t) {
                    rivals.push(t);
                }
            }
            if !rivals.is_empty() {
                open.extend(bytes.clone().filter(|i| q.m.bytes[*i].is_none()));
            }
            said.extend(rivals.into_iter().map(|t| (t, bytes.clone())));
        }
    }
    if !settled(view, (image, here), threads, q, &open, &unsure)? {
        return races::find(view, image, threads, here, q);
    }
    for (t, bytes) in said {
        let address = q.m.address.wrapping_add(bytes.start as u64);
        races::unnamed(q, t, address, bytes.len() as u64);
    }
    Ok(())
}

/// The words that others may have changed. All of a page that nobody has accessed is left out at once.
fn judged(view: &Viewpoint, q: &Query, others: &[ThreadId]) -> Result<Vec<Range<usize>>> {
    let mut out = Vec::new();
    for page in past::pages(q.m.address, q.m.bytes.len()) {
        q.cancel.check()?;
        let untouched = page.clone().all(|i| q.when[i].is_none());
        if untouched && races::rivals(view, others, q, &page, None)?.0.is_empty() {
            continue;
        }
        let start = q.m.address.wrapping_add(page.start as u64);
        let words = past::words(start, page.len());
        out.extend(words.map(|w| page.start + w.start..page.start + w.end));
    }
    Ok(out)
}

/// Whether the other values make no difference to what is known.
///
/// - `open`: unknown bytes that others may have written;
/// - `unsure`: bytes that may still hold what they held before.
fn settled(
    view: &mut Viewpoint,
    (image, here): (u32, Position),
    threads: &[(ThreadId, u64)],
    q: &Query,
    open: &[usize],
    unsure: &[usize],
) -> Result<bool> {
    // Executed code is known, unless there are other values.
    for i in open {
        let at = q.m.address.wrapping_add(*i as u64);
        if view.here()?.code(at, &mut [0]) == 1 {
            return Ok(false);
        }
    }
    let Some(now) = q
        .judge
        .as_ref()
        .map(|j| &j.now)
        .filter(|_| !unsure.is_empty())
    else {
        return Ok(true);
    };
    // If the earlier value is not known either, the byte is not known at all.
    let old = races::old(view, (image, here), threads, &now.segment, q, unsure)?;
    Ok(unsure.iter().all(|i| old.m.bytes[*i].is_some()))
}
