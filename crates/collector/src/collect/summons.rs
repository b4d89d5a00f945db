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

/// Of this many processes it is remembered that they are recorded ones.
const MOST_KNOWN: usize = 4096;

/// A thread that may be in translated code which is recorded: its stream, process and thread id.
/// Before its first event it has no handler yet, and the signal would kill it.
fn computes(lane: &Lane) -> Option<(StreamId, i32, i32)> {
    // What is held back may say that it is in a call.
    let whole = !lane.broken && lane.held.is_none();
    let open = lane.open.as_ref().filter(|_| whole)?;
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
            let Some((_, pid, tid)) = computes(lane) else {
                continue;
            };
            let ran = || Some(alive::stat(pid, tid)?.ran);
            if lane.still.is_over(lane.consumer.position(), now, ran) {
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
            if alive::stat(who.1, who.2).is_some_and(|stat| stat.state != b'R') {
                continue;
            }
            if self.is_ours(*i, who.1) {
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

    /// Whether a process is a recorded one, which has the control file. The ids in a ring may be
    /// anybody's.
    fn is_ours(&mut self, i: usize, pid: i32) -> bool {
        let began = alive::stat(pid, pid).map(|stat| stat.began);
        let image = self.lanes[i].open.as_ref().map(|open| open.info.image);
        let key = image.zip(began).map(|(image, began)| (image, pid, began));
        // A process of thousands of threads has tens of thousands of mappings, and reading them takes
        // tens of milliseconds.
        if key.is_some_and(|key| self.ours.contains(&key)) {
            return true;
        }
        let ours = self.control.is_shared_with(pid);
        if self.ours.len() >= MOST_KNOWN {
            self.ours.clear();
        }
        self.ours.extend(key.filter(|_| ours));
        ours
    }
}
