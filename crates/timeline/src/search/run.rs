//! Runs to the next or previous stop.

use super::changes;
use super::hit::Hit;
use super::threads::{backward, forward};
use crate::model::memory::Found;
use crate::model::stops::*;
use crate::play::Viewpoint;
use crate::{Result, ThreadId};

/// See [`Cursor::run`].
pub fn run(
    view: &mut Viewpoint,
    direction: Direction,
    scope: Scope,
    stops: &mut Stops,
) -> Result<Stop> {
    let home = (view.thread(), view.count());
    let stop = go(view, direction, scope, stops);
    back_if_ended(view, home, stop)
}

fn go(view: &mut Viewpoint, direction: Direction, scope: Scope, stops: &mut Stops) -> Result<Stop> {
    let home = view.thread();
    if let Some(h) = nearest(view, direction, scope, stops)? {
        view.set_position(h.thread, h.count)?;
        if let (Reason::Breakpoint { .. } | Reason::Call { .. }, Some(pc)) = (&h.reason, h.pc) {
            // The stop is before a handler's first instruction. The thread must have taken the signal.
            view.player(h.thread)?.enter_at(pc)?;
        }
        return view.stop(h.reason);
    }
    // There is no stop: go to the end of the scope.
    let ends = view.scope_bounds(home, scope)?;
    let (thread, count, reason) = match direction {
        Direction::Forward => (ends.1.0, ends.1.1, Reason::End),
        Direction::Backward => (ends.0.0, ends.0.1, Reason::Begin),
    };
    view.set_position(thread, count)?;
    view.stop(reason)
}

/// Moves the viewpoint back if a search failed or was cancelled.
pub fn back_if_ended(
    view: &mut Viewpoint,
    home: (ThreadId, u64),
    stop: Result<Stop>,
) -> Result<Stop> {
    match stop {
        Ok(Stop {
            reason: Reason::Cancelled,
            ..
        })
        | Err(crate::Error::Cancelled) => {
            view.go_back(home);
            view.stop(Reason::Cancelled)
        }
        Err(e) => {
            view.go_back(home);
            Err(e)
        }
        stop => stop,
    }
}

/// The next or previous stop. The cursor stays, but its virtual processors may stand anywhere afterwards.
pub fn nearest(
    view: &mut Viewpoint,
    direction: Direction,
    scope: Scope,
    stops: &mut Stops,
) -> Result<Option<Hit>> {
    let home = (view.thread(), view.count());
    let found = match direction {
        Direction::Forward => forward(view, scope, stops),
        Direction::Backward if stops.values.is_empty() => backward(view, scope, stops),
        Direction::Backward => changes::backward(view, scope, stops),
    };
    // Comparing values moves the cursor itself.
    view.note_position(home.0, home.1);
    found
}

/// The nearest access to any of these bytes in the way that `watch` says. Backwards it lies before the viewpoint,
/// forwards at the viewpoint or later. The viewpoint stays.
pub fn find(
    view: &mut Viewpoint,
    direction: Direction,
    address: u64,
    len: u64,
    watch: Watch,
) -> Result<Option<Found>> {
    let mut stops = Stops {
        watchpoints: vec![Watchpoint {
            id: 0,
            address,
            len,
            watch,
            image: None,
        }],
        ..Stops::default()
    };
    let found = nearest(view, direction, Scope::Process, &mut stops)?;
    let Some(Hit {
        thread: other,
        reason:
            Reason::Watchpoint {
                count: at,
                address,
                len,
                read,
                write,
                kernel,
                ..
            },
        pc,
        ..
    }) = found
    else {
        return Ok(None);
    };
    let pc = match pc {
        Some(pc) => pc,
        None => {
            let p = view.player(other)?;
            p.go(at)?;
            p.registers().rip
        }
    };
    Ok(Some(Found {
        thread: other,
        position: view.engine().position(other, at)?,
        count: at,
        pc,
        address,
        len,
        read,
        write,
        kernel,
    }))
}
