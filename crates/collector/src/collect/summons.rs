//! Makes threads come to the recorder. A loop whose blocks are linked to each other never does by
//! itself: it would have neither key frames nor digests, and nobody would know where it stands.
//!
//! A thread is summoned by a signal that only the recorder's handler sees. It must not come in a
//! system call of the program, which it might end. So:
//!
//! 1. The collector asks the thread to begin no call (`wish::WAIT`).
//! 2. It waits for [`PAUSE`], until the thread's processor has certainly seen that. A store reaches
//!    the other processors in far less.
//! 3. It takes what is in the ring. A thread says that it begins a call before it looks at the wish.
//!    So a call that the collector does not see now has not begun, and will not.
//! 4. It signals the thread, and lets it begin calls again.

use super::Collector;
use crate::alive;
use crate::lane::Lane;
use hindsight_trace::{StreamId, StreamKind};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Time between two looks at which threads have come.
const EVERY: Duration = Duration::from_millis(100);

/// See above.
const PAUSE: Duration = Duration::from_millis(1);

/// A thread that may be in translated code which is recorded: its stream, process and thread id.
/// Before its first event it has no handler yet, and the signal would kill it.
fn computes(lane: &Lane) -> Option<(StreamId, i32, i32)> {
    let open = lane.open.as_ref().filter(|_| !lane.broken)?;
    let info = &open.info;
    let thread = info.kind == StreamKind::Thread && open.end.is_none();
    let inside = !open.is_in_call() && !open.is_in_gap();
    let known = thread && open.first.is_some() && inside && info.pid > 1;
    known.then_some((info.stream, info.pid, info.tid))
}

impl<W: Write> Collector<'_, W> {
    /// Summons the threads that have not come to the recorder for long.
    pub(super) fn summon_still(&mut self, now: Instant, stop: &AtomicBool) {
        if !self.has_keyframes || now - self.summoned < EVERY {
            return;
        }
        self.summoned = now;
        let mut still = Vec::new();
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            if computes(lane).is_some() && lane.still.is_over(lane.consumer.position(), now) {
                still.push(i);
            }
        }
        self.summon(&still, stop);
    }

    /// Makes the threads of these rings come to the recorder, unless they are in a system call.
    pub(super) fn summon(&mut self, rings: &[usize], stop: &AtomicBool) {
        let mut wanted = Vec::new();
        for i in rings {
            let Some(who) = computes(&self.lanes[*i]) else {
                continue;
            };
            // A thread that waits for something else is in a call, or is stopped.
            let began = match alive::stat(who.1, who.2) {
                Some((b'R', began)) => began,
                Some(_) => continue,
                None => 0,
            };
            if self.is_ours(*i, who, began) {
                self.lanes[*i].consumer.hold_calls();
                wanted.push((*i, who));
            }
        }
        if wanted.is_empty() {
            return;
        }
        std::thread::sleep(PAUSE);
        self.look(true, stop);
        for (i, who) in wanted {
            let lane = &self.lanes[i];
            // A look that was told to stop has not seen everything.
            let seen = !stop.load(Relaxed);
            if seen && computes(lane) == Some(who) && alive::takes_signals(who.1, who.2) {
                alive::kick(who.1, who.2);
            }
            lane.consumer.let_call();
        }
    }

    /// Whether a thread belongs to a recorded process, which has the control file. The ids in a ring
    /// may be anybody's.
    fn is_ours(&mut self, i: usize, who: (StreamId, i32, i32), began: u64) -> bool {
        let known = Some((who.0, began));
        // Reading the mappings of a process may take long.
        if began != 0 && self.lanes[i].still.known == known {
            return true;
        }
        let ours = self.control.is_shared_with(who.1);
        self.lanes[i].still.known = known.filter(|_| ours);
        ours
    }
}
