//! How the processes of a recording come from one another: what gdb is told of `fork`, `vfork` and
//! `execve`.

use crate::session::{Session, Told};
use crate::{Error, Result};
use hindsight_timeline::{Ending, Filter, Kind, KindOf, Position, Process, ThreadId, Timeline};
use std::fmt::Write;

/// System calls that make processes: clone, fork, vfork, clone3.
pub const FORKS: [u64; 4] = [CLONE, FORK, VFORK, CLONE3];
const CLONE: u64 = 56;
const FORK: u64 = 57;
const VFORK: u64 = 58;
const CLONE3: u64 = 435;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;

/// What the client wants to be told of.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wanted {
    pub forks: bool,
    pub vforks: bool,
    pub execs: bool,
}

impl Wanted {
    /// As the client says in `qSupported`.
    pub fn of(packet: &[u8]) -> Wanted {
        let says = |feature: &[u8]| packet.windows(feature.len()).any(|w| w == feature);
        Wanted {
            forks: says(b";fork-events+"),
            vforks: says(b";vfork-events+"),
            execs: says(b";exec-events+"),
        }
    }
}

/// A process that a thread makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fork {
    pub thread: ThreadId,
    /// Instructions that it has completed when the call is over.
    pub count: u64,
    pub pid: u64,
    pub vfork: bool,
}

/// The processes that a program image makes.
pub fn forks(timeline: &Timeline, image: u32) -> Result<Vec<Fork>> {
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
        let flags = match number {
            CLONE => args[0],
            // The first member of its argument.
            CLONE3 => {
                cursor.seek_count(c.thread, c.count)?;
                match cursor.memory(args[0], 8)?.whole() {
                    Some(b) => b.iter().rev().fold(0, |acc, b| acc << 8 | *b as u64),
                    None => continue,
                }
            }
            VFORK => CLONE_VFORK,
            _ => 0,
        };
        if flags & CLONE_THREAD == 0 {
            out.push(Fork {
                thread: c.thread,
                count: c.count + 1,
                pid,
                vfork: flags & CLONE_VFORK != 0,
            });
        }
    }
    Ok(out)
}

impl Session {
    fn process(&self, is: impl Fn(&Process) -> bool) -> Result<Option<Process>> {
        Ok(self.timeline.processes()?.into_iter().find(is))
    }

    /// The program image at hand.
    pub fn present(&self) -> Result<Process> {
        let found = self.process(|p| p.image == self.image)?;
        found.ok_or(Error::NoProcess(self.image))
    }

    /// The image that replaces this one in its process, if the client wants to know.
    pub fn replaced_by(&self) -> Result<Option<Process>> {
        if !self.wanted.execs {
            return Ok(None);
        }
        let pid = self.present()?.pid;
        self.process(|p| p.by_exec && p.parent == self.image && p.pid == pid)
    }

    /// The image that this one replaced.
    pub fn replaces(&self) -> Result<Option<Process>> {
        let present = self.present()?;
        if !self.wanted.execs || !present.by_exec {
            return Ok(None);
        }
        self.process(|p| p.image == present.parent && p.pid == present.pid)
    }

    /// Goes into another program image of the process, which gdb is told as `execve`, forwards and
    /// backwards: it reads the program's symbols then.
    pub fn enter(&mut self, image: u32, at: Position) -> Result<Told> {
        self.cursor.seek(at)?;
        self.image = image;
        self.begin()?;
        // They are gone with the program.
        self.breaks.clear();
        self.watches.clear();
        let modules = self.timeline.modules(image)?;
        let path = modules.first().map_or("", |m| m.path.as_str());
        let mut event = String::from("exec:");
        for b in path.bytes() {
            let _ = write!(event, "{b:02x}");
        }
        Ok(self.told(event))
    }

    /// Has the next step or run go to the beginning of another program image.
    pub fn choose(&mut self, image: u32) -> Result<()> {
        let found = self.process(|p| p.image == image)?;
        let found = found.ok_or(Error::NoProcess(image))?;
        self.leave_side()?;
        self.chosen = Some((image, found.begin));
        Ok(())
    }

    /// The process that the system call behind which the cursor stands has made.
    pub fn forked(&self) -> Option<Fork> {
        let (thread, count) = (self.cursor.thread(), self.cursor.count());
        let here = |f: &&Fork| f.thread == thread && f.count == count;
        let found = self.forks.iter().find(here).copied()?;
        match found.vfork {
            true => self.wanted.vforks,
            false => self.wanted.forks,
        }
        .then_some(found)
    }

    /// Tells of a new process, which gdb then lets go.
    pub fn tell_fork(&mut self, f: Fork) -> Told {
        self.vfork_open = f.vfork;
        let kind = if f.vfork { "vfork" } else { "fork" };
        self.told(format!("{kind}:p{0:x}.{0:x}", f.pid))
    }

    /// A stop with an event that the library does not know.
    pub fn told(&mut self, event: String) -> Told {
        self.event = Some(event);
        Told::Library(self.tid(self.cursor.thread()))
    }

    /// Says how the process ended.
    pub fn note_end(&mut self) -> Result<()> {
        let threads = self.timeline.threads()?;
        let mut mine = threads.iter().filter(|t| t.image == self.image);
        let how = |t: &&hindsight_timeline::Thread| t.ending != Ending::Unknown;
        if let Some(t) = mine.clone().find(how).or_else(|| mine.next()) {
            let note = format!("[end of the recording of this process: {}]", t.ending);
            self.notes.push(note);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_told_apart() {
        let w = Wanted::of(b"$qSupported:multiprocess+;vfork-events+;exec-events+#00");
        assert!(!w.forks && w.vforks && w.execs);
        let w = Wanted::of(b"$qSupported:multiprocess+;fork-events+#00");
        assert!(w.forks && !w.vforks && !w.execs);
    }
}
