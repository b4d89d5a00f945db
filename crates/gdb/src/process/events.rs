//! How processes begin and end: what gdb is told of `fork`, `vfork`, `execve` and of ends.

use crate::state::forks::{CLONE, CLONE_THREAD, CLONE_VFORK, CLONE3, FORKS, Fork, VFORK};
use crate::state::inferior;
use crate::state::session::Session;
use crate::state::told::Told;
use crate::{Error, Result};
use hindsight_packets::{Event, Label, Tid};
use hindsight_text::line;
use hindsight_timeline::{Ending, Filter, Kind, KindOf, Position, Process, Thread, ThreadId};

/// The processes that the active one makes.
pub fn forks(session: &Session) -> Result<Vec<Fork>> {
    let (timeline, image) = (&session.timeline, session.inferior.image);
    let threads = timeline.threads()?;
    let images = timeline.processes()?;
    let made_by = |t: &Thread| {
        let its = images.iter().find(|p| p.image == t.image);
        // It is a thread of the same memory, or an image of its own.
        t.image == image || its.is_some_and(|p| p.parent == image && !p.by_exec)
    };
    let calls = timeline.events(&Filter {
        image: Some(image),
        kinds: vec![KindOf::Syscall],
        syscalls: FORKS.to_vec(),
        ..Filter::default()
    })?;
    let mut cursor = timeline.cursor()?;
    let mut out = Vec::new();
    for c in calls {
        let Kind::Syscall {
            number,
            args,
            result: Some(pid),
        } = c.kind
        else {
            continue;
        };
        if pid == 0 || pid as i64 <= 0 {
            continue;
        }
        // Numbers may be used again: the first one that has not ended.
        let began = |t: &&Thread| inferior::number(t.tid) == pid && t.last > c.position;
        let same = threads.iter().filter(|t| t.image == image && began(t));
        let flags = match number {
            CLONE => args[0],
            // It made a thread that was recorded. To read memory at each of these calls may need the whole index.
            CLONE3 if same.min_by_key(|t| t.first).is_some_and(|t| t.tid != t.pid) => CLONE_THREAD,
            // The first member of its argument.
            CLONE3 => {
                cursor.seek_count(c.thread, c.count)?;
                match cursor.known_memory(args[0], 8)?.whole() {
                    Some(b) => b.iter().rev().fold(0, |acc, b| acc << 8 | *b as u64),
                    None => continue,
                }
            }
            VFORK => CLONE_VFORK,
            _ => 0,
        };
        if flags & CLONE_THREAD == 0 {
            // Numbers may be used again: the first one that has not ended.
            let child = threads.iter().find(|t| {
                inferior::number(t.pid) == pid
                    && t.tid == t.pid
                    && made_by(t)
                    && t.last > c.position
            });
            out.push(Fork {
                thread: c.thread,
                count: c.count + (flags & CLONE_VFORK == 0) as u64,
                pid,
                by: session.inferior.pid,
                vfork: flags & CLONE_VFORK != 0,
                child: child.map(|t| t.id),
            });
        }
    }
    Ok(out)
}

impl Session {
    fn process(&self, is: impl Fn(&Process) -> bool) -> Result<Option<Process>> {
        Ok(self.timeline.processes()?.into_iter().find(is))
    }

    /// The active program image.
    pub fn present(&self) -> Result<Process> {
        let found = self.process(|p| p.image == self.inferior.image)?;
        found.ok_or(Error::NoProcess(self.inferior.image))
    }

    /// The image that replaces this one in its process, if the client wants to hear of it.
    pub fn replaced_by(&self) -> Result<Option<Process>> {
        if !self.features.execs {
            return Ok(None);
        }
        let pid = self.inferior.real;
        self.process(|p| p.by_exec && p.parent == self.inferior.image && p.pid == pid)
    }

    /// The image that this one replaced.
    pub fn replaces(&self) -> Result<Option<Process>> {
        let present = self.present()?;
        if !self.features.execs || !present.by_exec {
            return Ok(None);
        }
        self.process(|p| p.image == present.parent && p.pid == present.pid)
    }

