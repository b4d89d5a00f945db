//! The processes to which a client is attached. Each stands at an instant of its own. The last packet was about the
//! active one.

use crate::state::forks::Fork;
use crate::state::side::Side;
use crate::state::stops::Break;
use crate::{Error, Result};
use hindsight_inspect::SignalInfo;
use hindsight_packets::Tid;
use hindsight_timeline::{
    Cursor, Names, Position, Process, Thread, ThreadId, Timeline, Watchpoint,
};
use std::collections::HashMap;

/// One process, as the client sees it.
pub struct Inferior {
    /// The client's name of it: its process id when the client first heard of it.
    pub pid: u64,
    /// Its process id on the recording machine.
    pub real: i32,
    pub cursor: Cursor,
    /// Its program image at the cursor.
    pub image: u32,
    /// Its thread, if it still runs in its parent's memory (`vfork`). The recording has it as a thread of the parent's
    /// program image.
    pub borrowed: Option<ThreadId>,
    pub breaks: Vec<Break>,
    pub watches: Vec<Watchpoint>,
    /// Where the client last read what it watches, if the cursor has moved since then without its knowledge: thread and
    /// instructions.
    pub seen: Option<(ThreadId, u64)>,
    /// Watched variables that the client must read before it goes on: addresses and lengths.
    pub stale: Vec<(u64, u64)>,
    /// System calls that stop a run. An empty list means all of them.
    pub catch: Option<Vec<u64>>,
    pub signal: Option<SignalInfo>,
    /// Where the client last heard of a signal: thread and instructions.
    pub told_signal: Option<(ThreadId, u64)>,
    /// How often in a row the client has tried to step at the end.
    pub steps_at_end: u32,
    pub auxv: Vec<u8>,
    /// What the user has written, and its consequences.
    pub side: Option<Side>,
    /// Names that threads have given themselves, and the positions where they did.
    pub names: Names,
    /// Processes that this one makes.
    pub forks: Vec<Fork>,
    /// The client knows of a `vfork`, and not yet of its end.
    pub vfork_open: bool,
    /// The next step or run goes to this position of this program image.
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

    /// Whether a thread belongs to it.
    pub fn has(&self, thread: &Thread) -> bool {
        match self.borrowed {
            Some(own) => thread.id == own,
            None => thread.image == self.image && thread.pid == self.real,
        }
    }

    /// Threads that live where it stands. The cursor's is the first, even if it has ended.
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

    /// The present name of a thread.
    pub fn name(&self, timeline: &Timeline, id: ThreadId) -> Result<String> {
        let here = self.cursor.position()?;
        let thread = timeline.thread(id)?;
        let name = self.names.of(timeline, &thread, here)?;
        Ok(hindsight_text::line(&name).into_owned())
    }
}

/// A process or thread id as the protocol takes it: not negative, and not 0.
pub fn number(id: i32) -> u64 {
    id.unsigned_abs().max(1) as u64
}

/// A program image.
pub fn process(timeline: &Timeline, image: u32) -> Result<Process> {
    let all = timeline.processes()?;
    let found = all.into_iter().find(|p| p.image == image);
    found.ok_or(Error::NoProcess(image))
}

/// The client's names of all threads of a recording. They are the thread ids. Where an id was used again, a large
/// number is added. A thread keeps its name across `execve`.
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
