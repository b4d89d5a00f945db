//! What memory holds just after an instruction that wrote it, without a search.

use super::certain::changes_by_itself;
use super::query::unborn;
use crate::engine::Engine;
use crate::scan::Scan;
use crate::scan::{Instant, When};
use crate::{Position, Result, ThreadId};
use std::sync::Arc;

/// Whether only the one thread of an image can change these bytes. What it does not write then stays as it is, and no
/// read shows anything new.
pub fn stays(
    engine: &Arc<Engine>,
    image: u32,
    place: Position,
    address: u64,
    len: usize,
) -> Result<bool> {
    if engine.threads_of(image).len() > 1 {
        return Ok(false);
    }
    let end = address.saturating_add(len as u64);
    let maps = engine.mappings(image, place)?;
    let mut inside = maps.iter().filter(|r| r.start < end && address < r.end);
    Ok(!inside.any(|r| changes_by_itself(engine, image, r)))
}

/// Whether only recorded instructions lie between two counts of a thread, and just after the second. They must all be
/// in one segment.
pub fn nothing_between(scan: &Scan, thread: ThreadId, from: u64, to: u64) -> bool {
    let end = to + 1;
    let some = |list: &[(u64, u64, u64)]| {
        let first = list.partition_point(|e| e.0 <= from);
        list.get(first).is_some_and(|e| e.0 <= end)
    };
    let first = scan.events.partition_point(|e| e.0 <= from);
    let event = scan.events.get(first).is_some_and(|e| e.0 <= end);
    let gap = scan.gaps.iter().any(|g| g.start <= end && from <= g.end);
    let segments = [from, to, end].map(|n| scan.segment(thread, n).opens);
    !event
        && !gap
        && ![&scan.zeros, &scan.given, &scan.written, &scan.changed]
            .into_iter()
            .any(|list| some(list))
        && segments.iter().all(|s| *s == segments[0])
}

/// What memory holds after the instruction at `count` of a thread. `bytes` is what it wrote, or left as it was known.
/// The answer is that of [`crate::Cursor::known_memory`] there. `None`: that must be asked.
pub fn behind(
    engine: &Arc<Engine>,
    image: u32,
    (thread, count): (ThreadId, u64),
    address: u64,
    bytes: &[u8],
) -> Result<Option<Vec<Option<u8>>>> {
    let scan = engine.scan(thread)?;
    let sources = scan.sources_of(address, bytes.len(), count + 1);
    let anew = sources.iter().flatten().any(|s| s.at > count);
    // A source at the instruction itself took effect before it.
    if anew || !nothing_between(scan, thread, count, count) {
        return Ok(None);
    }
    let when = When {
        thread,
        from: count,
        to: count + 1,
    };
    let home = (thread, count + 1);
    let now = Instant {
        home,
        segment: engine.segment(thread, count + 1)?,
        unborn: unborn(engine, image, home)?,
    };
    let seen = engine.segment(thread, count)?;
    let clobbers = engine.clobbers(image)?;
    let each = (0..bytes.len() as u64).map(|i| address.wrapping_add(i));
    let changed = each
        .clone()
        .any(|at| clobbers.may_have_changed(at, when, &seen, &now));
    let words = bytes.as_chunks::<4>();
    let dead = |w: &[u8; 4]| clobbers.names_the_dead(*w, [true; 4], &now);
    // The kernel changes whole words. With a part of a word, one would have to know the rest.
    let whole = address.is_multiple_of(4) && words.1.is_empty();
    let sure = !changed && (whole || !clobbers.has_dead()) && !words.0.iter().any(dead);
    Ok(sure.then(|| bytes.iter().copied().map(Some).collect()))
}