    /// Goes over into another program image of the process. gdb hears of an `execve`, also backwards, so that it reads
    /// the program's symbols.
    pub fn enter(&mut self, image: u32, at: Position) -> Result<Told> {
        self.inferior.cursor.seek(at)?;
        self.inferior.image = image;
        self.inferior.borrowed = None;
        self.inferior.real = self.present()?.pid;
        self.begin()?;
        // They are gone with the program.
        self.inferior.breaks.clear();
        self.inferior.watches.clear();
        let modules = self.timeline.modules(image)?;
        let path = modules.first().map_or("", |m| m.path.as_str());
        let event = Event::Exec(line(path).into_owned());
        Ok(self.told(event))
    }

    /// Goes to the beginning of another program image, in its own process. For clients that know several processes, the
    /// present one stays where it is.
    pub fn turn(&mut self, image: u32, at: Position) -> Result<Told> {
        let pid = inferior::number(inferior::process(&self.timeline, image)?.pid);
        if self.features.processes && self.activate(pid)? {
            self.leave_side()?;
        }
        self.enter(image, at)
    }

    /// Makes the next step or run go to the beginning of another program image.
    pub fn choose(&mut self, image: u32) -> Result<()> {
        let found = self.process(|p| p.image == image)?;
        let found = found.ok_or(Error::NoProcess(image))?;
        self.leave_side()?;
        self.inferior.chosen = Some((image, found.begin));
        Ok(())
    }

    /// The process that is made where the cursor stands, if the client does not have it already.
    pub fn forked(&self) -> Option<Fork> {
        let (thread, count) = (self.inferior.cursor.thread(), self.inferior.cursor.count());
        let here = |f: &&Fork| f.thread == thread && f.count == count && !self.is_attached(f.pid);
        let found = self.inferior.forks.iter().find(here).copied()?;
        match found.vfork {
            true => self.features.vforks,
            false => self.features.forks,
        }
        .then_some(found)
    }

    /// Tells of a new process.
    pub fn tell_fork(&mut self, f: Fork) -> Told {
        self.inferior.vfork_open = f.vfork;
        self.told_fork = Some(f);
        let first = f.child.map(|t| self.tid(t));
        let first = Label {
            process: Some(f.pid),
            thread: first.or(Tid::new(f.pid as usize)).unwrap_or(Tid::MIN),
        };
        self.told(match f.vfork {
            true => Event::VFork(first),
            false => Event::Fork(first),
        })
    }

    /// A stop of the cursor's thread with an event.
    pub fn told(&self, event: Event) -> Told {
        Told::event(self.tid(self.inferior.cursor.thread()), event)
    }

    /// Whether its program image ends with a thread.
    pub fn is_over(&self, thread: ThreadId) -> Result<bool> {
        let t = self.timeline.thread(thread)?;
        Ok(t.ending == Ending::Exec || self.inferior.cursor.position()? >= self.last()?)
    }

    /// The last instant of the process.
    fn last(&self) -> Result<Position> {
        let threads = self.timeline.threads()?;
        let mine = threads.iter().filter(|t| self.inferior.has(t));
        mine.map(|t| t.last).max().ok_or(Error::NoThread(0))
    }

    /// Notes for the user how the process ended. If other threads go on, notes how the thread ended.
    pub fn note_end(&mut self, thread: ThreadId) -> Result<()> {
        if !self.is_over(thread)? {
            let t = self.timeline.thread(thread)?;
            self.notes.push(match t.ending {
                Ending::Unknown | Ending::Signal(_) => {
                    format!(
                        "[thread {} does nothing more until its process ends]",
                        t.tid
                    )
                }
                how => format!("[end of thread {}: {how}]", t.tid),
            });
            return Ok(());
        }
        if self.is_growing()? {
            self.notes.push(self.how_to_go_on()?);
            return Ok(());
        }
        let threads = self.timeline.threads()?;
        let mut mine = threads.iter().filter(|t| self.inferior.has(t));
        let how = |t: &&Thread| t.ending != Ending::Unknown;
        if let Some(t) = mine.clone().find(how).or_else(|| mine.next()) {
            let note = format!("[end of the recording of this process: {}]", t.ending);
            self.notes.push(note);
        }
        Ok(())
    }
}
