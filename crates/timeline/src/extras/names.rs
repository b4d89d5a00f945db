//! The names of threads.

use crate::recording::forked_by;
use crate::scan::FORKS;
use crate::scan::Raw;
use crate::{Cursor, Position, Result, Thread, ThreadId, Timeline};
use std::collections::HashMap;
use std::sync::OnceLock;

const WRITE: u64 = 1;
const OPEN: u64 = 2;
const PRCTL: u64 = 157;
const OPENAT: u64 = 257;
const PR_SET_NAME: u64 = 15;
/// Opened for writing (`O_WRONLY`, `O_RDWR`).
const WRITABLE: u64 = 3;
/// Bytes of a name, without the zero at its end (prctl(2)).
const LONGEST: usize = 15;
/// The most bytes that are read of the path of a thread's name, and of what is written there.
const PATH: usize = 64;

/// The names that threads of a program image had. Threads give themselves names by `prctl`. They name each other by
/// `/proc/self/task/TID/comm` (`pthread_setname_np`). A new thread has the name of the one that created it. Names that
/// other processes give are not known.
///
/// Memory is read when somebody asks for a name. For that, a part of the index may be made.
#[derive(Clone, Debug, Default)]
pub struct Names {
    given: Vec<Given>,
    /// For each thread id, the threads that had it and when they began, ascending.
    all: HashMap<i32, Vec<(Position, ThreadId)>>,
    /// For each thread, which other thread created it, and where.
    makers: HashMap<ThreadId, (ThreadId, Position)>,
    /// The first thread of a forked process. Then the thread that forked it, and at which instruction.
    forked: Option<(ThreadId, (ThreadId, u64))>,
}

/// A place where a thread may have given a name.
#[derive(Clone, Debug)]
struct Given {
    at: Position,
    by: ThreadId,
    count: u64,
    /// The address of the name, and how long it may be.
    name: (u64, usize),
    /// The path of the file to which it was written, and where the file was opened. `None`: it is the thread's own
    /// name.
    file: Option<(u64, u64)>,
    /// The thread that got the name, and the name. It is set once somebody has asked.
    found: OnceLock<Option<(ThreadId, String)>>,
}

impl Timeline {
    /// The names of the threads of a program image.
    pub fn names(&self, image: u32) -> Result<Names> {
        let mut names = Names::default();
        let threads = self.0.threads_of(image);
        for t in &threads {
            let t = self.thread(*t)?;
            names.all.entry(t.tid).or_default().push((t.first, t.id));
        }
        for by in threads.iter().copied() {
            let mut opened = None;
            for (count, event) in &self.0.scan(by)?.events {
                let Raw::Syscall {
                    number,
                    args,
                    result: Some(result),
                } = *event
                else {
                    continue;
                };
                let open = opened.take();
                let mut give = |name, file| -> Result<()> {
                    names.given.push(Given {
                        at: self.position(by, *count)?,
                        by,
                        count: *count,
                        name,
                        file,
                        found: OnceLock::new(),
                    });
                    Ok(())
                };
                match number {
                    PRCTL if args[0] == PR_SET_NAME && result == 0 => {
                        give((args[1], LONGEST), None)?;
                    }
                    OPEN if args[1] & WRITABLE != 0 => opened = Some((result, args[0], *count)),
                    OPENAT if args[2] & WRITABLE != 0 => opened = Some((result, args[1], *count)),
                    WRITE if args[2] <= PATH as u64 => {
                        if let Some((_, path, since)) = open.filter(|o| o.0 == args[0]) {
                            give(
                                (args[1], LONGEST.min(args[2] as usize)),
                                Some((path, since)),
                            )?;
                        }
                    }
                    n if FORKS.contains(&n) => {
                        let Some(same) = names.all.get(&(result as i32)) else {
                            continue;
                        };
                        let position = self.position(by, *count)?;
                        if let Some(made) = same.iter().find(|t| position < t.0) {
                            names.makers.insert(made.1, (by, position));
                        }
                    }
                    _ => {}
                }
            }
        }
        names.given.sort_by_key(|g| g.at);
        let parent = self.0.parent(image);
        if self.0.is_forked(image)
            && parent < image
            && let Some(first) = threads.first()
            && let Some(made) = forked_by(&self.0, parent, image)?
        {
            names.forked = Some((*first, made));
        }
        Ok(names)
    }
}

/// The thread whose name a file holds, as seen by a thread of the same process.
fn of_path(
    path: &str,
    who: &Thread,
    at: Position,
    all: &HashMap<i32, Vec<(Position, ThreadId)>>,
) -> Option<ThreadId> {
    let tid = match path.strip_prefix("/proc/")?.strip_suffix("/comm")? {
        "self" => who.pid,
        "thread-self" => who.tid,
        path => path.rsplit('/').next()?.parse().ok()?,
    };
    let begun = all.get(&tid)?.iter().rev().find(|t| t.0 < at)?;
    Some(begun.1)
}

/// The text at an address, up to a zero. It says where bytes are not known.
fn text(cursor: &mut Cursor, address: u64, most: usize) -> Result<String> {
    let known = cursor.known_memory(address, most)?.prefix();
    let end = known.iter().position(|b| *b == 0);
    let text = String::from_utf8_lossy(&known[..end.unwrap_or(known.len())]).into_owned();
    Ok(match end.is_some() || known.len() == most {
        true => text,
        false => text + "…",
    })
}

impl Names {
    /// The name of a thread at a position. A thread is called as its program, until it, or a thread that created it,
    /// gets another name.
    pub fn of(&self, timeline: &Timeline, thread: &Thread, here: Position) -> Result<String> {
        let (mut id, mut before) = (thread.id, here);
        for _ in 0..=self.makers.len() {
            let end = self.given.partition_point(|g| g.at < before);
            for given in self.given[..end].iter().rev() {
                // This needs no look at memory.
                if given.file.is_none() && given.by != id {
                    continue;
                }
                if let Some((_, name)) = self.found(timeline, given)?.filter(|(t, _)| *t == id) {
                    return Ok(name.clone());
                }
            }
            match self.makers.get(&id) {
                Some(made) => (id, before) = *made,
                None => break,
            }
        }
        match self.forked {
            Some((first, (maker, count))) if first == id => {
                let maker = timeline.thread(maker)?;
                let at = timeline.position(maker.id, count)?;
                timeline.names(maker.image)?.of(timeline, &maker, at)
            }
            _ => Ok(thread.name.clone()),
        }
    }

    /// The thread that got the name, and the name.
    fn found<'a>(
        &self,
        timeline: &Timeline,
        given: &'a Given,
    ) -> Result<Option<&'a (ThreadId, String)>> {
        if let Some(found) = given.found.get() {
            return Ok(found.as_ref());
        }
        let mut cursor = timeline.cursor()?;
        let whose = match given.file {
            None => Some(given.by),
            Some((path, since)) => {
                cursor.seek_count(given.by, since)?;
                let path = text(&mut cursor, path, PATH)?;
                of_path(&path, &timeline.thread(given.by)?, given.at, &self.all)
            }
        };
        let mut found = None;
        if let Some(whose) = whose {
            cursor.seek_count(given.by, given.count)?;
            found = Some((whose, text(&mut cursor, given.name.0, given.name.1)?));
        }
        Ok(given.found.get_or_init(|| found).as_ref())
    }
}
