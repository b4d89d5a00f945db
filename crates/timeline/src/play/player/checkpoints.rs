//! Checkpoints of a player: it comes back to them without replaying what is before.

use super::{Need, Player, Since};
use crate::Result;
use crate::index;
use crate::model::error::replay;
use crate::recording::Chunks;
use hindsight_replay::Checkpoint;

/// At most this many checkpoints, and bytes of them, stay in memory.
const CHECKPOINTS: usize = 32;
const BYTES: usize = 64 << 20;
/// Replaying this many instructions takes less time than a checkpoint, plus `PER_BYTE` for each byte of the last one.
const NEAR: u64 = 1 << 17;
const PER_BYTE: u64 = 2;

/// A checkpoint in the interval that is played.
pub struct PlayerCheckpoint {
    pub machine: Checkpoint,
    pub since: Since,
    /// The chunk after those that had been read.
    next: usize,
    size: usize,
    /// What the recording says of memory there had taken effect.
    settled: bool,
}

impl Player {
    /// Whether `count` can be reached from here or from a checkpoint. The checkpoint is then restored. It must not lie
    /// before `least`.
    pub(super) fn near(&mut self, count: u64, need: Need, least: u64) -> bool {
        let here = self.count();
        let fresh = need == Need::Fresh;
        let fits = |s: &Since| match need {
            Need::Memory | Need::Fresh => true,
            Need::Marks => s.marks && !s.step && !s.ahead,
            _ => s.marks,
        };
        let end = self.to;
        // At a border, what is due belongs to the interval that begins.
        let within = |until: u64| count < until || until >= end;
        let ahead = self.at.is_some_and(|at| {
            here <= count
                && least <= here
                && fits(&at)
                && !(fresh && here == count && self.settled)
                && match at.until {
                    // The part is played as a whole. A frame may be a nearer beginning.
                    u64::MAX => !self.is_far(count),
                    until => within(until),
                }
        });
        let best = (self.checkpoints.iter().enumerate())
            .filter(|(_, s)| (least..=count).contains(&s.position()) && fits(&s.since))
            .filter(|(_, s)| ahead || within(s.since.until))
            .filter(|(_, s)| !(fresh && s.settled && s.position() == count))
            .max_by_key(|(_, s)| s.position());
        let best = best.map(|(i, s)| (i, s.position(), s.since.coarse));
        let span = index::span(&self.engine, self.thread);
        // A seek leaves a checkpoint a fine interval before its end. Who steps on from there is still near, but does not go back for it.
        let is_near = |at: u64| {
            let times = if (at..=count).contains(&here) { 1 } else { 2 };
            count - at <= span.saturating_mul(times)
        };
        match best.filter(|(_, at, _)| !ahead || here < *at) {
            Some((i, at, coarse)) if is_near(at) || coarse && self.may_play_coarse(at, count) => {
                self.restore(i, need).is_ok()
            }
            // From a coarse interval's beginning it may be far. Its part of the fine level has nearer places.
            _ if ahead && self.at.is_some_and(|at| at.coarse) && self.is_far(count) => {
                self.may_play_coarse(here, count)
            }
            _ => ahead,
        }
    }

    /// Whether it plays an interval of the coarse level in which no checkpoint can be taken.
    pub(super) fn is_in_large(&self) -> Result<bool> {
        let Some(at) = self.at.filter(|at| at.coarse) else {
            return Ok(false);
        };
        let built = self.engine.part_if_built(self.ranges[at.part]);
        built.map_or(Ok(false), |b| {
            self.engine.is_large(&b, b.interval(at.count))
        })
    }

    /// Whether it may play from one instant of a coarse interval to another one. If so, that counts from now on.
    fn may_play_coarse(&self, from: u64, count: u64) -> bool {
        let range = self.ranges[self.part(count)];
        let built = self.engine.nearest_if_built(range, count);
        built.is_some_and(|b| {
            let i = b.interval(count);
            // What cannot be told here is told by who makes the part of the fine level.
            let may = b.bounds(i).0 <= from && self.engine.may_play_coarse(&b, i).unwrap_or(false);
            if may {
                self.engine.note_coarse(&b, i, count - from);
            }
            may
        })
    }

