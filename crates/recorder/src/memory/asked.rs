//! Marks that are asked for from outside (see [`hindsight_events::asked`]).

use super::regime;
use crate::stream::ring;
use crate::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use hindsight_events::Event;
use hindsight_events::ring::wish;

/// Sets the mark that is asked for, if there is one. The thread stands between two instructions, and a state point that belongs
/// to the mark is made next.
///
/// Such a mark belongs before the last instruction, as where the program asks for a state point. If that instruction has an
/// event, it may be too late for a mark there. Then the mark waits until the thread comes here again.
pub fn between(t: &mut Thread) {
    let Some(state) = wanted(t) else { return };
    if state && t.emit.position().saturating_add(1) >= t.pos {
        return;
    }
    put(t, t.pos - state as u64, state);
}

/// Says that a mark is in the stream, and that its state point is, or cannot be.
pub fn tell(t: &mut Thread) {
    if let (Some(at), Some(header)) = (t.regime.asked.take(), ring::header()) {
        header.asked.set(at);
    }
}

/// Whether a mark is asked for, and whether with a state point that can be made.
fn wanted(t: &Thread) -> Option<bool> {
    if t.emit.wishes() & wish::MARK == 0 {
        return None;
    }
    let state = ring::header()?.asked.state.load(Relaxed) != 0;
    Some(state && t.regime.quiet && !t.is_unrecorded())
}

fn put(t: &mut Thread, at: u64, state: bool) {
    let Some(header) = ring::header() else { return };
    // The collector may have taken it back.
    if !t.emit.take_mark() {
        return;
    }
    let bytes = header.asked.name.read();
    let name = bytes.len();
    let now = core::mem::replace(&mut t.pos, at);
    t.event(&Event::Mark {
        name,
        bytes: &bytes,
    });
    t.pos = now;
    if state {
        t.regime.asked = Some(at);
        regime::state_point(t);
    } else {
        t.regime.marked = at + 1;
        header.asked.set(at);
    }
}
