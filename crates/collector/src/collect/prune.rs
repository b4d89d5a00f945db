//! Makes a ring remove code and mappings that nothing needs any more.

use super::Collector;
use crate::alive;
use crate::output::Output;
use hindsight_events::consumer::Life;
use hindsight_trace::StreamKind;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Time between two looks. It is longer than events are gathered before they become a chunk
/// ([`super::FLUSH_AFTER`]). So what one look has seen is in chunks at the next.
const PRUNE_EVERY: Duration = Duration::from_secs(3);

/// Images, and epochs of their code.
type Epochs = Vec<(u32, (u64, u64))>;

impl<W: Write> Collector<'_, W> {
    /// Makes one round (see [`hindsight_trace::Ring::begin_round`]).
    pub(super) fn prune(&mut self, now: Instant, stop: &AtomicBool) {
        if now - self.pruned < PRUNE_EVERY {
            return;
        }
        let Some(Output::Ring(ring)) = &mut self.out.output else {
            return;
        };
        self.pruned = now;
        ring.begin_round();
        // Takes all that was written before the round began. A thread that has an epoch has said so
        // under the lock under which code is written. A new thread takes its epoch after its ring
        // is taken.
        self.look(true, stop);
        let live = self.settled();
        let Some(Output::Ring(ring)) = &mut self.out.output else {
            return;
        };
        if let Some(live) = live
            && let Err(e) = ring.end_round(&live)
        {
            self.fail(e);
        }
    }

    /// The epochs at which threads stand, and those that are named in what has not become a chunk.
    /// `None` if some are not known, since a thread or process was just born.
    fn settled(&mut self) -> Option<Epochs> {
        let header = self.control.header();
        header.bury(alive::process);
        if header.unborn.load(Acquire) != 0 {
            return None;
        }
        let mut live = Vec::new();
        for i in self.live() {
            self.meet(i);
            let lane = &self.lanes[i];
            let free = matches!(lane.consumer.life(), Life::Free | Life::Nonsense);
            if lane.broken || lane.open.is_none() && free {
                continue;
            }
            let open = lane
                .open
                .as_ref()
                .filter(|_| lane.pending.is_empty() && lane.held.is_none())?;
            let info = &open.info;
            match info.kind {
                StreamKind::Thread => {
                    let epoch = open.epoch?;
                    live.push((info.image, (epoch, epoch)));
                    live.extend(open.epochs.map(|e| (info.image, e)));
                }
                StreamKind::Image if info.executed || info.parent == 0 => {}
                StreamKind::Image => {
                    let epoch = open.inherited?;
                    live.push((info.parent, (epoch, epoch)));
                }
            }
        }
        Some(live)
    }
}
