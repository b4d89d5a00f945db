//! What gdb is connected to: a place in a recording, and what it is to stop at.

use crate::agent::{At, Program};
use crate::arch::State;
use crate::bookmarks::Bookmarks;
use crate::files::Files;
use crate::interrupt::Interrupt;
use crate::processes::{self, FORKS, Fork, Wanted};
use crate::side::Side;
use crate::tell::kind;
use crate::{Error, Result};
use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::breakpoints::WatchKind;
use hindsight_timeline::{
    Breakpoint, Cancel, Cursor, Direction, Filter, Kind, KindOf, Position, Reason, Scope, Stops,
    ThreadId, Timeline, Watch, Watchpoint,
};
use std::collections::BTreeSet;

/// Most instructions of one range step before gdb is told where it is.
const MAX_RANGE: u32 = 1 << 20;
/// Linux signal numbers.
const SIGNALS: std::ops::Range<u8> = 1..65;

/// A breakpoint that gdb has set.
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
    pub cursor: Cursor,
    /// The program image that is looked at.
    pub image: u32,
    /// Threads of the image and their names for gdb.
    tids: Vec<(Tid, ThreadId)>,
    pub breaks: Vec<Break>,
    pub watches: Vec<Watchpoint>,
    /// System calls at which to stop; `Some` of an empty list: all.
    pub catch: Option<Vec<u64>>,
    /// Signals (Linux numbers) at which not to stop.
    pub passed: BTreeSet<u8>,
    pub action: Action,
    /// Only the thread that was named runs.
    pub locked: bool,
    /// The thread that is to continue.
    pub continued: Option<Tid>,
    pub cancel: Cancel,
    /// For what is not a run.
    pub interrupt: Interrupt,
    pub signal: Option<SignalInfo>,
    pub files: Files,
    pub marks: Bookmarks,
    pub auxv: Vec<u8>,
    /// What went wrong in the last run.
    pub trouble: Option<String>,
    /// What was written, and what follows from it.
    pub side: Option<Side>,
    /// What the user is to be told.
    pub notes: Vec<String>,
    /// Names that threads gave themselves, and since when.
    names: Vec<(ThreadId, Position, String)>,
    /// What gdb wants to be told of.
    pub wanted: Wanted,
    /// Processes that this one makes.
    pub forks: Vec<Fork>,
    /// gdb was told of a `vfork`, and not yet that it is over.
    pub vfork_open: bool,
    /// The program image to go to with the next step or run, and where.
    pub chosen: Option<(u32, Position)>,
    /// An event that goes with the next stop, as in a stop packet.
    pub event: Option<String>,
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
            cursor.seek(at)?;
        }
        let image = cursor.image();
        let marks = Bookmarks::open(timeline.path());
        let cancel = Cancel::new();
        let mut s = Session {
            cursor,
            image,
            tids: Vec::new(),
            breaks: Vec::new(),
            watches: Vec::new(),
            catch: None,
            passed: BTreeSet::new(),
            action: Action::Continue,
            locked: false,
            continued: None,
            interrupt: Interrupt::new(&cancel),
            cancel,
            signal: None,
            files: Files::default(),
            marks,
            auxv: Vec::new(),
            trouble: None,
            side: None,
            notes: Vec::new(),
            names: Vec::new(),
            wanted: Wanted::default(),
            forks: Vec::new(),
            vfork_open: false,
            chosen: None,
            event: None,
            timeline,
        };
        s.begin()?;
        Ok(s)
    }

    /// Finds out what is to be known of the program image.
    pub fn begin(&mut self) -> Result<()> {
        let mut used = BTreeSet::new();
        let threads = self.timeline.threads()?;
        let mine = threads.iter().filter(|t| t.image == self.image);
        self.tids = mine
            .map(|t| {
                // Numbers may have been used again.
                let mut n = t.tid.unsigned_abs().max(1) as usize;
                while !used.insert(n) {
                    n += 1 << 22;
                }
                (Tid::new(n).unwrap_or(Tid::MIN), t.id)
            })
            .collect();
        self.names = names(&self.timeline, self.image)?;
        self.forks = processes::forks(&self.timeline, self.image)?;
        let begin = self.present()?.begin;
        self.auxv = crate::auxv::find(self, begin)?;
        Ok(())
    }

    /// gdb's name of a thread.
    pub fn tid(&self, id: ThreadId) -> Tid {
        let found = self.tids.iter().find(|(_, t)| *t == id);
        found.map_or(Tid::MIN, |(tid, _)| *tid)
    }

    /// What a thread is called now.
    pub fn name(&self, id: ThreadId) -> Result<String> {
        let here = self.cursor.position()?;
        let given = self.names.iter().rev();
        let given = given.clone().find(|(t, p, _)| *t == id && *p < here);
        match given {
            Some((_, _, name)) => Ok(name.clone()),
            None => Ok(self.timeline.thread(id)?.name),
        }
    }

    /// The thread of this name.
    pub fn thread(&self, tid: Tid) -> Option<ThreadId> {
        self.tids.iter().find(|(n, _)| *n == tid).map(|(_, t)| *t)
    }

    /// Threads that have begun and not ended at the cursor's position; its own in any case.
    pub fn live(&self) -> Result<Vec<Tid>> {
        let here = self.cursor.position()?;
        let mut out = vec![self.tid(self.cursor.thread())];
        for (tid, id) in &self.tids {
            if *id == self.cursor.thread() {
                continue;
            }
            let t = self.timeline.thread(*id)?;
            let count = self.timeline.count_at(*id, here)?;
            if count.is_some_and(|c| c < t.to) {
                out.push(*tid);
            }
        }
        Ok(out)
    }

    /// Registers of a thread now.
    pub fn registers(&mut self, tid: Tid) -> Result<State> {
        if let Some(side) = self.side.as_ref().filter(|s| s.tid == tid) {
            return Ok(side.state());
        }
        let id = self.thread(tid).ok_or(Error::NoThread(tid.get()))?;
        let found = self.cursor.registers_of(id)?;
        let (cpu, vec) = found.ok_or(Error::NoThread(tid.get()))?;
        Ok(State {
            cpu,
            vec: Box::new(vec),
            ..State::default()
        })
    }

    /// What interrupts the session from another thread.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Goes to a position of the same program image.
    pub fn seek(&mut self, to: Position) -> Result<()> {
        let (thread, _) = self.timeline.locate(to)?;
        let image = self.timeline.thread(thread)?.image;
        if image != self.image {
            return Err(Error::OtherProcess(to, image));
        }
        self.cursor.seek_unless(to, &self.cancel.clone())?;
        self.signal = None;
        self.leave_side()
    }

    /// Moves the cursor to a thread, at the same time.
    pub fn switch(&mut self, tid: Tid) -> Result<()> {
        let id = self.thread(tid).ok_or(Error::NoThread(tid.get()))?;
        if id != self.cursor.thread() {
            let count = self.timeline.count_at(id, self.cursor.position()?)?;
            let count = count.ok_or(Error::NoThread(tid.get()))?;
            self.cursor.seek_count(id, count)?;
        }
        Ok(())
    }

    /// Does what gdb asked for.
    pub fn go(&mut self) -> Result<Told> {
        self.signal = None;
        if std::mem::take(&mut self.vfork_open) {
            return Ok(Told::VForkDone(self.tid(self.cursor.thread())));
        }
        if let Some((image, at)) = self.chosen.take() {
            return self.enter(image, at);
        }
        if self.side.is_some() {
            if let Some(told) = self.go_aside()? {
                return Ok(told);
            }
            self.leave_side()?;
        }
        match self.action {
            Action::Continue => self.run(Direction::Forward),
            Action::ReverseContinue => self.run(Direction::Backward),
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

    fn step_range(&mut self, start: u64, end: u64) -> Result<Told> {
        for _ in 0..MAX_RANGE {
            let told = self.step(Direction::Forward)?;
            let trap = Told::SignalWithThread {
                tid: self.tid(self.cursor.thread()),
                signal: Signal::SIGTRAP,
            };
            let pc = self.cursor.registers()?.rip;
            let stops = self.breaks.iter().any(|b| b.address == pc);
            if told != trap || !(start..end).contains(&pc) || stops || self.cancel.is_cancelled() {
                return Ok(told);
            }
        }
        Ok(self.trap())
    }

    /// One instruction. gdb is told of watchpoints that it touches.
    fn step(&mut self, direction: Direction) -> Result<Told> {
        let before = match direction {
            Direction::Forward => self.touched()?,
            Direction::Backward => None,
        };
        let stop = self.cursor.step(direction, Scope::Thread)?;
        let touched = match direction {
            Direction::Forward => before,
            Direction::Backward => self.touched()?,
        };
        match (touched, &stop.reason) {
            (Some((kind, addr)), Reason::Step) => Ok(Told::Watch {
                tid: self.tid(stop.thread),
                kind,
                addr,
            }),
            _ => self.tell(stop),
        }
    }

    /// The watchpoint that the instruction at the cursor touches.
    fn touched(&mut self) -> Result<Option<(WatchKind, u64)>> {
        if self.watches.is_empty() {
            return Ok(None);
        }
        for a in self.cursor.accesses()? {
            for w in &self.watches {
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
        match self.continued.take().filter(|_| self.locked) {
            Some(tid) if self.thread(tid).is_some() => self.switch(tid)?,
            // A client that has named no thread (a plain `c`, as lldb sends it) means all.
            Some(_) => self.locked = false,
            None => {}
        }
        let breakpoints = self
            .breaks
            .iter()
            .enumerate()
            .map(|(i, b)| {
                let mut stop = Breakpoint::at(i as u64, b.address);
                stop.image = Some(self.image);
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
            watchpoints: self.watches.clone(),
            signals: Some(signals),
            syscalls: self.syscalls(),
            ..Stops::default()
        };
        let cancel = self.cancel.clone();
        let scope = match self.locked {
            true => Scope::Thread,
            false => Scope::Process,
        };
        loop {
            let stop = self.cursor.run(direction, scope, &mut stops, &cancel)?;
            match stop.reason {
                Reason::Syscall { number } if !self.caught(number) => {}
                Reason::SyscallReturn { number, .. } => match self.forked() {
                    Some(f) => return Ok(self.tell_fork(f)),
                    None if self.caught(number) => return self.tell(stop),
                    None => {}
                },
                _ => return self.tell(stop),
            }
        }
    }

    /// System calls at which a run is to stop: those that gdb catches, and those that make processes.
    fn syscalls(&self) -> Option<Vec<u64>> {
        let tells = (self.wanted.forks || self.wanted.vforks) && !self.forks.is_empty();
        let mut list = match (&self.catch, tells) {
            (Some(all), _) if all.is_empty() => return Some(Vec::new()),
            (list, false) => return list.clone(),
            (list, true) => list.clone().unwrap_or_default(),
        };
        list.extend(FORKS);
        Some(list)
    }

    /// Whether gdb catches a system call.
    fn caught(&self, number: u64) -> bool {
        let list = self.catch.as_ref();
        list.is_some_and(|l| l.is_empty() || l.contains(&number))
    }
}

/// Names that threads of an image gave themselves by `prctl`.
fn names(timeline: &Timeline, image: u32) -> Result<Vec<(ThreadId, Position, String)>> {
    const PRCTL: u64 = 157;
    const PR_SET_NAME: u64 = 15;
    const LONGEST: usize = 15;
    let calls = timeline.events(&Filter {
        image: Some(image),
        kinds: vec![KindOf::Syscall],
        syscalls: vec![PRCTL],
        ..Filter::default()
    })?;
    let mut cursor = timeline.cursor()?;
    let mut out = Vec::new();
    for c in calls {
        let Kind::Syscall { args, .. } = c.kind else {
            continue;
        };
        if args[0] != PR_SET_NAME {
            continue;
        }
        cursor.seek_count(c.thread, c.count)?;
        let text = cursor.memory(args[1], LONGEST)?.prefix();
        let text: Vec<u8> = text.into_iter().take_while(|b| *b != 0).collect();
        if !text.is_empty() {
            let name = String::from_utf8_lossy(&text).into_owned();
            out.push((c.thread, c.position, name));
        }
    }
    Ok(out)
}