    /// Restores a checkpoint.
    fn restore(&mut self, i: usize, need: Need) -> Result<()> {
        let s = self.checkpoints.swap_remove(i);
        self.at = None;
        let source = Chunks::new(&self.engine.recording, self.thread, s.next);
        let marks = need.has_marks();
        let done = match marks {
            true => (self.machine).restore(&self.base, &s.machine, Box::new(source)),
            false => (self.machine).restore_memory(&self.base, &s.machine, Box::new(source)),
        };
        if done.is_ok() {
            self.first = s.next - s.machine.taken();
            self.at = Some(Since { marks, ..s.since });
            self.settled = s.settled;
        }
        self.checkpoints.push(s);
        done.map_err(|e| replay(self.thread, e))
    }

    /// Takes a checkpoint.
    pub fn take_checkpoint(&mut self) -> Result<()> {
        let here = self.count();
        let has = |s: &PlayerCheckpoint| s.position() == here && s.since.marks;
        if !self.at.is_some_and(|at| at.marks) || self.checkpoints.iter().any(has) {
            return Ok(());
        }
        let machine = self.machine.checkpoint(&self.base);
        let machine = machine.map_err(|e| replay(self.thread, e))?;
        self.add_checkpoint(machine, true);
        Ok(())
    }

    /// Adds a checkpoint of the present state, with marks or without.
    pub(super) fn add_checkpoint(&mut self, machine: Checkpoint, marks: bool) {
        let Some(at) = self.at else { return };
        let size = machine.size();
        // A checkpoint may hold a whole program's file, which takes long to lay out again.
        if size > BYTES / 4 * 3 {
            return;
        }
        self.checkpoints.push(PlayerCheckpoint {
            since: Since { marks, ..at },
            next: self.first + machine.taken(),
            size,
            settled: self.settled,
            machine,
        });
        while self.checkpoints.len() > CHECKPOINTS || self.held() > BYTES {
            self.drop_one();
        }
    }

    /// Takes a checkpoint without marks, for a search that does not need them. It takes none if the nearest one is so
    /// near that replaying takes less time than a checkpoint.
    pub fn checkpoint_memory_if_far(&mut self) -> Result<()> {
        let here = self.count();
        let before = self.checkpoints.iter().filter(|s| s.position() <= here);
        let last = before.max_by_key(|s| s.position());
        if last.is_some_and(|s| here - s.position() <= NEAR + s.size as u64 * PER_BYTE) {
            return Ok(());
        }
        self.checkpoint_memory()
    }

    /// Takes a checkpoint without marks, unless there is one at this instant.
    pub fn checkpoint_memory(&mut self) -> Result<()> {
        let here = self.count();
        if (self.checkpoints.iter()).any(|s| s.position() == here && !s.settled) {
            return Ok(());
        }
        let machine = self.machine.checkpoint_memory(&self.base);
        self.add_checkpoint(machine.map_err(|e| replay(self.thread, e))?, false);
        Ok(())
    }

    /// Drops what the window held at the beginning, and so all checkpoints. Returns the memory for further use.
    pub(super) fn forget_base(&mut self) -> Vec<u8> {
        self.checkpoints.clear();
        self.at = None;
        std::mem::take(&mut self.base).into_bytes()
    }

    /// The bytes of all checkpoints.
    fn held(&self) -> usize {
        self.checkpoints.iter().map(|s| s.size).sum()
    }

    /// Drops the checkpoint that is least likely to be needed: the farthest of those ahead, otherwise the oldest. The
    /// newest one stays.
    fn drop_one(&mut self) {
        let here = self.count();
        let last = self.checkpoints.len() - 1;
        let ahead = (self.checkpoints[..last].iter().enumerate())
            .filter(|(_, s)| s.position() > here)
            .max_by_key(|(_, s)| s.position());
        let i = ahead.map_or(0, |(i, _)| i);
        self.checkpoints.remove(i);
    }
}

impl PlayerCheckpoint {
    fn position(&self) -> u64 {
        self.machine.state.position
    }
}
