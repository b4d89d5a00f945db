//! Finds values that are read later.

use super::query::{Query, shares_cells};
use crate::index;
use crate::model::memory::{Candidate, Ground, KnownByte};
use crate::play::Viewpoint;
use crate::{Error, Result};
use hindsight_isa::observe::MARK;
use std::sync::Arc;

/// At most this many intervals are replayed to find a later read.
const AHEAD: usize = 4;
/// At most this many instructions are looked at. More take long if the index does not have them yet.
const FAR: u64 = 4 * index::SPAN;

/// Takes the value of a later read, if nothing can have changed the byte in between: no system call, signal, gap or
/// other thread.
pub fn find(view: &mut Viewpoint, q: &mut Query) -> Result<()> {
    let (t, count, image) = (view.thread(), view.count(), view.image());
    let engine = Arc::clone(view.engine());
    let here = engine.position(t, count)?;
    let scan = engine.scan(t)?;
    let in_gap = scan.gaps.iter().any(|g| g.start <= count && count < g.end);
    if count <= scan.quiet_until || in_gap {
        // Bytes that are still unknown are not there, or nobody knows them. In a gap nobody reads.
        return Ok(());
    }
    let barriers = [
        scan.events.iter().map(|e| e.0).find(|n| *n >= count),
        scan.zeros.iter().map(|z| z.0).find(|n| *n >= count),
        scan.given.iter().map(|z| z.0).find(|n| *n >= count),
        scan.gaps.iter().map(|g| g.end).find(|n| *n >= count),
        // At the beginning of a gap, marks are lost.
        (scan.gaps.iter().map(|g| g.start).find(|n| *n > count)).map(|n| n - 1),
        scan.numbers.iter().map(|n| n.1).find(|n| *n >= count),
    ];
    // A gap at the end of a thread ends nowhere.
    let until = (barriers.into_iter().flatten())
        .min()
        .unwrap_or(scan.to)
        .min(scan.to)
        .min(count.saturating_add(FAR));
    // Memory that others share may change at any time.
    let (address, len) = (q.m.address, q.len());
    let list = engine.mappings(image, here)?;
    let inside = |r: &crate::Mapping| {
        r.start <= address && address.saturating_add(len) <= r.end && !r.is_shared()
    };
    let shared = shares_cells(&engine, image, &q.m)?;
    let whole = q.m.bytes.iter().all(Option::is_some);
    if whole || shared || !list.iter().any(inside) {
        return Ok(());
    }
    let cancel = q.cancel.clone();
    // A byte that was lost may show later. One that something may have changed has candidates instead.
    let doubted = |i: usize| {
        let at = address.wrapping_add(i as u64);
        let covers = |c: &Candidate| at.wrapping_sub(c.address) < c.bytes.len() as u64;
        q.m.candidates.iter().any(covers)
    };
    let mut shut: Vec<bool> = (0..len as usize).map(doubted).collect();
    let m = &mut q.m;
    view.player(t)?.with_helper(|p| {
        let (mut lo, mut replays) = (count, 0);
        while lo < until
            && replays < AHEAD
            && (0..shut.len()).any(|i| m.bytes[i].is_none() && !shut[i])
        {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let part = p.index(lo)?;
            let engine = Arc::clone(p.engine());
            let touched = |reads| part.touching(&engine, address, len, reads, !reads);
            let (read, written) = (touched(true)?, touched(false)?);
            let first = part.interval(lo);
            let some = |i: &usize| read.has(*i) || written.has(*i);
            let Some(i) = (first..part.borders.len()).find(some) else {
                // After the last interval there may be another part. There is none where the stream was cut.
                if part.to <= lo {
                    break;
                }
                lo = part.to;
                continue;
            };
            let (from, to) = part.bounds(i);
            lo = lo.max(from);
            if lo >= until || to <= lo || !read.has(i) {
                break;
            }
            let hi = until.min(to);
            replays += 1;
            p.seek(lo)?;
            p.take_marks(address, len);
            p.set_breaks(Vec::new());
            p.run(hi)?;
            let [reads, writes, cells] = p.known(address, len as usize);
            p.spoil();
            for (i, b) in m.bytes.iter_mut().enumerate() {
                if b.is_none() && !shut[i] && reads[i] == MARK && writes[i] == 0 {
                    *b = Some(KnownByte {
                        value: cells[i],
                        ground: Ground::Exposed,
                    });
                }
                shut[i] |= writes[i] != 0;
            }
            lo = hi;
        }
        Ok(())
    })
}
