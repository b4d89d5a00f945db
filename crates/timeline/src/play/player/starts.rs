//! Where a player begins to play, and how it goes on from one interval or part into the next.

use super::{Need, Player, Since};
use crate::Result;
use crate::index::{self, IndexPart, Level};
use crate::model::error::replay;
use crate::recording::Chunks;
use hindsight_replay::{Lines, State};

impl Player {
    /// Begins to play at the start of an interval that ends at `until`, or at one of its steps.
    pub(super) fn begin(
        &mut self,
        part: usize,
        until: u64,
        step: bool,
        state: &State,
        content: Lines,
    ) -> Result<()> {
        let thread = self.thread;
        let fail = |e| replay(thread, e);
        self.checkpoints.clear();
        self.at = None;
        self.base = content;
        self.machine.set_window(&self.base).map_err(fail)?;
        self.settled = false;
        let source = self.source(state.position);
        self.machine.resume(Box::new(source), state).map_err(fail)?;
        self.at = Some(Since {
            part,
            count: state.position,
            step,
            until,
            coarse: false,
            ahead: false,
            marks: true,
        });
        let start = self.machine.checkpoint_of_start();
        self.add_checkpoint(start, true);
        Ok(())
    }

    /// Begins to play at the nearest place before `count`.
    pub(super) fn start_for(&mut self, count: u64, need: Need) -> Result<()> {
        let part = self.part(count);
        let range = self.ranges[part];
        let have = self.engine.nearest_if_built(range, count);
        if have.is_none()
            && count.saturating_sub(range.from) < index::span(&self.engine, self.thread)
        {
            return self.start_part(part);
        }
        // The part is played as a whole. A place far ahead in it is reached by playing on.
        if have.is_none()
            && let Some(at) = self.at
            && at.part == part
            && at.until == u64::MAX
            && at.marks
            && self.count() <= count
            && !self.begins_ahead(need, count)?
        {
            return Ok(());
        }
        let mut built = match have {
            Some(b)
                if self.is_sooner_ahead(&b, count, need)?
                    && self.start_ahead(part, count, need)? =>
            {
                return Ok(());
            }
            Some(b) => b,
            None if self.start_ahead(part, count, need)? => return Ok(()),
            None => self.engine.part(range, &self.cancel)?,
        };
        let mut i = built.interval(count);
        let into = count.saturating_sub(built.bounds(i).0);
        let far = into >= index::span(&self.engine, self.thread);
        let coarsely = far && self.engine.may_play_coarse(&built, i)?;
        if coarsely {
            self.engine.note_coarse(&built, i, into);
        }
        if far && !coarsely {
            let fine = self.engine.fine_range(&built, i);
            if fine.is_some_and(|f| self.engine.part_if_built(f).is_none()) {
                self.let_go_of_much()?;
            }
        }
        if far
            && !coarsely
            && let Some(fine) = self.engine.fine(&built, i, &self.cancel)?
        {
            i = fine.interval(count);
            built = fine;
        }
        let spare = self.forget_base();
        let (state, lines) = self.frame_of(&built, i, spare)?;
        self.begin(part, built.bounds(i).1, false, &state, lines)?;
        if let Some(at) = &mut self.at {
            at.coarse = built.range.level == Level::Coarse;
        }
        Ok(())
    }

    /// See [`crate::engine::Engine::frame_of`].
    fn frame_of(&self, built: &IndexPart, i: usize, spare: Vec<u8>) -> Result<(State, Lines)> {
        let cancel = &self.cancel;
        let go_on = |_| !cancel.is_cancelled();
        self.engine.frame_of(built, i, spare, &go_on)
    }

    /// Whether an instant lies farther ahead than a fine interval is long.
    pub(super) fn is_far(&self, count: u64) -> bool {
        count.saturating_sub(self.count()) >= index::span(&self.engine, self.thread)
    }

    /// The number of the part that has instruction `count`.
    pub(super) fn part(&self, count: u64) -> usize {
        let i = self.ranges.partition_point(|p| p.from <= count);
        i.saturating_sub(1)
    }

    pub(super) fn start_part(&mut self, part: usize) -> Result<()> {
        let thread = self.thread;
        let fail = |e| replay(thread, e);
        self.checkpoints.clear();
        self.at = None;
        let range = self.ranges[part];
        let source = Chunks::new(&self.engine.recording, thread, range.chunk);
        self.base = Lines::default();
        self.settled = false;
        self.first = range.chunk;
        self.machine.from_keyframe(Box::new(source)).map_err(fail)?;
        self.play_on(part)
    }

    /// Plays a part as a whole from here on, without frames of its index.
    pub(super) fn play_on(&mut self, part: usize) -> Result<()> {
        let thread = self.thread;
        let cleared = self.machine.clear_marks();
        cleared.map_err(|e| replay(thread, e))?;
        self.at = Some(Since {
            part,
            count: self.count(),
            step: false,
            until: u64::MAX,
            coarse: false,
            ahead: false,
            marks: true,
        });
        Ok(())
    }

    /// Goes on into the next step, interval or part.
    pub(super) fn cross(&mut self, at: Since) -> Result<()> {
        let thread = self.thread;
        if self.cross_step(at)? {
            return Ok(());
        }
        let here = self.count();
        self.checkpoints.clear();
        let part = self.part(here);
        if part != at.part {
            return self.cross_part(part);
        }
        let range = self.ranges[part];
        let built = match self.engine.nearest_if_built(range, here) {
            Some(built) => built,
            None => self.engine.part(range, &self.cancel)?,
        };
        let i = built.interval(here);
        let (from, to) = built.bounds(i);
        if here >= to {
            // The index ends before the part: its stream was cut.
            return self.play_on(part);
        }
        if from != here {
            // The part was made again meanwhile, with other intervals, or a gap was left.
            match at.step {
                true => self.start_nearest(here)?,
                false => self.start_for(here, Need::Marks)?,
            }
            return self.advance(here);
        }
        let spare = self.forget_base();
        self.at = None;
        self.base = self.frame_of(&built, i, spare)?.1;
        let emptied = self.machine.set_window(&self.base);
        emptied.map_err(|e| replay(thread, e))?;
        self.at = Some(Since {
            part,
            count: here,
            step: false,
            until: to,
            coarse: built.range.level == Level::Coarse,
            ahead: false,
            marks: true,
        });
        Ok(())
    }

    /// Goes on into another part, whose key frame stands here.
    pub(super) fn cross_part(&mut self, part: usize) -> Result<()> {
        let range = self.ranges[part];
        let scan = self.engine.scan(self.thread)?;
        if scan.is_based(range.from) {
            // The key frame says only what has changed, and the window has only what the part before accessed.
            let here = self.count();
            match self.engine.part_if_built(range) {
                Some(_) => self.start_for(here, Need::Marks)?,
                None => self.start_part(part)?,
            }
            return self.advance(here);
        }
        // The key frame empties the window.
        self.base = Lines::default();
        self.play_on(part)
    }
}
