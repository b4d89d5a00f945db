//! The next or previous stop among several threads, in the total order.

use super::hit::{Hit, SearchRange};
use super::thread::{backward_in, forward_in};
use crate::model::stops::*;
use crate::play::Viewpoint;
use crate::{Position, Result, ThreadId};
use std::sync::Arc;

/// The first window of a search over several threads has this many order numbers.
const WINDOW: u64 = 1 << 12;

/// The threads that are searched.
fn within(view: &Viewpoint, scope: Scope) -> Result<Vec<ThreadId>> {
    let all = view.engine().scans()?.keys().copied();
    Ok(all.filter(|t| view.within(scope, *t)).collect())
}

pub fn forward(view: &mut Viewpoint, scope: Scope, stops: &mut Stops) -> Result<Option<Hit>> {
    let home = view.thread();
    let here = view.position()?;
    let engine = Arc::clone(view.engine());
    let threads = within(view, scope)?;
    // Where each thread stands.
    let mut at = Vec::new();
    for t in &threads {
        let scan = engine.scan(*t)?;
        at.push(match (*t == home, engine.count_at(*t, here)?) {
            (true, _) => (view.count(), view.count() + 1),
            (false, None) => (scan.from, scan.from),
            // The thread has completed these instructions, but the instant after them may still come.
            (false, Some(n)) => match engine.position(*t, n)? > here {
                true => (n, n),
                false => (n, n + 1),
            },
        });
    }
    let mut width = WINDOW;
    let mut until = here.segment;
    let mut best: Option<(Position, Hit)> = None;
    loop {
        until = match threads.len() {
            1 => u64::MAX,
            _ => until.saturating_add(width),
        };
        width = width.saturating_mul(2);
        let mut open = false;
        for (t, state) in threads.iter().zip(&mut at) {
            let scan = engine.scan(*t)?;
            let end = scan
                .nth(*t, scan.numbers.partition_point(|n| n.0 <= until))
                .to;
            open |= end < scan.to;
            let mut hi = end;
            if let Some((p, _)) = &best {
                hi = hi.min(engine.count_at(*t, *p)?.unwrap_or(scan.from));
            }
            let stretch = SearchRange {
                thread: *t,
                lo: state.0,
                hi,
                first: state.1,
            };
            if let Some(h) = forward_in(view, stretch, stops)? {
                let p = engine.position(*t, h.count)?;
                if best.as_ref().is_none_or(|b| p < b.0) {
                    best = Some((p, h));
                }
            }
            *state = (end.max(state.0), end.max(state.1));
        }
        // A stop at the end of a thread's segment has the position of its next segment's beginning.
        let is_first = best.as_ref().is_some_and(|b| b.0.segment <= until);
        if is_first || !open {
            return Ok(best.map(|b| b.1));
        }
    }
}

pub fn backward(view: &mut Viewpoint, scope: Scope, stops: &mut Stops) -> Result<Option<Hit>> {
    let home = view.thread();
    let here = view.position()?;
    let engine = Arc::clone(view.engine());
    let mut best: Option<(Position, Hit)> = None;
    let threads = within(view, scope)?;
    let mut at = Vec::new();
    for t in &threads {
        at.push(match *t == home {
            true => Some(view.count()),
            false => match engine.count_at(*t, here)? {
                // Its last instant is over too.
                Some(n) if n == engine.scan(*t)?.to && engine.position(*t, n)? < here => {
                    Some(n + 1)
                }
                other => other,
            },
        });
    }
    let mut width = WINDOW;
    let mut down = here.segment;
    loop {
        down = match threads.len() {
            1 => 0,
            _ => down.saturating_sub(width),
        };
        width = width.saturating_mul(2);
        for (t, hi) in threads.iter().zip(&mut at) {
            let Some(high) = *hi else { continue };
            let scan = engine.scan(*t)?;
            // The first segment that was opened at `down` or later.
            let i = match scan.nth(*t, 0).opens >= down {
                true => 0,
                false => scan.numbers.partition_point(|n| n.0 < down) + 1,
            };
            let start = match scan.numbers.get(i.wrapping_sub(1)) {
                _ if i == 0 => scan.from,
                Some(n) => n.1,
                // Its last instant comes later, too.
                None => scan.to.saturating_add(1),
            };
            let mut lo = start.min(high);
            if let Some((p, _)) = &best {
                lo = lo
                    .max(engine.count_at(*t, *p)?.unwrap_or(scan.from))
                    .min(high);
            }
            let stretch = SearchRange {
                thread: *t,
                lo,
                hi: high,
                first: lo,
            };
            if let Some(h) = backward_in(view, stretch, stops)? {
                let p = engine.position(*t, h.count)?;
                if best.as_ref().is_none_or(|b| p > b.0) {
                    best = Some((p, h));
                }
            }
            *hi = Some(start.min(high));
        }
        if best.is_some() || down == 0 {
            return Ok(best.map(|b| b.1));
        }
    }
}
