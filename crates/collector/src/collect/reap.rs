//! Producers that are gone without a word, and those that are waited for.

use super::Collector;
use crate::alive;
use crate::lane::Lane;
use hindsight_events::ring::{kind, state};
use std::io::Write;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// A ring is idle for this long before its producer is looked after.
const IDLE: Duration = Duration::from_millis(300);

/// A ring is claimed for this long before its producer is looked after: a child may have to put
/// its own process id in the place of its parent's, which is gone.
const CLAIM: Duration = Duration::from_secs(2);

/// Longest time to wait, when the program has ended, for processes to appear that it made.
const NEWBORN: Duration = Duration::from_secs(2);

/// Longest time, when the program has ended, that a silent process is waited for of which is not
/// known whether it lives.
const UNKNOWN: Duration = Duration::from_secs(3);

impl<W: Write> Collector<'_, W> {
    /// Whether a process other than the program may still have something to say.
    pub(super) fn more(&mut self, now: Instant, over: Instant) -> bool {
        // Whether a process in another namespace of ids still lives is not known; it had its time.
        let free = |l: &Lane| {
            l.ctl().state.load(Acquire) == state::FREE
                || l.ctl().pid.load(Relaxed) < 0 && now - over.max(l.active) > UNKNOWN
        };
        self.expected
            .retain(|pid, since| now - over.max(*since) < NEWBORN && alive::process(*pid));
        self.control.header().bury(alive::process);
        let unborn = self.control.header().unborn.load(Acquire);
        if unborn != self.unborn.0 {
            self.unborn = (unborn, now);
        }
        // What is killed before it has a ring stays in that number, if it is not known who that is.
        let newborn = unborn > 0 && now - over.max(self.unborn.1) < NEWBORN;
        newborn || !self.expected.is_empty() || !self.lanes.iter().all(free)
    }

    /// Closes the rings whose producers are gone. `all`: also those that were busy a moment ago.
    pub(super) fn reap(&mut self, now: Instant, all: bool) {
        self.reaped = now;
        self.expected.retain(|pid, _| alive::process(*pid));
        for i in self.taken() {
            let lane = &mut self.lanes[i];
            let ctl = lane.ctl();
            let (pid, tid) = (ctl.pid.load(Relaxed), ctl.tid.load(Relaxed));
            let idle = now.saturating_duration_since(lane.active);
            match ctl.state.load(Acquire) {
                state::FREE => lane.active = now,
                state::CLAIMED => {
                    if idle >= CLAIM && !alive::process(pid) {
                        lane.free(i, self.control.header(), self.thrifty);
                    }
                }
                _ if idle < IDLE && !all => {}
                _ => {
                    let alive = if ctl.kind.load(Relaxed) == kind::IMAGE {
                        let left = self.images.has_left(ctl.image.load(Relaxed));
                        alive::process(pid) && (!left || alive::recorded(pid))
                    } else {
                        alive::thread(pid, tid)
                    };
                    if !alive {
                        // What came between the last drain and the end.
                        self.drain(i);
                        self.close(i, true);
                    }
                }
            }
        }
    }

    /// Closes the streams of images that processes have left by executing another program.
    pub(super) fn bury(&mut self) {
        for (image, pid) in std::mem::take(&mut self.replaced) {
            for i in self.taken() {
                let ctl = self.lanes[i].ctl();
                let life = ctl.state.load(Acquire);
                if matches!(life, state::LIVE | state::ENDED)
                    && ctl.image.load(Relaxed) == image
                    && ctl.pid.load(Relaxed) == pid
                {
                    self.drain(i);
                    self.close(i, true);
                }
            }
            self.begun.remove(&(image, pid));
        }
    }
}
