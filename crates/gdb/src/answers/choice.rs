//! Which process and thread a request is about.
//!
//! Clients choose a thread (`Hg`), and later packets are about it and its process. A session has one active process.
//! So before a request is answered, the process that it is about becomes the active one.

use crate::Result;
use crate::answers::FAILED;
use crate::state::session::Session;
use hindsight_packets::{
    Answer, Object, Points, Process, Request, Resume, Thread, ThreadName, Tid,
};

/// What the client has chosen.
#[derive(Default)]
pub struct Choice {
    /// The process of `Hg`; `None`: the one that stopped last.
    general: Option<u64>,
    /// The thread of `Hg` since the last stop; `None`: the one that stopped.
    chosen: Option<Tid>,
    /// The thread that stopped last, or that was chosen since then.
    thread: Option<Tid>,
    /// The process of `Hc`, for runs that name none.
    resumed: Option<u64>,
    /// The thread of `Hc`. If there is one, it runs alone.
    pub alone: Option<Tid>,
    /// The client has turned to this process without being attached to it, with this name. It usually lets the process
    /// go next.
    next: Option<(u64, ThreadName)>,
}

impl Choice {
    /// Makes the process active that a request is about. `Some`: that was all, and this is the answer.
    pub fn make(&mut self, session: &mut Session, request: &Request) -> Result<Option<Answer>> {
        let process = match request {
            Request::Thread(Thread::Choose(name)) => return self.choose(session, *name),
            Request::Thread(Thread::ChooseToRun(name)) => {
                self.resumed = name.pid();
                self.alone = name.tid();
                let answer = activate(session, self.resumed)?;
                return Ok(answer.or(Some(Answer::ok())));
            }
            Request::Process(Process::Detach(Some(pid)) | Process::Kill(Some(pid))) => {
                return self.leave(session, *pid);
            }
            Request::Resume(Resume::Actions(all)) => all.iter().find_map(|a| a.thread?.pid()),
            Request::Resume(Resume::Plain { .. } | Resume::Back { .. }) => {
                self.resumed.or(self.general)
            }
            Request::Transfer(t) if let Object::ExecFile(pid) = t.object => pid,
            Request::Points(Points::Remove(_)) if self.next.is_some() => {
                // Nothing is set in a process that the client is not attached to.
                return Ok(Some(Answer::ok()));
            }
            _ => {
                if let Some((pid, name)) = self.next.take() {
                    self.general = Some(pid);
                    if let Some(failed) = activate(session, Some(pid))? {
                        return Ok(Some(failed));
                    }
                    self.set_thread(session, name)?;
                }
                self.general
            }
        };
        activate(session, process)
    }

    /// `Hg`
    fn choose(&mut self, session: &mut Session, name: ThreadName) -> Result<Option<Answer>> {
        self.next = None;
        self.chosen = name.tid();
        if let Some(pid) = name.pid() {
            if !session.is_attached(pid) {
                self.next = Some((pid, name));
                return Ok(Some(Answer::ok()));
            }
            self.general = Some(pid);
            if let Some(failed) = activate(session, Some(pid))? {
                return Ok(Some(failed));
            }
        }
        self.set_thread(session, name)?;
        Ok(Some(Answer::ok()))
    }

    fn set_thread(&mut self, session: &Session, name: ThreadName) -> Result<()> {
        self.thread = match name.tid() {
            Some(tid) => Some(tid),
            None => session.live()?.first().copied(),
        };
        Ok(())
    }

    /// `D` or `vKill` with a process. `None`: it is the last one, and the session ends.
    fn leave(&mut self, session: &mut Session, pid: u64) -> Result<Option<Answer>> {
        if !session.is_attached(pid) {
            self.next = None;
            return Ok(Some(Answer::ok()));
        }
        let left = session.leave(pid)?;
        for chosen in [&mut self.general, &mut self.resumed] {
            chosen.take_if(|p| *p == pid);
        }
        Ok(left.then(Answer::ok))
    }

    /// The thread whose registers and memory are meant.
    pub fn thread(&self, session: &Session) -> Result<Tid> {
        Ok(match self.thread {
            Some(tid) => tid,
            None => session.live()?.first().copied().unwrap_or(Tid::MIN),
        })
    }

    /// The thread that a step without a thread steps.
    pub fn steps(&self, session: &Session) -> Tid {
        let stands = session.tid(session.inferior.cursor.thread());
        let chosen = self.chosen.filter(|t| session.thread(*t).is_some());
        self.alone.or(chosen).unwrap_or(stands)
    }

    /// The client is told of a stop, and takes that thread and its process for the chosen ones.
    pub fn stopped(&mut self, tid: Tid) {
        self.general = None;
        self.chosen = None;
        self.next = None;
        self.thread = Some(tid);
    }
}

/// Makes a process the active one, if one is named. `Some`: there is none, and this is the answer.
fn activate(session: &mut Session, pid: Option<u64>) -> Result<Option<Answer>> {
    Ok(match pid {
        Some(pid) if !session.activate(pid)? => Some(Answer::error(FAILED)),
        _ => None,
    })
}
