//! The processes that a client is attached to. Each is at a place of its own in time; one of them is active:
//! that which the client's last packet was about.

use crate::state::forks::Fork;
use crate::state::side::Side;
use crate::state::stops::{Break, SignalInfo};
use crate::{Error, Result};
use hindsight_packets::Tid;
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
