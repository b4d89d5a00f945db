//! What gdb is told of a stop.

use hindsight_packets::{Event, Signal, Tid, WatchKind};
use hindsight_timeline::Watch;

/// Where and why a thread of the active process stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    pub tid: Tid,
    pub signal: Signal,
    pub event: Event,
}

impl Told {
    /// A stop of which the signal says all.
    pub fn signal(tid: Tid, signal: Signal) -> Told {
        let event = Event::Nothing;
        Told { tid, signal, event }
    }

    /// A stop with an event.
    pub fn event(tid: Tid, event: Event) -> Told {
        let signal = Signal::TRAP;
        Told { tid, signal, event }
    }
}

/// What gdb calls a watchpoint of this kind.
pub fn kind(w: Watch) -> WatchKind {
    match w {
        Watch::Read => WatchKind::Read,
        Watch::Write => WatchKind::Write,
        Watch::Access => WatchKind::Access,
    }
}
