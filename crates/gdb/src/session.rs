//! What gdb is connected to: a place in a recording, and what it is to stop at.

use crate::agent::{At, Program};
use crate::arch::State;
use crate::bookmarks::Bookmarks;
use crate::due::Signals;
use crate::files::Files;
use crate::inferior::{self, Inferior};
use crate::interrupt::Interrupt;
use crate::libraries::Listed;
use crate::processes::{FORKS, Fork, Wanted};
use crate::tell::kind;
use crate::{Error, Result};
use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::breakpoints::WatchKind;
use hindsight_timeline::{
    Breakpoint, Cancel, Choice, Direction, Position, Reason, Scope, Stops, ThreadId, Timeline,
    Watch, WatchedValue,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Instant;

/// Bytes of the largest variable whose changes are told apart from other writes.
pub(crate) const LARGEST: u64 = 64;
/// Linux signal numbers.
pub(crate) const SIGNALS: std::ops::Range<u8> = 1..65;

/// A breakpoint that gdb has set.
#[derive(Clone)]
pub struct Break {
    pub address: u64,
    pub hardware: bool,
    /// Any of these lets it stop; empty: always.
    pub conditions: Vec<Program>,
}

/// What gdb asked for last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Continue,
    Step(Tid),
    Range(Tid, u64, u64),
    ReverseStep(Tid),
    ReverseContinue,
}

/// What came with the signal at which the cursor stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalInfo {
    pub number: u8,
    pub code: i32,
    pub address: u64,
}

/// How gdb was told that it stopped.
pub type Told = MultiThreadStopReason<u64>;

/// A debugging session.
pub struct Session {
    pub timeline: Timeline,
    /// The process that is active, and those that wait.
    pub inferior: Inferior,
    pub parked: Vec<Inferior>,
    /// All threads of the recording and their names for gdb.
    tids: Vec<(Tid, ThreadId)>,
    /// Signals (Linux numbers) at which not to stop.
    pub passed: BTreeSet<u8>,
    pub action: Action,
    /// The client is told also of writes that change nothing.
    pub every_write: bool,
    /// Only the thread that was named runs.
    pub locked: bool,
    /// The thread that is to continue, if it is one.
    pub continued: Option<Tid>,
    /// The client has named more than one thread that is to continue.
    pub several: bool,
    /// The thread that gdb's user has chosen since the last stop.
    pub chosen_thread: Option<Tid>,
    pub cancel: Cancel,
    /// For what is not a run.
    pub interrupt: Interrupt,
    /// When a look at memory was interrupted, or asked for once more behind that.
    pub interrupted: Option<Instant>,
    pub files: Files,
    pub marks: Bookmarks,
    /// The next run only tells the client at which thread it is.
    pub showing: bool,
    /// What went wrong in the last run.
    pub trouble: Option<String>,
    /// The last question of who wrote something was about a register.
    pub register_asked: bool,
    /// What the user is to be told.
    pub notes: Vec<String>,
    /// What gdb wants to be told of.
    pub wanted: Wanted,
    /// The process that gdb was told of last, before it went on.
    pub told_fork: Option<Fork>,
    /// An event that goes with the next stop, as in a stop packet.
    pub event: Option<String>,
    /// Libraries that the client has seen.
    pub(crate) listed: RefCell<Listed>,
    /// Where the threads of the recording get signals, once that was asked for.
    pub(crate) signals: Option<Signals>,
}

impl Session {
    /// Begins at `at`, or with the first instruction of `image`, or of the recording.
    pub fn new(timeline: Timeline, image: Option<u32>, at: Option<Position>) -> Result<Session> {
        let mut cursor = timeline.cursor()?;
        if let Some(image) = image {
            let all = timeline.processes()?;
            let process = all.iter().find(|p| p.image == image);
            let process = process.ok_or(Error::NoProcess(image))?;
            cursor.seek(process.begin)?;
        }
        if let Some(at) = at {
            cursor.seek_within(at, image, None)?;
        }
        let inferior = Inferior::new(&timeline, cursor)?;
        let marks = Bookmarks::open(timeline.path());
        let cancel = Cancel::new();
        let mut s = Session {
            inferior,
            parked: Vec::new(),
            tids: inferior::tids(&timeline)?,
            passed: BTreeSet::new(),
            action: Action::Continue,
            every_write: false,
            locked: false,
            continued: None,
            several: false,
            chosen_thread: None,
            interrupt: Interrupt::new(&cancel),
            interrupted: None,
            cancel,
            files: Files::default(),
            marks,
            showing: false,
            trouble: None,
            register_asked: false,
            notes: Vec::new(),
            wanted: Wanted::default(),
            told_fork: None,
            event: None,
            listed: RefCell::default(),
            signals: None,
            timeline,
        };
        s.begin()?;
        Ok(s)
    }

    /// gdb's name of a thread.
    pub fn tid(&self, id: ThreadId) -> Tid {
        let found = self.tids.iter().find(|(_, t)| *t == id);
        found.map_or(Tid::MIN, |(tid, _)| *tid)
    }

