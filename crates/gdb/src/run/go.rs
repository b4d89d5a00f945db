//! Runs and steps.

use crate::state::action::Action;
use crate::state::forks::FORKS;
use crate::state::session::Session;
use crate::state::stops::{LARGEST, SIGNALS};
use crate::state::told::{Told, kind};
use crate::{Error, Result};
use hindsight_packets::{Event, Signal, WatchKind};
use hindsight_timeline::{
    Breakpoint, Choice, Condition, Direction, Position, Reason, Scope, Stops, Watch, WatchedValue,
};

impl Session {
    /// Goes to a position of the same program image.
    pub fn seek(&mut self, to: Position) -> Result<()> {
        let thread = self.timeline.locate(to)?.thread;
        let image = self.timeline.thread(thread)?.image;
        if image != self.inferior.image {
            return Err(Error::OtherProcess(to, image));
        }
        self.leaves_unseen();
        self.carrying.moves();
        let cursor = &mut self.inferior.cursor;
        cursor.cancellable(&self.cancel, |c| c.seek(to))?;
        self.inferior.signal = None;
        self.chosen_thread = None;
        self.leave_side()
    }

    /// Does what gdb asked for.
    pub fn go(&mut self) -> Result<Told> {
        self.chosen_thread = None;
        self.carrying.moves();
        if std::mem::take(&mut self.showing) {
            let tid = self.tid(self.inferior.cursor.thread());
            return Ok(Told::signal(tid, Signal::NONE));
        }
        self.inferior.signal = None;
        self.told_fork = None;
        if std::mem::take(&mut self.inferior.vfork_open) {
            return Ok(self.told(Event::VForkDone));
        }
        if let Some((image, at)) = self.inferior.chosen.take() {
            // gdb goes on by itself behind an `execve`. The next run keeps it there.
            self.showing = self.features.execs;
            return self.turn(image, at);
        }
        if self.inferior.side.is_some() {
            if let Some(told) = self.go_aside()? {
                return Ok(told);
            }
            self.leave_side()?;
        }
        if let Some(told) = self.unseen()? {
            return Ok(told);
        }
        let action = self.action;
        match action {
            Action::Continue => self.run(Direction::Forward),
            Action::ReverseContinue => self.run(Direction::Backward),
            Action::Step(tid) | Action::Range(tid, ..) if let Some(told) = self.rests(tid)? => {
                Ok(told)
            }
            Action::Step(tid) => {
                self.switch(tid)?;
                self.step(Direction::Forward)
            }
            Action::ReverseStep(tid) => {
                self.switch(tid)?;
                self.step(Direction::Backward)
            }
            Action::Range(tid, start, end) => {
                self.switch(tid)?;
                self.step_range(start, end)
            }
        }
    }

    /// Steps one instruction. gdb hears of a watchpoint that the instruction touches.
    pub(crate) fn step(&mut self, direction: Direction) -> Result<Told> {
        if let Some(told) = self.begins_with_signal(direction)? {
            return Ok(told);
        }
        let before = match direction {
            Direction::Forward => self.touched()?,
            Direction::Backward => None,
        };
        let stop = self.inferior.cursor.step(direction, Scope::Thread)?;
        let touched = match direction {
            Direction::Forward => before,
            Direction::Backward => self.touched()?,
        };
        let forked = self.forked().filter(|f| f.child.is_some());
        match (touched, &stop.reason) {
            (_, Reason::Step)
                if let Some(f) = forked
                    && direction == Direction::Forward =>
            {
                Ok(self.tell_fork(f))
            }
            (Some((kind, address)), Reason::Step) => {
                let event = Event::Watchpoint { kind, address };
                Ok(Told::event(self.tid(stop.thread), event))
            }
            _ => self.tell_step(stop),
        }
    }

    /// The watchpoint that the instruction at the cursor touches.
    fn touched(&mut self) -> Result<Option<(WatchKind, u64)>> {
        if self.inferior.watches.is_empty() {
            return Ok(None);
        }
        for a in self.inferior.cursor.accesses()? {
            for w in &self.inferior.watches {
                let wanted = match w.watch {
                    Watch::Read => a.read,
                    Watch::Write => a.write,
                    Watch::Access => true,
                };
                if wanted && a.touches(w.address, w.len) {
                    return Ok(Some((kind(w.watch), w.address)));
                }
            }
        }
        Ok(None)
    }

