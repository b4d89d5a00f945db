//! When a thread writes key frames and digests. All values are positions, and `u64::MAX` is never.

use crate::sys::{self, config};
use crate::thread::Thread;

/// A key frame costs as much as this many instructions per byte of the program's memory.
const KEYFRAME_COST: u64 = 128;

/// A digest that has been due for this many intervals is worth a few single steps.
const LATE: u64 = 16;

/// Positions from which on something is due. Only the thread itself uses them.
pub struct Schedule {
    /// The first position at which [`Thread::observe`] has anything to do. So the main loop
    /// compares only once.
    any: u64,
    /// The next key frame.
    keyframe: u64,
    /// The next digest of all registers.
    digest: u64,
}

impl Schedule {
    /// Nothing is ever due.
    pub(super) const fn new() -> Schedule {
        Schedule {
            any: u64::MAX,
            keyframe: u64::MAX,
            digest: u64::MAX,
        }
    }

    /// Whether [`Thread::observe`] has something to do.
    pub fn is_due(&self, pos: u64) -> bool {
        pos >= self.any
    }

    /// Whether a key frame is due.
    pub fn is_keyframe_due(&self, pos: u64) -> bool {
        pos >= self.keyframe
    }

    /// Whether a digest is due.
    pub fn is_digest_due(&self, pos: u64) -> bool {
        pos >= self.digest
    }

    /// Nothing is due until [`Thread::reschedule`].
    pub fn pause(&mut self) {
        self.any = u64::MAX;
    }

    /// Notes that a digest was written at `pos`.
    pub fn digest_written(&mut self, pos: u64) {
        self.digest = pos + config::get().digest_interval;
    }

    /// Notes that a key frame was written at `pos`.
    pub(super) fn keyframe_written(&mut self, pos: u64) {
        let c = config::get();
        // An emptied window is filled again from the trace. So the program first has to do enough
        // to pay for that.
        let resident = sys::peak_memory() / 2;
        self.keyframe = match c.keyframe_interval {
            0 => u64::MAX,
            n => later(pos, n).max(later(pos, (resident * KEYFRAME_COST).min(1 << 60))),
        };
        self.digest = later(pos, c.digest_interval);
    }
}

/// `n` instructions behind `pos`. Never, if `n` is 0.
fn later(pos: u64, n: u64) -> u64 {
    match n {
        0 => u64::MAX,
        n => pos.saturating_add(n),
    }
}

impl Thread {
    /// Whether what is due is worth stopping the thread for, which takes a dozen single steps. A
    /// key frame is. A digest is when it has been due for long.
    pub fn is_pressed(&self) -> bool {
        let s = &self.schedule;
        let interval = config::get().digest_interval;
        let late = s.digest.saturating_add(interval.saturating_mul(LATE));
        let asked = self.emit.wishes() != 0 || self.emit.is_long();
        s.is_keyframe_due(self.pos) || self.pos >= late || asked
    }

    /// Computes from which position on [`Thread::observe`] has something to do.
    pub fn reschedule(&mut self) {
        let due = self.schedule.keyframe.min(self.schedule.digest);
        self.schedule.any = due.min(self.shared_pages.next());
    }

    /// Key frames are due after so many instructions more. In the quiet regime they restate the
    /// memory.
    pub fn schedule_quiet(&mut self, instructions: u64) {
        self.schedule.keyframe = self.pos.saturating_add(instructions);
        self.shared_pages.pause();
        self.reschedule();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_due_before_something_was_scheduled() {
        let s = Schedule::new();
        for pos in [0, 1, u64::MAX - 1] {
            assert!(!s.is_due(pos) && !s.is_keyframe_due(pos) && !s.is_digest_due(pos));
        }
    }

    #[test]
    fn later_is_never_for_no_interval_and_does_not_overflow() {
        assert_eq!(later(5, 0), u64::MAX);
        assert_eq!(later(5, 7), 12);
        assert_eq!(later(u64::MAX - 1, 7), u64::MAX);
    }
}