    /// Threads of this name: a program that `execve` replaced had one of the same name.
    fn named(&self, tid: Tid) -> impl Iterator<Item = ThreadId> {
        self.tids
            .iter()
            .filter(move |(n, _)| *n == tid)
            .map(|(_, t)| *t)
    }

    /// The thread of this name, of the active process or else of any.
    pub fn any_thread(&self, tid: Tid) -> Option<ThreadId> {
        self.thread(tid).or_else(|| self.named(tid).next())
    }

    /// The thread of this name, of the active process.
    pub fn thread(&self, tid: Tid) -> Option<ThreadId> {
        let own = |id: &ThreadId| {
            self.timeline
                .thread(*id)
                .is_ok_and(|t| self.inferior.has(&t))
        };
        self.named(tid).find(own)
    }

    /// Threads of the active process that have begun and not ended where it stands; the one that it stands in is the
    /// first.
    pub fn live(&self) -> Result<Vec<Tid>> {
        let all = self.inferior.live(&self.timeline)?;
        Ok(all.into_iter().map(|t| self.tid(t)).collect())
    }

    /// Registers of a thread now.
    pub fn registers(&mut self, tid: Tid) -> Result<State> {
        if let Some(side) = self.inferior.side.as_ref().filter(|s| s.tid == tid) {
            return Ok(side.state());
        }
        let id = self.thread(tid).ok_or(Error::NoThread(tid.get()))?;
        let found = self.inferior.cursor.registers_of(id)?;
        let found = found.ok_or(Error::NoThread(tid.get()))?;
        Ok(State {
            cpu: found.general,
            vec: Box::new(found.vectors),
            ..State::default()
        })
    }

    /// What interrupts the session from another thread.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Goes to a position of the same program image.
    pub fn seek(&mut self, to: Position) -> Result<()> {
        let thread = self.timeline.locate(to)?.thread;
        let image = self.timeline.thread(thread)?.image;
        if image != self.inferior.image {
            return Err(Error::OtherProcess(to, image));
        }
        self.leaves_unseen();
        let cursor = &mut self.inferior.cursor;
        cursor.cancellable(&self.cancel, |c| c.seek(to))?;
        self.inferior.signal = None;
        self.chosen_thread = None;
        self.leave_side()
    }

    /// Moves the cursor to a thread, at the same time.
    pub fn switch(&mut self, tid: Tid) -> Result<()> {
        let id = self.thread(tid).ok_or(Error::NoThread(tid.get()))?;
        if id != self.inferior.cursor.thread() {
            let count = self
                .timeline
                .count_at(id, self.inferior.cursor.position()?)?;
            let count = count.ok_or(Error::NoThread(tid.get()))?;
            self.inferior.cursor.seek_count(id, count)?;
        }
        Ok(())
    }

    /// Does what gdb asked for.
    pub fn go(&mut self) -> Result<Told> {
        self.chosen_thread = None;
        if std::mem::take(&mut self.showing) {
            return Ok(Told::SignalWithThread {
                tid: self.tid(self.inferior.cursor.thread()),
                signal: Signal(0),
            });
        }
        self.inferior.signal = None;
        self.told_fork = None;
        if std::mem::take(&mut self.inferior.vfork_open) {
            return Ok(Told::VForkDone(self.tid(self.inferior.cursor.thread())));
        }
        if let Some((image, at)) = self.inferior.chosen.take() {
            // gdb goes on by itself behind an `execve`, and is to stop right there.
            self.showing = self.wanted.execs;
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

    /// One instruction. gdb is told of watchpoints that it touches.
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
            (Some((kind, addr)), Reason::Step) => Ok(Told::Watch {
                tid: self.tid(stop.thread),
                kind,
                addr,
            }),
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
                if !b.conditions.is_empty() {
                    let conditions = b.conditions.clone();
                    stop.condition = Some(Box::new(move |view| {
                        // What cannot be evaluated stops: the user is to see it.
                        conditions
                            .iter()
                            .any(|c| c.run(&mut At(view)).is_none_or(|v| v != 0))
                    }));
                }
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
            let mut stop = cursor.run(direction, scope, &mut stops, &cancel)?;
            // A child that has this process's memory is not this process.
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

    /// What variables hold for whose changes gdb waits. It compares them by itself, and goes on where they are as they
    /// were, after it has asked for all registers and threads: where a program writes the same value a million times,
    /// that takes minutes. So it is not told of those writes.
    fn values(&mut self) -> Result<Vec<WatchedValue>> {
        let mut out = Vec::new();
        if !self.wanted.execs || self.every_write {
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

    /// System calls at which a run is to stop: those that gdb catches, and those that make processes.
    fn syscalls(&self) -> Choice<u64> {
        let tells = (self.wanted.forks || self.wanted.vforks) && !self.inferior.forks.is_empty();
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
