//! What threads are called.

use crate::scan::Raw;
use crate::value::{FORKS, forked_by};
use crate::{Cursor, Position, Result, Thread, ThreadId, Timeline};
use std::collections::HashMap;

const WRITE: u64 = 1;
const OPEN: u64 = 2;
const PRCTL: u64 = 157;
const OPENAT: u64 = 257;
const PR_SET_NAME: u64 = 15;
/// Opened to be written (`O_WRONLY`, `O_RDWR`).
const WRITABLE: u64 = 3;
/// Bytes of a name, without the zero behind it (prctl(2)).
const LONGEST: usize = 15;
/// Bytes of the path of a thread's name, and of what is written there.
const PATH: usize = 64;

/// The names that threads of a program image had: those that they gave themselves by `prctl`, or each other by
/// `/proc/self/task/TID/comm` (`pthread_setname_np`); and new ones that of the thread that made them. What other processes call
/// them is not among them.
#[derive(Clone, Debug, Default)]
pub struct Names {
    given: Vec<(ThreadId, Position, String)>,
    /// Threads, and where which other made them.
    makers: HashMap<ThreadId, (ThreadId, Position)>,
    /// What the first thread of a forked process was called when it began.
    forked: Option<(ThreadId, String)>,
}

impl Timeline {
    /// What threads of a program image are called. The memory that they gave is looked at, for which a part of the index may
    /// be made.
    pub fn names(&self, image: u32) -> Result<Names> {
        let mut names = Names::default();
        let mut cursor = self.cursor()?;
        let threads = self.0.threads_of(image);
        let mut all = All::default();
        for t in &threads {
            let t = self.thread(*t)?;
            all.entry(t.tid).or_default().push((t.first, t.id));
        }
        for maker in threads.iter().copied() {
            let at = |count: u64| self.position(maker, count);
            let mut opened = None;
            for (count, event) in &self.0.scan(maker)?.events {
                let Raw::Syscall {
                    number,
                    args,
                    result: Some(result),
                } = *event
                else {
                    continue;
                };
                let open = opened.take();
                match number {
                    PRCTL if args[0] == PR_SET_NAME && result == 0 => {
                        cursor.seek_count(maker, *count)?;
                        let name = text(&mut cursor, args[1], LONGEST)?;
                        names.given.push((maker, at(*count)?, name));
                    }
                    OPEN if args[1] & WRITABLE != 0 => opened = Some((result, args[0], *count)),
                    OPENAT if args[2] & WRITABLE != 0 => opened = Some((result, args[1], *count)),
                    WRITE if args[2] <= PATH as u64 => {
                        let Some((_, path, since)) = open.filter(|o| o.0 == args[0]) else {
                            continue;
                        };
                        cursor.seek_count(maker, since)?;
                        let path = text(&mut cursor, path, PATH)?;
                        let position = at(*count)?;
                        if let Some(named) = of_path(&path, &self.thread(maker)?, position, &all) {
                            cursor.seek_count(maker, *count)?;
                            let name = text(&mut cursor, args[1], LONGEST.min(args[2] as usize))?;
                            names.given.push((named, position, name));
                        }
                    }
                    n if FORKS.contains(&n) => {
                        let Some(same) = all.get(&(result as i32)) else {
                            continue;
                        };
                        let position = at(*count)?;
                        if let Some(made) = same.iter().find(|t| position < t.0) {
                            names.makers.insert(made.1, (maker, position));
                        }
                    }
                    _ => {}
                }
            }
        }
        names.given.sort_by_key(|g| g.1);
        let parent = self.0.parent(image);
        if self.0.is_forked(image)
            && parent < image
            && let Some(first) = threads.first()
            && let Some((maker, count)) = forked_by(self, parent, image)?
        {
            let at = self.position(maker, count)?;
            let name = self.names(parent)?.of(&self.thread(maker)?, at).to_owned();
            names.forked = Some((*first, name));
        }
        Ok(names)
    }
}

/// Threads by their ids, and when they begin, ascending.
type All = HashMap<i32, Vec<(Position, ThreadId)>>;

/// The thread whose name a file is, for a thread of the same process.
fn of_path(path: &str, who: &Thread, at: Position, all: &All) -> Option<ThreadId> {
    let tid = match path.strip_prefix("/proc/")?.strip_suffix("/comm")? {
        "self" => who.pid,
        "thread-self" => who.tid,
        path => path.rsplit('/').next()?.parse().ok()?,
    };
    let begun = all.get(&tid)?.iter().rev().find(|t| t.0 < at)?;
    Some(begun.1)
}

/// Text at an address, up to a zero. What is not known of it is shown as such.
fn text(cursor: &mut Cursor, address: u64, most: usize) -> Result<String> {
    let known = cursor.peek(address, most)?.prefix();
    let end = known.iter().position(|b| *b == 0);
    let text = String::from_utf8_lossy(&known[..end.unwrap_or(known.len())]).into_owned();
    Ok(match end.is_some() || known.len() == most {
        true => text,
        false => text + "…",
    })
}

impl Names {
    /// What a thread is called at a position: as its program, until it, or one that made it, is given a name.
    pub fn of<'a>(&'a self, thread: &'a Thread, here: Position) -> &'a str {
        let (mut id, mut here) = (thread.id, here);
        for _ in 0..=self.makers.len() {
            let mut given = self.given.iter().rev();
            if let Some((_, _, name)) = given.find(|(t, p, _)| *t == id && *p < here) {
                return name;
            }
            match self.makers.get(&id) {
                Some(made) => (id, here) = *made,
                None => break,
            }
        }
        match &self.forked {
            Some((first, name)) if *first == id => name,
            _ => &thread.name,
        }
    }
}
