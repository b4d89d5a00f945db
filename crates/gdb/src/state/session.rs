//! What gdb is connected to: a place in a recording, and what it is to stop at.

use crate::program::files::Files;
use crate::program::libraries::Listed;
use crate::state::action::Action;
use crate::state::arch::State;
use crate::state::bookmarks::Bookmarks;
use crate::state::forks::Fork;
use crate::state::inferior::Inferior;
use crate::state::interrupt::Interrupt;
use crate::state::stops::Signals;
use crate::{Error, Result};
use hindsight_packets::{Features, Label, Tid};
use hindsight_timeline::{Cancel, ThreadId, Timeline};
use std::collections::BTreeSet;
use std::time::Instant;

/// A debugging session.
pub struct Session {
    pub timeline: Timeline,
    /// The process that is active, and those that wait.
    pub inferior: Inferior,
    pub parked: Vec<Inferior>,
    /// All threads of the recording and their names for gdb.
    pub(crate) tids: Vec<(Tid, ThreadId)>,
    /// Signals (Linux numbers) at which not to stop.
    pub passed: BTreeSet<u8>,
    pub action: Action,
    /// The client is told also of writes that change nothing.
    pub every_write: bool,
    /// Only the thread that was named runs.
    pub locked: bool,
    /// The thread that is to continue, if it is one.
    pub continued: Option<Tid>,
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
    /// What the client can be told.
    pub features: Features,
    /// The process that gdb was told of last, before it went on.
    pub told_fork: Option<Fork>,
    /// Libraries that the client has seen.
    pub(crate) listed: Listed,
    /// Where the threads of the recording get signals, once that was asked for.
    pub(crate) signals: Option<Signals>,
}

impl Session {
    /// gdb's name of a thread.
    pub fn tid(&self, id: ThreadId) -> Tid {
        let found = self.tids.iter().find(|(_, t)| *t == id);
        found.map_or(Tid::MIN, |(tid, _)| *tid)
    }

    /// The client's name of a thread of the active process.
    pub fn label(&self, tid: Tid) -> Label {
        Label {
            process: self.features.processes.then_some(self.inferior.pid),
            thread: tid,
        }
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
}
