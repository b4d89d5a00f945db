//! Plays from one event of the stream to the next.

use super::{Machine, Stop};
use crate::Error;
use crate::queue::Op;
use hindsight_events::Event;

/// A run passes at most this many conditional breaks. With short conditions that takes some 50 ms.
const PASSED: u32 = 1 << 17;

impl Machine<'_> {
    /// Plays until `position` instructions are completed or the stream ends. It may end earlier, with
    /// [`Stop::Position`], where it passed many conditional breaks: the caller then may cancel.
    pub fn run_to(&mut self, position: u64) -> Result<Stop, Error> {
        self.entered(|m| m.play(position))
    }

    /// Prepares this thread once for many short runs, until [`Machine::release`] in the same thread. A run
    /// then takes half a microsecond instead of one and a half. Signals stay blocked meanwhile. Another
    /// machine may run in this thread in between if it finishes first.
    pub fn hold(&mut self) -> Result<(), Error> {
        self.processor.hold(&mut self.cpu)
    }

    /// Ends what [`Machine::hold`] began.
    pub fn release(&mut self) {
        self.processor.release();
    }

    fn entered<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.processor.enter(&mut self.cpu)?;
        let done = run(self);
        self.processor.leave();
        self.check()?;
        done
    }

    /// Like [`Machine::run_to`], but may stop a few instructions before `position`. It does so where the
    /// exact position would need a block of its own. It may not move at all.
    pub fn run_near(&mut self, position: u64) -> Result<Stop, Error> {
        self.entered(|m| {
            m.cpu.near = true;
            let stop = m.play(position);
            m.cpu.near = false;
            stop
        })
    }

    /// Like [`Machine::run_to`], but calls `look` before each instruction, before the events there take
    /// effect. Ends early, with [`Stop::Position`], if `look` returns `false`.
    pub fn each(
        &mut self,
        position: u64,
        look: &mut dyn FnMut(&Machine) -> bool,
    ) -> Result<Stop, Error> {
        self.entered(|m| {
            while m.cpu.pos < position && look(m) {
                match m.play(m.cpu.pos + 1)? {
                    Stop::Position => {}
                    other => return Ok(other),
                }
            }
            Ok(Stop::Position)
        })
    }

    fn play(&mut self, position: u64) -> Result<Stop, Error> {
        if !self.started {
            if self.queue.prepare()?.is_none() {
                return Ok(Stop::OutOfEvents);
            }
            return Err(self.corrupt("nothing to play"));
        }
        let mut passed = 0;
        loop {
            if let Some(end) = &self.end {
                return Ok(Stop::Ended(end.clone()));
            }
            if self.cpu.pos >= position {
                return Ok(Stop::Position);
            }
            if self.cpu.at_break() && !self.open && !self.gap && !self.is_sent_on()? {
                self.cpu.pass();
                if !self.conditions_fail() {
                    return Ok(Stop::Break);
                }
                passed += 1;
                if passed == PASSED {
                    return Ok(Stop::Position);
                }
            }
            if self.gap {
                self.leave_gap(position)?;
                if self.gap && self.cpu.pos < position && self.end.is_none() {
                    return Ok(Stop::OutOfEvents);
                }
                continue;
            }
            let Some(next) = self.queue.prepare()? else {
                return Ok(Stop::OutOfEvents);
            };
            if next.pos > self.cpu.pos && self.open {
                return Err(self.cpu.difference("the result of a system call", "none"));
            }
            match next.op {
                _ if next.pos > self.cpu.pos => {}
                _ if next.pos < self.cpu.pos => return Err(self.late()),
                Op::Other(at) => {
                    let stops = self.stops_at_digests
                        && matches!(self.queue.event(at)?, Event::Digest { .. });
                    let epoch = self.cpu.epoch;
                    self.event(at)?;
                    let other = self.cpu.log.is_some() && (self.gap || self.cpu.epoch != epoch);
                    if stops || other {
                        return Ok(Stop::Position);
                    }
                    continue;
                }
                Op::BadNumber(number) => {
                    return Err(self.cpu.difference(
                        "an order number that grows and occurs once",
                        number.to_string(),
                    ));
                }
                _ => {}
            }
            if let Some(e) = self.missing.take() {
                return Err(e);
            }
            if !self
                .processor
                .run(&mut self.cpu, &mut self.queue, position)?
            {
                return Ok(Stop::Position);
            }
            if self.cpu.take_watched() {
                self.cpu.pass();
                return Ok(Stop::Break);
            }
        }
    }

    /// Whether another signal comes before the first instruction of a handler that begins here. Then that
    /// instruction is not executed next.
    fn is_sent_on(&mut self) -> Result<bool, Error> {
        if self.sent_on != Some(self.cpu.pos) {
            return Ok(false);
        }
        let next = self.queue.prepare()?.filter(|e| e.pos == self.cpu.pos);
        match next.map(|e| e.op) {
            Some(Op::Other(at)) => Ok(!self.is_instruction(at)?),
            _ => Ok(false),
        }
    }

    /// Goes to the end of the current gap and applies it, but not beyond `position`.
    pub fn leave_gap(&mut self, position: u64) -> Result<(), Error> {
        while self.gap && self.end.is_none() {
            let Some(next) = self.queue.prepare()? else {
                return Ok(());
            };
            if next.pos > self.cpu.pos {
                let to = next.pos.min(position.max(self.cpu.pos));
                self.skipped += to - self.cpu.pos;
                self.cpu.pos = to;
                if to < next.pos {
                    return Ok(());
                }
            }
            match next.op {
                Op::Other(at) => self.event(at)?,
                _ => return Err(self.corrupt("an event within a gap")),
            }
        }
        Ok(())
    }

    /// Applies the events that are due now, up to the next key frame, and compares the state with the key
    /// frame. For the end of a part of a stream that another part follows.
    pub fn finish_at_keyframe(&mut self) -> Result<(), Error> {
        loop {
            let next = self.queue.prepare()?;
            match next.map(|e| (e.pos == self.cpu.pos, e.op)) {
                Some((true, Op::Other(at))) => {
                    let last = matches!(self.queue.event(at)?, Event::KeyFrame { .. });
                    self.event(at)?;
                    if last {
                        return self.finish_restating();
                    }
                }
                Some((true, Op::Word(..) | Op::Bytes(..))) => self.queue.advance(),
                _ => return Err(self.cpu.difference("a key frame", "none")),
            }
        }
    }

    /// Compares the memory that is restated at that key frame, as far as the source has it.
    fn finish_restating(&mut self) -> Result<(), Error> {
        while self.before.is_some()
            && let Some(Op::Other(at)) = self.queue.prepare()?.map(|e| e.op)
        {
            self.event(at)?;
        }
        Ok(())
    }
}
