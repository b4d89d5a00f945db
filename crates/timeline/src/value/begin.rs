//! What was in memory when a program began.

use super::Query;
use crate::model::memory::Ground;
use crate::{Cursor, Result};

/// Answers at the first instant of a program. What the recording says there of memory is known to the
/// virtual processor only behind the first instruction, so it is asked there, and what the instruction
/// itself changes is left out. `false`: the question is another one.
pub fn find(cursor: &mut Cursor, q: &mut Query) -> Result<bool> {
    let (thread, count) = (cursor.thread(), cursor.count());
    let timeline = cursor.timeline().clone();
    let scan = timeline.0.scan(thread)?;
    let (inner, image) = (&timeline.0, cursor.image());
    let first = inner.trace.image(image).and_then(|i| i.threads.first());
    if count != scan.from || first != Some(&thread.0) || inner.is_forked(image) {
        return Ok(false);
    }
    if scan.to == scan.from {
        // Nothing was executed that could tell.
        q.lost.fill(true);
        return Ok(true);
    }
    let mut changed = cursor.first_writes()?;
    let kernels = scan.written.iter().filter(|w| w.0 == count);
    changed.extend(kernels.map(|w| (w.1, w.2)));
    cursor.place(thread, count + 1)?;
    super::find(cursor, q)?;
    for (i, byte) in q.m.bytes.iter_mut().enumerate() {
        let at = q.m.address.wrapping_add(i as u64);
        if let Some(k) = byte
            && k.ground == Ground::Read
            && !scan.told
        {
            // By that instruction.
            k.ground = Ground::Exposed;
        }
        if (changed.iter()).any(|c| c.0 <= at && at - c.0 < c.1) {
            (*byte, q.lost[i]) = (None, true);
        }
    }
    Ok(true)
}
