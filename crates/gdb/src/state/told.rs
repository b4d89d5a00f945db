//! What gdb is told of a stop.

use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::breakpoints::WatchKind;
use hindsight_timeline::Watch;

/// How gdb was told that it stopped.
pub type Told = MultiThreadStopReason<u64>;

/// What gdb calls a watchpoint of this kind.
pub fn kind(w: Watch) -> WatchKind {
    match w {
        Watch::Read => WatchKind::Read,
        Watch::Write => WatchKind::Write,
        Watch::Access => WatchKind::ReadWrite,
    }
}
