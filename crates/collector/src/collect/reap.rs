//! Finds producers that have ended without saying so, and decides how long others are waited for.

use super::Collector;
use crate::alive;
use crate::lane::Lane;
use hindsight_events::consumer::Life;
use hindsight_trace::StreamKind;
use std::io::Write;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// A ring has to be idle for this long before the collector looks whether its producer is gone.
const IDLE: Duration = Duration::from_millis(300);

/// The same for a ring that is claimed only. A child may still have to replace the process id of
/// its parent, which is gone, by its own.
const CLAIM: Duration = Duration::from_secs(2);

/// When the program has ended: longest time to wait for processes that it has made to appear.
const NEWBORN: Duration = Duration::from_secs(2);

/// When the program has ended: longest time to wait for a silent process of which it is not known
/// whether it lives.
const UNKNOWN: Duration = Duration::from_secs(3);

impl<W: Write> Collector<'_, W> {
    /// Whether a process other than the program may still have something to say.
    pub(super) fn more(&mut self, now: Instant, over: Instant) -> bool {
        // Nobody knows whether a process in another namespace of ids still lives. It has had its
        // time.
        let busy = |l: &Lane| {
            let since = now - over.max(l.active);
            match (&l.open, l.consumer.life()) {
                (Some(open), _) => open.info.pid >= 0 || since <= UNKNOWN,
                (None, Life::Live | Life::Ended) => true,
                // A process that was killed in between leaves the ring like this.
                (None, Life::Claimed) => since <= CLAIM,
                (None, Life::Free | Life::Nonsense) => false,
            }
        };
        self.expected
            .retain(|pid, since| now - over.max(*since) < NEWBORN && alive::process(*pid));
        self.control.header().bury(alive::process);
        let unborn = self.control.header().unborn.load(Acquire);
        if unborn != self.unborn.0 {
            self.unborn = (unborn, now);
        }
        // A process that was killed before it has a ring stays in that number, if nobody knows its
        // id.
        let newborn = unborn > 0 && now - over.max(self.unborn.1) < NEWBORN;
        // A ring that does not say that it is taken is looked at all the same.
        let unseen = |l: &Lane| l.open.is_none() && l.consumer.life().has_begun();
        let unseen = (0..self.lanes.len()).filter(|i| unseen(&self.lanes[*i]));
        self.hot.extend(unseen);
        newborn || !self.expected.is_empty() || self.lanes.iter().any(busy)
    }

    /// Closes the rings whose producers are gone. `all`: also those that were busy a moment ago.
    pub(super) fn reap(&mut self, now: Instant, all: bool) {
        self.reaped = now;
        self.expected.retain(|pid, _| alive::process(*pid));
        for i in 0..self.lanes.len() {
            let lane = &mut self.lanes[i];
            let idle = now.saturating_duration_since(lane.active);
            let Some(open) = &lane.open else {
                match lane.consumer.life() {
                    Life::Free | Life::Nonsense => lane.active = now,
                    Life::Claimed if idle >= CLAIM && !alive::process(lane.consumer.who().pid) => {
                        lane.free(i, self.control.header(), self.thrifty);
                    }
                    _ => {}
                }
                continue;
            };
            if idle < IDLE && !all {
                continue;
            }
            let (pid, tid) = (open.info.pid, open.info.tid);
            let alive = if open.info.kind == StreamKind::Image {
                let image = open.info.image;
                let left = self.images.has_left(image);
                let own = alive::process(pid) && !self.images.is_replaced(image);
                // Others in the memory of its process outlive it.
                own && (!left || alive::recorded(pid)) || self.images.open(image) > 1
            } else {
                alive::thread(pid, tid)
            };
            // If the program has written numbers of its own, they may be anybody's.
            let stranger =
                alive && pid > 0 && self.control.is_damaged() && !self.control.is_shared_with(pid);
            if !alive || stranger {
                // Takes what came between the last look and the end.
                self.drain(i);
                // A copy of the process may still make a key frame.
                if self.lanes[i].held.is_none() {
                    self.close(i, true);
                }
            }
        }
    }

    /// Closes the streams of images that processes have left by executing another program.
    pub(super) fn bury(&mut self) {
        for (image, pid) in std::mem::take(&mut self.replaced) {
            let is_shared = self.lanes.iter().any(|l| l.shares(image, pid));
            let its: Vec<usize> = (0..self.lanes.len())
                .filter(|i| self.lanes[*i].is_of(image, pid))
                .collect();
            its.iter().for_each(|i| {
                self.drain(*i);
            });
            if its.iter().any(|i| self.lanes[*i].held.is_some()) {
                // A key frame is put into its stream in pieces, and between them the other rings are looked at.
                self.replaced.push((image, pid));
                continue;
            }
            for i in its {
                // It may have ended by now, and another one have begun there.
                if !self.lanes[i].is_of(image, pid) {
                    continue;
                }
                let open = self.lanes[i].open.as_ref();
                if is_shared && open.is_some_and(|o| o.info.kind == StreamKind::Image) {
                    self.images.replace(image);
                } else {
                    self.close(i, true);
                }
            }
            self.begun.remove(&(image, pid));
        }
    }
}
