//! Whether memory may also have other values, since the order of threads is not determined: as far as can be told
//! without finding out which.

use super::past;
use super::query::Query;
use super::races;
use crate::play::Viewpoint;
use crate::{Position, Result, ThreadId};
use std::sync::Arc;

/// Says which threads may have given memory other values at the same time, and leaves the same known and unknown as
/// [`races::find`]. `threads`: those that have begun, with the instructions they have completed.
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
    for word in past::words(q.m.address, q.m.bytes.len()) {
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

/// Whether which values there are makes no difference to what is known. `open`: bytes that are not known, to which
/// others may have written; `unsure`: those that may still have been what they were before.
fn settled(
    view: &mut Viewpoint,
    (image, here): (u32, Position),
    threads: &[(ThreadId, u64)],
    q: &Query,
    open: &[usize],
    unsure: &[usize],
) -> Result<bool> {
    // What was executed is known, unless there are other values.
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
    // If what it was before is not known either, it is not known at all.
    let old = races::old(view, (image, here), threads, &now.segment, q, unsure)?;
    Ok(unsure.iter().all(|i| old.m.bytes[*i].is_some()))
}
