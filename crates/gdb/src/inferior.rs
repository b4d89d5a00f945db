//! The processes that a client is attached to. Each is at a place of its own in time; one of them is active:
//! that which the client's last packet was about.

use crate::processes::{self, Fork};
use crate::session::{Break, Session, SignalInfo};
use crate::side::Side;
use crate::{Error, Result};
use gdbstub::common::Tid;
use hindsight_timeline::{
    Cursor, Names, Position, Process, Thread, ThreadId, Timeline, Watchpoint,
};
use std::collections::HashMap;

/// One process, as the client sees it.
pub struct Inferior {
    /// What the client calls it: its process id when the client first heard of it.
    pub pid: u64,
    /// Its process id on the recording machine.
    pub real: i32,
    pub cursor: Cursor,
    /// The program image that is looked at.
    pub image: u32,
    /// It still runs in its parent's memory (`vfork`), and is one thread of the parent's program image.
    pub borrowed: Option<ThreadId>,
    pub breaks: Vec<Break>,
    pub watches: Vec<Watchpoint>,
    /// Where the client last saw what it watches, if it was not told that the place is another one: thread and
    /// instructions.
    pub seen: Option<(ThreadId, u64)>,
    /// Of what it watches what is to be looked at before it goes on: addresses and lengths.
    pub stale: Vec<(u64, u64)>,
    /// System calls at which to stop; `Some` of an empty list: all.
    pub catch: Option<Vec<u64>>,
    pub signal: Option<SignalInfo>,
    /// Where the client was last told of a signal: thread and instructions.
    pub told_signal: Option<(ThreadId, u64)>,
    /// Steps at the end, one after the other.
    pub steps_at_end: u32,
    pub auxv: Vec<u8>,
    /// What was written, and what follows from it.
    pub side: Option<Side>,
    /// Names that threads gave themselves, and since when.
    pub names: Names,
    /// Processes that this one makes.
    pub forks: Vec<Fork>,
    /// The client was told of a `vfork`, and not yet that it is over.
    pub vfork_open: bool,
    /// The program image to go to with the next step or run, and where.
    pub chosen: Option<(u32, Position)>,
}

impl Inferior {
    /// The program image in which a cursor stands.
    pub fn new(timeline: &Timeline, cursor: Cursor) -> Result<Inferior> {
        let image = cursor.image();
        let real = process(timeline, image)?.pid;
        Ok(Inferior {
            pid: number(real),
            real,
            image,
            cursor,
            borrowed: None,
            breaks: Vec::new(),
            watches: Vec::new(),
            seen: None,
            stale: Vec::new(),
            catch: None,
            signal: None,
            told_signal: None,
            steps_at_end: 0,
            auxv: Vec::new(),
            side: None,
            names: Names::default(),
            forks: Vec::new(),
            vfork_open: false,
            chosen: None,
        })
    }

    /// Whether a thread is one of its own.
    pub fn has(&self, thread: &Thread) -> bool {
        match self.borrowed {
            Some(own) => thread.id == own,
            None => thread.image == self.image && thread.pid == self.real,
        }
    }

    /// Threads that have begun and not ended where it stands; its cursor's in any case, as the first.
    pub fn live(&self, timeline: &Timeline) -> Result<Vec<ThreadId>> {
        let here = self.cursor.position()?;
        let first = self.cursor.thread();
        let mut out = vec![first];
        for t in timeline.threads()? {
            if t.id == first || !self.has(&t) {
                continue;
            }
            if timeline.is_alive(t.id, here)? {
                out.push(t.id);
            }
        }
        Ok(out)
    }

    /// What a thread is called now.
    pub fn name(&self, timeline: &Timeline, id: ThreadId) -> Result<String> {
        let here = self.cursor.position()?;
        let thread = timeline.thread(id)?;
        let name = self.names.of(timeline, &thread, here)?;
        Ok(hindsight_text::line(&name).into_owned())
    }
}

/// A process or thread id as the protocol has it.
pub fn number(id: i32) -> u64 {
    id.unsigned_abs().max(1) as u64
}

/// A program image.
pub fn process(timeline: &Timeline, image: u32) -> Result<Process> {
    let all = timeline.processes()?;
    let found = all.into_iter().find(|p| p.image == image);
    found.ok_or(Error::NoProcess(image))
}

