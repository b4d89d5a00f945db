//! What a thread does now and then between two instructions, and what happens where memory becomes
//! fresh.

use crate::memory::{asked, page_sharing, placement, regime};
use crate::thread::{Thread, ZERO_LIMIT};
use hindsight_events::Event;
use hindsight_events::ring::wish;

impl Thread {
    /// Does what is due: marks from outside, key frames, digests, page sharing.
    pub fn observe(&mut self) {
        asked::between(self);
        // What the kernel has just written belongs to what came before. So a key frame waits for
        // the next instruction.
        let apart = self.emit.position() < self.pos;
        let due = self.schedule.is_keyframe_due(self.pos) || self.emit.is_long();
        let asked = self.emit.wishes() & wish::STATE != 0;
        let unnamed = self.regime.marked != self.pos;
        if apart && unnamed && (due || asked) && self.regime.quiet {
            self.regime.wants_state |= asked;
            regime::restate(self);
            self.emit.grant(wish::STATE);
            // Whether there was a key frame or not: it is not tried again at once.
            self.emit.framed();
        } else if apart && !self.regime.quiet && (due || self.emit.wants_keyframe()) {
            self.keyframe();
        } else if self.schedule.is_digest_due(self.pos) {
            let (cpu, vec) = (self.cpu().digest(), self.vec().digest());
            self.event(&Event::Digest { cpu, vec });
            self.schedule.digest_written(self.pos);
        }
        asked::tell(self);
        if self.emit.wishes() & wish::POSITION != 0 {
            // Replay compares a digest, so this proves the position.
            if self.emit.position() < self.pos {
                let (cpu, vec) = (self.cpu().digest(), self.vec().digest());
                self.event(&Event::Digest { cpu, vec });
            }
            self.emit.grant(wish::POSITION);
        }
        page_sharing::look(self);
        self.reschedule();
    }

    /// Records that `addr..addr+len` holds zeros now, and clears its cells.
    ///
    /// - In a gap nothing is done.
    /// - In the quiet regime, cells of other memory in use are left alone.
    /// - Ranges of [`ZERO_LIMIT`] bytes or more are not cleared.
    pub fn zero_window(&mut self, addr: u64, len: u64) {
        if self.gaps.is_open() {
            return;
        }
        if self.regime.quiet {
            if len > crate::sys::quiet::MAX_MAPPING {
                self.regime.end_soon("the program maps a very large range");
            } else if len != 0 {
                for (addr, len) in placement::apart(addr, len) {
                    self.event(&Event::Zero { addr, len });
                }
            }
            return;
        }
        self.shared_pages.forget(addr, len);
        if len == 0 || len >= ZERO_LIMIT || len > self.window.predictor().size() {
            return regime::changed(self, addr, len);
        }
        self.event(&Event::Zero { addr, len });
        let size = self.window.predictor().size();
        let start = self.window.predictor().cell(addr);
        let first = len.min(size - start);
        self.zero_cells(start, first);
        self.zero_cells(0, len - first);
    }
}
