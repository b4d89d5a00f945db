//! Finds writes that change watched memory ([`Stops::values`]). Perhaps millions of other writes leave it as it was.
//!
//! Watched memory holds the same from where the run began until the first change. So forwards it is simple. The first
//! write that leaves another value is the first change, whoever wrote before, and the writing thread alone can tell.
//! Backwards it is not so simple. The last write that leaves another value is not the change. The change comes after
//! it: the write that brought the present value in again.

use super::events::first_other;
use super::hit::Hit;
use super::threads::{backward as backward_to_any, forward};
use crate::model::stops::*;
use crate::play::Viewpoint;
use crate::{Position, Result, ThreadId};

/// The watchpoints that stop only at changes, with their values.
fn compared<'a>(stops: &'a Stops) -> impl Iterator<Item = (Watchpoint, &'a [u8])> {
    let value = |w: &Watchpoint| stops.values.iter().find(|v| v.id == w.id);
    let all = stops.watchpoints.iter();
    all.filter_map(move |w| Some((*w, value(w)?.bytes.as_slice())))
}

/// Like [`super::threads::backward`], where some watchpoints stop only at changes.
pub fn backward(view: &mut Viewpoint, scope: Scope, stops: &mut Stops) -> Result<Option<Hit>> {
    let home = (view.thread(), view.count());
    let here = view.position()?;
    let begin = view.scope_bounds(home.0, scope)?.0;
    let hit = backward_to_any(view, scope, stops)?;
    let mut at = match &hit {
        Some(h) => match h.reason {
            // After this write, everything that is written is what is there now.
            Reason::Watchpoint { id, .. } if stops.values.iter().any(|v| v.id == id) => {
                (h.thread, h.count + 1)
            }
            _ => (h.thread, h.count),
        },
        None => begin,
    };
    let mut last = hit;
    // Each change brings in at least one byte of the present value.
    let mut done: Vec<u64> = Vec::new();
    for (w, value) in compared(stops) {
        while let Some(address) = first_other(view, at, (w, value), &done)? {
            let byte = Watchpoint {
                address,
                len: 1,
                ..w
            };
            // If there is no write, the change is not recorded as one.
            if let Some(h) = next_write(view, at, scope, byte, here)? {
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

/// The first write from `from` on and before `end`, as a stop of a run backwards.
fn next_write(
    view: &mut Viewpoint,
    from: (ThreadId, u64),
    scope: Scope,
    w: Watchpoint,
    end: Position,
) -> Result<Option<Hit>> {
    view.set_position(from.0, from.1)?;
    let mut stops = Stops {
        watchpoints: vec![w],
        ..Stops::default()
    };
    let Some(h) = forward(view, scope, &mut stops)? else {
        return Ok(None);
    };
    let count = h.count - 1;
    let before = view.engine().position(h.thread, count)? < end;
    Ok(before.then_some(Hit { count, ..h }))
}
