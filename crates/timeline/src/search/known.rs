//! Stops that are known without a replay: the kernel's writes, and calls and returns that were found before.

use super::hit::SearchRange;
use crate::engine::Engine;
use crate::model::stops::*;
use crate::scan::Scan;
use std::sync::Arc;

/// Offers, for each kind, the stop that is nearest to an end of a stretch. At the counts in `passed`, the kernel's
/// writes do not count.
pub fn offer_all(
    engine: &Arc<Engine>,
    scan: &Scan,
    s: SearchRange,
    (stops, passed): (&Stops, &[u64]),
    forward: bool,
    offer: &mut dyn FnMut(u64, Reason),
) {
    for w in &stops.watchpoints {
        let image = engine.image(s.thread);
        if !w.watch.kinds().1 || w.len == 0 || w.image.is_some_and(|i| i != image) {
            continue;
        }
        if let Some((count, address, len)) = written(scan, s, w, forward, passed) {
            let reason = Reason::Watchpoint {
                id: w.id,
                count,
                address,
                len,
                read: false,
                write: true,
                kernel: true,
            };
            offer(if forward { count + 1 } else { count }, reason);
        }
    }
    let (lo, hi) = match forward {
        true => (s.first, s.hi),
        false => (s.lo, s.hi.saturating_sub(1)),
    };
    for function in &stops.returns {
        let tracks = engine.known_tracks(s.thread, *function);
        if let Some(t) = tracks.and_then(|t| t.nearest_return(lo, hi, !forward)) {
            let (function, value) = (*function, t.value);
            offer(t.returned, Reason::Return { function, value });
        }
    }
    // A replay searches for functions whose calls are not known.
    for function in &stops.calls {
        let tracks = engine.known_tracks(s.thread, *function);
        if let Some(t) = tracks.and_then(|t| t.nearest_call(lo, hi, !forward)) {
            let function = *function;
            offer(t.count, Reason::Call { function });
        }
    }
}

/// The kernel's writes to watched memory: count, address, length.
fn written(
    scan: &Scan,
    s: SearchRange,
    w: &Watchpoint,
    forward: bool,
    passed: &[u64],
) -> Option<(u64, u64, u64)> {
    let a = scan.written.partition_point(|g| g.0 < s.lo);
    let b = scan.written.partition_point(|g| g.0 < s.hi);
    let is = |g: &&(u64, u64, u64)| {
        g.1 < w.address.saturating_add(w.len)
            && w.address < g.1.saturating_add(g.2)
            && !passed.contains(&g.0)
    };
    let mut list = scan.written[a..b.max(a)].iter();
    let found = match forward {
        true => list.find(is),
        false => list.rfind(is),
    };
    found.copied()
}
