//! What gdb is connected to: instants in a recording, and what stops a run.

use crate::program::files::Files;
use crate::program::libraries::Listed;
use crate::state::action::Action;
use crate::state::arch::State;
use crate::state::bookmarks::Bookmarks;
use crate::state::carrying::Carrying;
use crate::state::forks::Fork;
use crate::state::inferior::Inferior;
use crate::state::interrupt::Interrupt;
use crate::state::stops::Signals;
use crate::{Error, Result};
use hindsight_packets::{Features, Label, Tid};
use hindsight_timeline::{Cancel, ThreadId, Timeline};
use std::collections::BTreeSet;
use std::time::Instant;

/// See [`Session::when_renewed`].
pub(crate) type Renewed = Box<dyn Fn(&Timeline)>;

/// A debugging session.
pub struct Session {
    pub timeline: Timeline,
    /// The active process. The others wait in `parked`.
    pub inferior: Inferior,
    pub parked: Vec<Inferior>,
    /// All threads of the recording, and gdb's names of them.
    pub(crate) tids: Vec<(Tid, ThreadId)>,
    /// Signals (Linux numbers) that stop no run.
    pub passed: BTreeSet<u8>,
    pub action: Action,
    /// The client hears of writes that change nothing, too.
    pub every_write: bool,
    /// Only the named thread runs.
    pub locked: bool,
    /// The thread that continues, if the client has named one.
    pub continued: Option<Tid>,
    /// The thread that gdb's user has chosen since the last stop.
    pub chosen_thread: Option<Tid>,
    pub cancel: Cancel,
    /// Interrupts what is not a run.
    pub interrupt: Interrupt,
    /// When a read of memory was interrupted, or was tried again soon after that.
    pub interrupted: Option<Instant>,
    pub files: Files,
    pub marks: Bookmarks,
    /// What of memory is carried over gaps, and whether the client gets it.
    pub carrying: Carrying,
    /// The next run does nothing but tell the client in which thread the session stands.
    pub showing: bool,
    /// What went wrong last; `monitor why` shows it.
    pub trouble: Option<String>,
    /// The last question of who wrote something was about a register.
    pub register_asked: bool,
    /// Texts for the user. The next stop or command shows them.
    pub notes: Vec<String>,
    /// What the client can be told.
    pub features: Features,
    /// The new process of the last stop, if that was a fork.
    pub told_fork: Option<Fork>,
    /// Libraries that the client has seen.
    pub(crate) listed: Listed,
    /// How often the timeline was replaced by a newer one of the same recording.
    pub renewals: u32,
    /// Is told of a newer timeline before it is used.
    pub(crate) renewed: Option<Renewed>,
    /// Where the threads of the recording get signals, once somebody needs it.
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

    /// Threads of this name. There are several if the process executed other programs.
    fn named(&self, tid: Tid) -> impl Iterator<Item = ThreadId> {
        self.tids
            .iter()
            .filter(move |(n, _)| *n == tid)
            .map(|(_, t)| *t)
    }

    /// The thread of this name: in the active process, or else in any.
    pub fn any_thread(&self, tid: Tid) -> Option<ThreadId> {
        self.thread(tid).or_else(|| self.named(tid).next())
    }

    /// The thread of this name in the active process.
    pub fn thread(&self, tid: Tid) -> Option<ThreadId> {
        let own = |id: &ThreadId| {
            self.timeline
                .thread(*id)
                .is_ok_and(|t| self.inferior.has(&t))
        };
        self.named(tid).find(own)
    }

    /// Threads of the active process that live where it stands. The first one is the thread in which it stands.
    pub fn live(&self) -> Result<Vec<Tid>> {
        let all = self.inferior.live(&self.timeline)?;
        Ok(all.into_iter().map(|t| self.tid(t)).collect())
    }

    /// The present registers of a thread.
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

    /// `tell` gets each newer timeline of a recording that is still being written, before it is used. It may need more
    /// memory than the one before.
    pub fn when_renewed(&mut self, tell: impl Fn(&Timeline) + 'static) {
        self.renewed = Some(Box::new(tell));
    }

    /// A handle by which another thread interrupts the session.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Moves the cursor to another thread at the same instant.
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
