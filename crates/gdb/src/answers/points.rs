//! Breakpoints and watchpoints: `Z`, `z`.

use crate::state::agent;
use crate::state::inferior::Inferior;
use crate::state::session::Session;
use crate::state::stops::Break;
use hindsight_packets::{Answer, Kind, Point, Points, WatchKind};
use hindsight_timeline::{Watch, Watchpoint};
use std::sync::Arc;

/// There is no such point: EINVAL.
const NO_POINT: u8 = 22;

pub fn answer(session: &mut Session, request: Points) -> Answer {
    match request {
        Points::Insert(point) => {
            insert(&mut session.inferior, point);
            Answer::ok()
        }
        Points::Remove(point) => match remove(&mut session.inferior, &point) {
            true => Answer::ok(),
            false => Answer::error(NO_POINT),
        },
    }
}

/// Sets a point; a breakpoint in place of one that is there.
fn insert(inferior: &mut Inferior, point: Point) {
    if let Kind::Watchpoint(kind) = point.kind {
        let ids = inferior.watches.iter().map(|w| w.id);
        inferior.watches.push(Watchpoint {
            id: ids.max().map_or(0, |n| n + 1),
            address: point.address,
            len: point.len,
            watch: watch(kind),
            image: Some(inferior.image),
        });
        return;
    }
    remove(inferior, &point);
    inferior.breaks.push(Break {
        address: point.address,
        hardware: point.kind == Kind::HardwareBreakpoint,
        condition: (!point.conditions.is_empty())
            .then(|| Arc::new(agent::expression(&point.conditions))),
    });
}

/// Removes a point; whether there was one.
fn remove(inferior: &mut Inferior, point: &Point) -> bool {
    if let Kind::Watchpoint(kind) = point.kind {
        let place = (point.address, point.len, watch(kind));
        let is = |w: &Watchpoint| (w.address, w.len, w.watch) == place;
        let found = inferior.watches.iter().position(is);
        return found.map(|i| inferior.watches.remove(i)).is_some();
    }
    let place = (point.address, point.kind == Kind::HardwareBreakpoint);
    let before = inferior.breaks.len();
    inferior.breaks.retain(|b| (b.address, b.hardware) != place);
    inferior.breaks.len() < before
}

fn watch(kind: WatchKind) -> Watch {
    match kind {
        WatchKind::Write => Watch::Write,
        WatchKind::Read => Watch::Read,
        WatchKind::Access => Watch::Access,
    }
}