/// Names of all threads of a recording for the client: their ids, told apart where they were used again. What
/// `execve` replaced has the same name as what came for it.
pub fn tids(timeline: &Timeline) -> Result<Vec<(Tid, ThreadId)>> {
    let mut used: HashMap<usize, Vec<(i32, u32)>> = HashMap::new();
    let all = timeline.threads()?;
    let named = all.iter().map(|t| {
        let mut n = number(t.tid) as usize;
        let taken = |by: &(i32, u32)| by.0 != t.pid || by.1 == t.image;
        while used.get(&n).is_some_and(|by| by.iter().any(taken)) {
            n += 1 << 22;
        }
        used.entry(n).or_default().push((t.pid, t.image));
        (Tid::new(n).unwrap_or(Tid::MIN), t.id)
    });
    Ok(named.collect())
}

impl Session {
    /// Makes a process the active one; attaches to it if it is one of the recording and the client is not
    /// attached to it. `false`: there is no such process.
    pub fn activate(&mut self, pid: u64) -> Result<bool> {
        if pid == self.inferior.pid {
            return Ok(true);
        }
        if let Some(i) = self.parked.iter().position(|p| p.pid == pid) {
            std::mem::swap(&mut self.inferior, &mut self.parked[i]);
            return Ok(true);
        }
        let told = self.told_fork.filter(|f| f.pid == pid);
        let fresh = match told {
            Some(f) => self.child(&f)?,
            None => self.first_of(pid)?,
        };
        let Some(fresh) = fresh else {
            return Ok(false);
        };
        let last = std::mem::replace(&mut self.inferior, fresh);
        self.parked.push(last);
        self.begin()?;
        Ok(true)
    }

    /// Whether the client is attached to a process.
    pub fn is_attached(&self, pid: u64) -> bool {
        self.inferior.pid == pid || self.parked.iter().any(|p| p.pid == pid)
    }

    /// Leaves a process, if there is another one to go on with: the child of which the client was told, if it
    /// follows that.
    pub fn leave(&mut self, pid: u64) -> Result<bool> {
        if let Some(i) = self.parked.iter().position(|p| p.pid == pid) {
            self.parked.remove(i);
            return Ok(true);
        }
        if self.inferior.pid != pid {
            return Ok(false);
        }
        let child = self.told_fork.filter(|f| f.by == pid).map(|f| f.pid);
        let other = child.or(self.parked.last().map(|p| p.pid));
        match other {
            Some(other) if self.activate(other)? => {
                self.parked.retain(|p| p.pid != pid);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The process that a system call made, at its first instruction, with what the client has set in its parent:
    /// the client takes it for a copy.
    fn child(&self, f: &Fork) -> Result<Option<Inferior>> {
        let Some(first) = f.child else {
            return Ok(None);
        };
        let thread = self.timeline.thread(first)?;
        let mut cursor = self.timeline.cursor()?;
        cursor.seek_count(first, thread.from)?;
        let parents = std::iter::once(&self.inferior).chain(&self.parked);
        let parent = parents.into_iter().find(|p| p.pid == f.by);
        let mut new = Inferior::new(&self.timeline, cursor)?;
        if thread.pid != new.real {
            new.borrowed = Some(first);
        }
        (new.pid, new.real) = (f.pid, thread.pid);
        if let Some(parent) = parent {
            new.catch = parent.catch.clone();
            new.watches = parent.watches.clone();
            for w in &mut new.watches {
                w.image = Some(new.image);
            }
            new.breaks = parent.breaks.clone();
        }
        Ok(Some(new))
    }

    /// The first process with this id.
    fn first_of(&self, pid: u64) -> Result<Option<Inferior>> {
        let all = self.timeline.processes()?;
        let Some(p) = all.iter().find(|p| number(p.pid) == pid) else {
            return Ok(None);
        };
        let mut cursor = self.timeline.cursor()?;
        cursor.seek(p.begin)?;
        Inferior::new(&self.timeline, cursor).map(Some)
    }

    /// The thread's name for the client, with its process.
    pub fn thread_label(&self, inferior: &Inferior, id: ThreadId) -> String {
        format!("p{:x}.{:x}", inferior.pid, self.tid(id))
    }

    /// The threads that live, of all processes that the client is attached to, by process.
    pub fn all_live(&self) -> Result<Vec<(&Inferior, ThreadId)>> {
        let mut out = Vec::new();
        for i in std::iter::once(&self.inferior).chain(&self.parked) {
            for t in i.live(&self.timeline)? {
                out.push((i, t));
            }
        }
        Ok(out)
    }
}

/// What [`Session::begin`] finds out about the active process.
impl Session {
    /// Finds out what is to be known of the program image.
    pub fn begin(&mut self) -> Result<()> {
        let image = self.inferior.image;
        self.inferior.names = self.timeline.names(image)?;
        self.inferior.forks = processes::forks(self)?;
        let begin = self.present()?.begin;
        self.inferior.auxv = crate::auxv::find(self, begin)?;
        Ok(())
    }
}
