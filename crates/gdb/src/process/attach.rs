//! The processes to which the client is attached.

use crate::Result;
use crate::state::forks::Fork;
use crate::state::inferior::{Inferior, number};
use crate::state::session::Session;
use hindsight_packets::Label;
use hindsight_timeline::ThreadId;

impl Session {
    /// Makes a process the active one, and attaches to it before if needed. `false`: the recording has no such process.
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

    /// Leaves a process, and goes on with another one. The new process of the last stop comes first: the client follows
    /// it. `false`: there is no other one.
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

    /// The process that a system call made, at its first instruction. It gets the points that are set in its parent,
    /// since the client takes it for a copy.
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
    pub fn thread_label(&self, inferior: &Inferior, id: ThreadId) -> Label {
        Label {
            process: Some(inferior.pid),
            thread: self.tid(id),
        }
    }

    /// The threads that live, of all processes to which the client is attached.
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
