//! Has a ring take out code and mappings that nothing needs any more.

use super::Collector;
use crate::alive;
use crate::output::Output;
use hindsight_events::consumer::Life;
use hindsight_trace::StreamKind;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Time between looks: longer than events are gathered before they become a chunk
/// ([`super::FLUSH_AFTER`]), so that what was seen at one is in chunks at the next.
const PRUNE_EVERY: Duration = Duration::from_secs(3);

/// Images, and epochs of their code.
type Epochs = Vec<(u32, (u64, u64))>;

impl<W: Write> Collector<'_, W> {
    /// One round, see [`hindsight_trace::Ring::begin_round`].
    pub(super) fn prune(&mut self, now: Instant, stop: &AtomicBool) {
        if now - self.pruned < PRUNE_EVERY {
            return;
        }
        let Some(Output::Ring(ring)) = &mut self.out.output else {
            return;
        };
        self.pruned = now;
        ring.begin_round();
        // All that was written before the round began. Who has an epoch from the code has said so under
        // the lock under which code is written, and what is new takes its epoch once its ring is taken.
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

    /// The epochs at which threads stand, and those that are named in what has not become a chunk; `None`
    /// if that is not known of all: a thread or process has just been born.
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
            let open = lane.open.as_ref().filter(|_| lane.pending.is_empty())?;
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