    fn run(&mut self, direction: Direction) -> Result<Told> {
        if let Some(tid) = self.continued.take().filter(|_| self.locked) {
            self.switch(tid)?;
        }
        if let Some(told) = self.begins_with_signal(direction)? {
            return Ok(told);
        }
        let breakpoints = self
            .inferior
            .breaks
            .iter()
            .enumerate()
            .map(|(i, b)| {
                let mut stop = Breakpoint::at(i as u64, b.address);
                stop.image = Some(self.inferior.image);
                stop.condition = b.condition.clone().map(Condition::Expression);
                stop
            })
            .collect();
        let signals = SIGNALS.filter(|n| !self.passed.contains(n)).collect();
        let mut stops = Stops {
            breakpoints,
            watchpoints: self.inferior.watches.clone(),
            values: self.values()?,
            signals: Choice::Only(signals),
            syscalls: self.syscalls(),
            ..Stops::default()
        };
        let cancel = self.cancel.clone();
        let scope = match self.locked || self.inferior.borrowed.is_some() {
            true => Scope::Thread,
            false => Scope::Process,
        };
        loop {
            let cursor = &mut self.inferior.cursor;
            let mut stop = cursor.cancellable(&cancel, |c| c.run(direction, scope, &mut stops))?;
            // A child that shares this process's memory (`vfork`) is another process.
            let own = self.inferior.has(&self.timeline.thread(stop.thread)?);
            if direction == Direction::Forward {
                self.breakpoint_first(&mut stop)?;
            }
            let ends = matches!(stop.reason, Reason::End | Reason::Begin | Reason::Cancelled);
            if !own && !ends {
                continue;
            }
            let call = match stop.reason {
                Reason::Syscall { number } | Reason::SyscallReturn { number, .. } => Some(number),
                _ => None,
            };
            match self.forked().filter(|_| call.is_some()) {
                Some(f) if f.child.is_some() => return Ok(self.tell_fork(f)),
                Some(f) => {
                    let note = format!("[process {}, made here, is not recorded]", f.pid);
                    self.notes.push(note);
                }
                None => {}
            }
            if call.is_none_or(|number| self.caught(number)) {
                return self.tell(stop);
            }
        }
    }

    /// The values of the variables whose changes gdb waits for. gdb compares them at each write, and goes on if nothing
    /// has changed. Before that it asks for all registers and threads. For a program that writes the same value a
    /// million times, that takes minutes. So gdb does not hear of those writes.
    fn values(&mut self) -> Result<Vec<WatchedValue>> {
        let mut out = Vec::new();
        if !self.features.execs || self.every_write {
            return Ok(out);
        }
        for w in self.inferior.watches.clone() {
            if w.watch != Watch::Write || w.len > LARGEST {
                continue;
            }
            let held = self.read(w.address, w.len as usize)?;
            if held.len() as u64 == w.len {
                out.push(WatchedValue {
                    id: w.id,
                    bytes: held,
                });
            }
        }
        Ok(out)
    }

    /// System calls that stop a run: those that gdb catches, and those that make processes.
    fn syscalls(&self) -> Choice<u64> {
        let tells =
            (self.features.forks || self.features.vforks) && !self.inferior.forks.is_empty();
        let mut list = match (&self.inferior.catch, tells) {
            (Some(all), _) if all.is_empty() => return Choice::All,
            (Some(list), false) => return Choice::Only(list.clone()),
            (None, false) => return Choice::Nothing,
            (list, true) => list.clone().unwrap_or_default(),
        };
        list.extend(FORKS);
        Choice::Only(list)
    }

    /// Whether gdb catches a system call.
    fn caught(&self, number: u64) -> bool {
        let list = self.inferior.catch.as_ref();
        list.is_some_and(|l| l.is_empty() || l.contains(&number))
    }
}
