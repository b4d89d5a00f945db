//! Finds what memory held when a program began.

use super::query::Query;
use crate::Result;
use crate::access::first_writes;
use crate::model::memory::Ground;
use crate::play::Viewpoint;
use std::sync::Arc;

/// Answers a question at the first instant of a program. The virtual processor knows what the recording says of memory
/// there only after the first instruction. So the question is asked there, without what that instruction changes.
/// `false`: the question is about another instant.
pub fn find(view: &mut Viewpoint, q: &mut Query) -> Result<bool> {
    let (thread, count) = (view.thread(), view.count());
    let engine = Arc::clone(view.engine());
    let scan = engine.scan(thread)?;
    let (engine, image) = (&engine, view.image());
    let first = engine.first_thread(image);
    if count != scan.from || first != Some(thread) || engine.is_forked(image) {
        return Ok(false);
    }
    if scan.to == scan.from {
        // Nothing was executed that could tell.
        q.lost.fill(true);
        return Ok(true);
    }
    let mut changed = first_writes(view)?;
    let kernels = scan.written.iter().filter(|w| w.0 == count);
    changed.extend(kernels.map(|w| (w.1, w.2)));
    view.set_position(thread, count + 1)?;
    super::find(view, q)?;
    for (i, byte) in q.m.bytes.iter_mut().enumerate() {
        let at = q.m.address.wrapping_add(i as u64);
        if let Some(k) = byte
            && k.ground == Ground::Read
            && !scan.told
        {
            // The first instruction read it.
            k.ground = Ground::Exposed;
        }
        if (changed.iter()).any(|c| c.0 <= at && at - c.0 < c.1) {
            (*byte, q.lost[i]) = (None, true);
        }
    }
    Ok(true)
}
