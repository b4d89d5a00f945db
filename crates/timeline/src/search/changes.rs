//! Writes that change what is watched ([`Stops::values`]), among perhaps millions that leave it as it was.
//!
//! Until the first change, what is watched holds what it held where the run began. So forwards the first write that
//! leaves anything else there is the first change, whoever wrote before, and the thread that writes knows it by
//! itself. Backwards the last write that leaves anything else is not the change: that is what brought in again, behind
//! it, what is there now.

use super::events::first_other;
use super::hit::Hit;
use super::threads::{backward as backward_to_any, forward};
use crate::model::stops::*;
use crate::play::Viewpoint;
use crate::{Position, Result, ThreadId};

/// What watchpoints hold that are compared.
fn compared<'a>(stops: &'a Stops) -> impl Iterator<Item = (Watchpoint, &'a [u8])> {
    let value = |w: &Watchpoint| stops.values.iter().find(|v| v.id == w.id);
    let all = stops.watchpoints.iter();
    all.filter_map(move |w| Some((*w, value(w)?.bytes.as_slice())))
}

/// The same as [`super::threads::backward`] where some watchpoints stop only at changes.
pub fn backward(
    view: &mut Viewpoint,
    scope: Scope,
    stops: &mut Stops,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    let home = (view.thread(), view.count());
    let here = view.position()?;
    let begin = view.scope_bounds(home.0, scope)?.0;
    let hit = backward_to_any(view, scope, stops, cancel)?;
    let mut at = match &hit {
        Some(h) => match h.reason {
            // Behind it everything that is written is what is there now.
            Reason::Watchpoint { id, .. } if stops.values.iter().any(|v| v.id == id) => {
                (h.thread, h.count + 1)
            }
            _ => (h.thread, h.count),
        },
        None => begin,
    };
    let mut last = hit;
    // Each change brings in at least one byte.
    let mut done: Vec<u64> = Vec::new();
    for (w, value) in compared(stops) {
        while let Some(address) = first_other(view, at, (w, value), &done, cancel)? {
            let byte = Watchpoint {
                address,
                len: 1,
                ..w
            };
            // If there is none, something changed it that is not recorded as a write.
            if let Some(h) = next_write(view, at, scope, byte, here, cancel)? {
                at = (h.thread, h.count + 1);
                last = Some(h);
            }
            done.push(address);
        }
        done.clear();
    }
    view.set_position(home.0, home.1)?;
    Ok(last)
}

/// The first write from a place on and before `end`, as a stop on the way back.
fn next_write(
    view: &mut Viewpoint,
    from: (ThreadId, u64),
    scope: Scope,
    w: Watchpoint,
    end: Position,
    cancel: &Cancel,
) -> Result<Option<Hit>> {
    view.set_position(from.0, from.1)?;
    let mut stops = Stops {
        watchpoints: vec![w],
        ..Stops::default()
    };
    let Some(h) = forward(view, scope, &mut stops, cancel)? else {
        return Ok(None);
    };
    let count = h.count - 1;
    let before = view.engine().position(h.thread, count)? < end;
    Ok(before.then_some(Hit { count, ..h }))
}
