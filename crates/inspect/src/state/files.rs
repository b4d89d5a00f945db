//! What a process has open at an instant.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::contents::Known;
use super::{ProcessState, Stored};
use hindsight_timeline::Result;
use hindsight_timeline::{
    Cursor, Flow, Named, OpenFile, Position, Thread, ThreadId, Timeline, Told, Transfer, Way, What,
};
use libc::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The most bytes of files' contents that are kept in memory.
const MOST: u64 = 512 << 20;
/// The most bytes that a pipe can hold.
const PIPE: usize = 1 << 20;
/// Flags that `fcntl` may change.
const CHANGEABLE: i32 = O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME;
const FIONBIO: u64 = 0x5421;

/// Something that is open (an open file description).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    /// What it is.
    pub kind: OpenKind,
    /// Flags, as `open` takes them.
    pub flags: i32,
    /// Where the next bytes are read or written. `None`: that is not known, or there is no place.
    pub place: Option<u64>,
    /// Other processes had it, too.
    pub shared: bool,
    /// Locks on it.
    pub locks: Vec<Lock>,
}

/// What is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum OpenKind {
    /// What the program began with under this number: 0, 1 or 2.
    Standard(i32),
    /// A file with a path.
    File {
        /// Its path then.
        path: Vec<u8>,
        /// Its content in [`Stored`].
        stored: u32,
        /// Its content may have changed by ways that are not recorded, in words.
        unsure: Option<String>,
    },
    /// A file without a name: it was deleted, or never had one.
    Unnamed {
        /// What it was, in words.
        what: String,
        /// Its content in [`Stored`].
        stored: u32,
        /// As for files.
        unsure: Option<String>,
    },
    /// A folder.
    Folder {
        /// Its path.
        path: Vec<u8>,
        /// It was read already.
        read: bool,
    },
    /// An end of a pipe.
    Pipe {
        /// Numbers pipes.
        number: u64,
        /// It is the end that is read from.
        reads: bool,
        /// What was written and not read. `None`: that is not known.
        waiting: Option<Vec<u8>>,
    },
    /// A counter (`eventfd`). `None`: its value is not known.
    Counter(Option<u64>),
    /// A descriptor from which signals are read: which.
    Signals(u64),
    /// What waits for others (`epoll`).
    Epoll(Vec<Interest>),
    /// What cannot be made again, in words.
    Lost(String),
}

/// What an `epoll` waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interest {
    /// The descriptor.
    pub fd: i32,
    /// Which of the process's open ones it leads to.
    pub open: u32,
    /// The events.
    pub events: u32,
    /// What the program gets back.
    pub data: u64,
}

/// A lock on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// 0: of the process (`F_SETLK`); 1: of the open file (`F_OFD_SETLK`); 2: of the whole file (`flock`).
    pub kind: u8,
    /// It excludes all others.
    pub exclusive: bool,
    /// Its first byte.
    pub start: u64,
    /// How many; 0: to the end.
    pub len: u64,
}

/// A file, whatever names it has.
#[derive(Default)]
struct Inode {
    known: Known,
    /// `None`: it has none.
    path: Option<Vec<u8>>,
    what: String,
    unsure: Option<String>,
    /// What happens from here on says nothing of the instant.
    over: bool,
    /// Where the last read ended.
    read_to: u64,
}

/// What has happened to what is open.
struct Files<'a> {
    timeline: &'a Timeline,
    own: &'a Thread,
    at: Position,
    counts: HashMap<ThreadId, u64>,
    /// Paths and numbers of what is open at the instant.
    paths: HashSet<Vec<u8>>,
    numbers: HashSet<u64>,
    inodes: Vec<Inode>,
    names: HashMap<Vec<u8>, usize>,
    opened: HashMap<u64, usize>,
    flags: HashMap<u64, i32>,
    read: HashSet<u64>,
    pipes: HashMap<u64, Option<VecDeque<u8>>>,
    counters: HashMap<u64, (Option<u64>, bool)>,
    signals: HashMap<u64, u64>,
    interests: HashMap<u64, BTreeMap<(i32, u64), (u32, u64)>>,
    locks: HashMap<u64, Vec<Lock>>,
    cost: u64,
}

/// Adds what the process has open.
pub fn opened(
    timeline: &Timeline,
    own: &Thread,
    at: Position,
    state: &mut ProcessState,
) -> Result<Stored> {
    let found = timeline.descriptors(own.id, at)?;
    state.folder = found.folder.clone();
    if found.unseen.gaps {
        state
            .notes
            .push("threads ran where they are not recorded, so descriptors may be others".into());
    }
    if found.unseen.hidden {
        state.notes.push(
            "the program used ways to move bytes and descriptors that are not recorded".into(),
        );
    }
    let mut files = Files::new(timeline, own, at);
    for d in &found.list {
        files.numbers.insert(d.file.number);
        if let What::File { path: Some(p), .. } = &d.file.what {
            files.paths.insert(p.clone());
        }
    }
    let matters = |f: &OpenFile| {
        !matches!(
            f.what,
            What::Inherited | What::Unknown | What::Socket { .. }
        )
    };
    if found.list.iter().any(|d| matters(&d.file)) {
        timeline.flow_told(None, &mut |cursor, flow| files.visit(cursor, &flow))?;
    }
    let mut which: BTreeMap<u64, u32> = BTreeMap::new();
    for d in &found.list {
        let next = state.open.len() as u32;
        let n = *which.entry(d.file.number).or_insert(next);
        if n == next {
            let open = files.open(&d.file, d.shared);
            state.open.push(open);
        }
        state.descriptors.push((d.fd, n, d.on_exec));
    }
    // Of these nothing was ever said, so they are as at first.
    for fd in &found.untold {
        let n = state.open.len() as u32;
        state.open.push(Open {
            kind: OpenKind::Standard(*fd),
            flags: 0,
            place: None,
            shared: false,
            locks: Vec::new(),
        });
        state.descriptors.push((*fd, n, false));
    }
    state.descriptors.sort();
    files.interests_of(&found.list, &which, state);
    Ok(Stored {
        files: files.inodes.into_iter().map(|i| i.known).collect(),
    })
}

impl<'a> Files<'a> {
    fn new(timeline: &'a Timeline, own: &'a Thread, at: Position) -> Files<'a> {
        Files {
            timeline,
            own,
            at,
            counts: HashMap::new(),
            paths: HashSet::new(),
            numbers: HashSet::new(),
            inodes: Vec::new(),
            names: HashMap::new(),
            opened: HashMap::new(),
            flags: HashMap::new(),
            read: HashSet::new(),
            pipes: HashMap::new(),
            counters: HashMap::new(),
            signals: HashMap::new(),
            interests: HashMap::new(),
            locks: HashMap::new(),
            cost: 0,
        }
    }

    /// Whether a call had returned at the instant.
    fn is_before(&mut self, thread: ThreadId, count: u64) -> Result<bool> {
        if let Some(n) = self.counts.get(&thread) {
            return Ok(count < *n);
        }
        let n = self.timeline.count_at(thread, self.at)?.unwrap_or(0);
        self.counts.insert(thread, n);
        Ok(count < n)
    }

    fn visit(&mut self, cursor: &mut Cursor, flow: &Flow) -> Result<()> {
        match flow {
            Flow::Opened(file) => self.met(file),
            Flow::Moved(t) => self.moved(cursor, t)?,
            Flow::Mapped(m) => {
                let writes = matches!(
                    m.file.what,
                    What::File { writes: true, .. } | What::Other(_)
                );
                if writes && let Some(i) = self.opened.get(&m.file.number) {
                    self.inodes[*i]
                        .unsure
                        .get_or_insert("it was mapped, so memory may have changed it".into());
                }
            }
            Flow::Named(n) => self.named(n),
            Flow::Told(t) => self.told(cursor, t)?,
            _ => {}
        }
        Ok(())
    }

    /// A file was opened.
    fn met(&mut self, file: &OpenFile) {
        let What::File {
            path,
            folder: false,
            ..
        } = &file.what
        else {
            return;
        };
        let flags = file.flags().unwrap_or(0);
        let unnamed = flags & O_TMPFILE == O_TMPFILE;
        let interesting = self.numbers.contains(&file.number)
            || path.as_ref().is_some_and(|p| self.paths.contains(p));
        if !interesting {
            return;
        }
        let new = |s: &mut Self, path: Option<Vec<u8>>, what: &str| {
            s.inodes.push(Inode {
                path,
                what: what.into(),
                ..Inode::default()
            });
            s.inodes.len() - 1
        };
        let i = match path {
            Some(p) if !unnamed => match self.names.get(p) {
                Some(i) => *i,
                None => {
                    let i = new(self, Some(p.clone()), "");
                    self.names.insert(p.clone(), i);
                    i
                }
            },
            _ => {
                let i = new(self, None, "a temporary file without a name");
                self.inodes[i].known.size = Some(0);
                i
            }
        };
        self.opened.insert(file.number, i);
        self.flags.insert(file.number, flags);
        let creates = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        if (flags & O_TRUNC != 0 || creates) && !unnamed {
            self.change(i, |k| k.cut(0));
        }
    }

    /// Changes what is known of a file. Behind the instant nothing more is learned then.
    fn change(&mut self, i: usize, how: impl FnOnce(&mut Known)) {
        let inode = &mut self.inodes[i];
        if inode.over {
            return;
        }
        how(&mut inode.known);
    }

    fn moved(&mut self, cursor: &mut Cursor, t: &Transfer) -> Result<()> {
        let before = self.is_before(t.thread, t.count)?;
        match &t.file.what {
            What::Pipe { number, .. } if before => {
                let all = Self::bytes(cursor, t, PIPE as u64)?;
                let queue = self
                    .pipes
                    .entry(*number)
                    .or_insert_with(|| Some(VecDeque::new()));
                let Some(q) = queue else { return Ok(()) };
                match t.way {
                    Way::Out => match all.into_iter().collect::<Option<Vec<u8>>>() {
                        Some(b) if b.len() as u64 == t.len && q.len() + b.len() <= PIPE => {
                            q.extend(b)
                        }
                        _ => *queue = None,
                    },
                    Way::In if q.len() as u64 >= t.len => drop(q.drain(..t.len as usize)),
                    // Perhaps its content came before the recording, or without being seen.
                    Way::In => *queue = None,
                }
            }
            What::Other("eventfd") if before => {
                let all = Self::bytes(cursor, t, 8)?;
                let value: Option<Vec<u8>> = all.into_iter().collect();
                let value = value
                    .and_then(|v| v.try_into().ok())
                    .map(u64::from_le_bytes);
                if let Some((n, semaphore)) = self.counters.get_mut(&t.file.number) {
                    *n = match (t.way, *n, value) {
                        (Way::Out, Some(n), Some(v)) => n.checked_add(v),
                        (Way::In, Some(n), _) if *semaphore => n.checked_sub(1),
                        (Way::In, _, _) if !*semaphore => Some(0),
                        _ => None,
                    };
                }
            }
            _ => {
                if let Some(i) = self.opened.get(&t.file.number) {
                    self.stored(cursor, t, *i, before)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes went to or came from a file.
    fn stored(&mut self, cursor: &mut Cursor, t: &Transfer, i: usize, before: bool) -> Result<()> {
        if self.inodes[i].over {
            return Ok(());
        }
        let appends = self
            .flags
            .get(&t.file.number)
            .is_some_and(|f| f & O_APPEND != 0);
        let offset = match (t.offset, self.inodes[i].known.size) {
            (None, Some(size)) if t.way == Way::Out && appends => Some(size),
            (offset, _) => offset,
        };
        let Some(offset) = offset else {
            if t.way == Way::Out {
                let why = "it was written to, and where is not known".to_owned();
                if before {
                    self.inodes[i].unsure.get_or_insert(why);
                } else {
                    self.inodes[i].over = true;
                }
            }
            return Ok(());
        };
        let end = offset.saturating_add(t.len);
        if t.len > MOST || self.cost > MOST {
            self.inodes[i]
                .unsure
                .get_or_insert("too much was read and written".into());
            return Ok(());
        }
        let cost = self.inodes[i].known.cost();
        if t.way == Way::Out && !before {
            self.inodes[i].known.lose(offset, t.len);
        } else {
            let all = match t.is_in_memory() {
                true => Self::bytes(cursor, t, t.len)?,
                // The kernel moved them from elsewhere.
                false if t.way == Way::Out => vec![None; t.len as usize],
                false => Vec::new(),
            };
            let k = &mut self.inodes[i].known;
            match before {
                true => k.put(offset, &all),
                false => k.expose(offset, &all),
            }
        }
        let inode = &mut self.inodes[i];
        if before {
            if t.way == Way::Out {
                inode.known.size = inode.known.size.map(|s| s.max(end));
            } else {
                inode.read_to = end;
            }
        }
        self.cost = self.cost + inode.known.cost() - cost;
        Ok(())
    }

    fn bytes(cursor: &mut Cursor, t: &Transfer, most: u64) -> Result<Vec<Option<u8>>> {
        let mut out = Vec::new();
        if t.len <= most {
            t.bytes(cursor, &mut |part| {
                out.extend_from_slice(part);
                Ok(())
            })?;
        }
        Ok(out)
    }

    /// What is found under paths changed.
    fn named(&mut self, n: &Named) {
        let before = n.position < self.at;
        let gone = |s: &mut Self, path: &Option<Vec<u8>>| {
            let i = path.as_ref().and_then(|p| s.names.remove(p))?;
            if before {
                s.inodes[i].path = None;
                s.inodes[i].what = format!(
                    "{}, which was deleted",
                    String::from_utf8_lossy(path.as_deref().unwrap_or_default())
                );
            }
            Some(i)
        };
        match n.number as i64 {
            SYS_unlink => drop(gone(self, &n.path)),
            SYS_unlinkat if n.args[2] as i32 & AT_REMOVEDIR == 0 => drop(gone(self, &n.path)),
            SYS_rename | SYS_renameat | SYS_renameat2 => {
                if n.number as i64 == SYS_renameat2 && n.args[4] & 2 != 0 {
                    // The two names are exchanged.
                    let (a, b) = (gone(self, &n.path), gone(self, &n.to));
                    for (i, p) in [(a, &n.to), (b, &n.path)] {
                        if let (Some(i), Some(p)) = (i, p) {
                            self.give_name(i, p, before);
                        }
                    }
                    return;
                }
                gone(self, &n.to);
                if let (Some(i), Some(p)) = (gone(self, &n.path), &n.to) {
                    self.give_name(i, p, before);
                }
            }
            SYS_truncate => {
                if let Some(i) = n.path.as_ref().and_then(|p| self.names.get(p)) {
                    let i = *i;
                    self.resized(i, n.args[1], before);
                }
            }
            _ => {}
        }
    }

    fn give_name(&mut self, i: usize, path: &[u8], before: bool) {
        self.names.insert(path.to_vec(), i);
        if before {
            self.inodes[i].path = Some(path.to_vec());
        }
    }

    fn resized(&mut self, i: usize, len: u64, before: bool) {
        if before {
            let old = self.inodes[i].known.size;
            self.inodes[i].known.cut(len);
            // What is new in it is zero.
            if let Some(old) = old.filter(|o| *o < len && len - o <= 1 << 24) {
                self.inodes[i]
                    .known
                    .put(old, &vec![Some(0); (len - old) as usize]);
            }
        } else {
            self.inodes[i].over = true;
        }
    }

    fn told(&mut self, cursor: &mut Cursor, t: &Told) -> Result<()> {
        let before = self.is_before(t.thread, t.count)?;
        let file = t.file.number;
        let inode = self.opened.get(&file).copied();
        let mut memory = |at: u64, len: usize, behind: bool| {
            cursor
                .around_call((t.thread, t.count), (at, len), behind)
                .map(|b| {
                    let whole: Option<Vec<u8>> = b.into_iter().collect();
                    whole.filter(|b| b.len() == len)
                })
        };
        let word = super::history::word;
        let number = t.number as i64;
        match (number, inode) {
            (SYS_ftruncate, Some(i)) => self.resized(i, t.args[1], before),
            (SYS_fallocate, Some(i)) => match before {
                true => drop(
                    self.inodes[i]
                        .unsure
                        .get_or_insert("`fallocate` changed it".into()),
                ),
                false => self.inodes[i].over = true,
            },
            _ if !before => return Ok(()),
            (SYS_fstat, Some(i)) => {
                self.sized(i, memory(t.args[1], 144, true)?.map(|b| word(&b, 48)))
            }
            (SYS_newfstatat, Some(i)) if t.args[3] as i32 & AT_EMPTY_PATH != 0 => {
                self.sized(i, memory(t.args[2], 144, true)?.map(|b| word(&b, 48)));
            }
            (SYS_statx, Some(i)) if t.args[2] as i32 & AT_EMPTY_PATH != 0 => {
                self.sized(i, memory(t.args[4], 256, true)?.map(|b| word(&b, 40)));
            }
            (SYS_lseek, Some(i)) if (t.args[1], t.args[2] as i32) == (0, SEEK_END) => {
                self.sized(i, Some(t.result));
            }
            (SYS_read, Some(i)) if t.result == 0 && t.args[2] > 0 => {
                let end = self.inodes[i].read_to;
                if t.file.place() == Some(end) {
                    self.sized(i, Some(end));
                }
            }
            (SYS_getdents64 | SYS_getdents, _) => drop(self.read.insert(file)),
            (SYS_memfd_create, _) => {
                self.inodes.push(Inode {
                    what: "a file in memory (`memfd_create`)".into(),
                    ..Inode::default()
                });
                let i = self.inodes.len() - 1;
                self.inodes[i].known.size = Some(0);
                self.opened.insert(file, i);
                self.flags.insert(file, O_RDWR);
            }
            (SYS_eventfd | SYS_eventfd2, _) => {
                let flags = if number == SYS_eventfd2 {
                    t.args[1] as i32
                } else {
                    0
                };
                self.counters.insert(
                    file,
                    (Some(t.args[0] & 0xffff_ffff), flags & EFD_SEMAPHORE != 0),
                );
                self.flags
                    .insert(file, flags & (EFD_NONBLOCK | EFD_SEMAPHORE));
            }
            (SYS_signalfd | SYS_signalfd4, _) => {
                let set = memory(t.args[1], 8, false)?;
                self.signals.extend(set.map(|b| (file, word(&b, 0))));
                if number == SYS_signalfd4 && t.args[0] as i32 == -1 {
                    self.flags.insert(file, t.args[3] as i32 & SFD_NONBLOCK);
                }
            }
            (SYS_fcntl, _) => self.controlled(t, &mut memory)?,
            (SYS_ioctl, _) if t.args[1] as u32 as u64 == FIONBIO => {
                let on = memory(t.args[2], 4, false)?.is_none_or(|b| b != [0; 4]);
                let flags = self
                    .flags
                    .entry(file)
                    .or_insert_with(|| t.file.flags().unwrap_or(0));
                *flags = if on {
                    *flags | O_NONBLOCK
                } else {
                    *flags & !O_NONBLOCK
                };
            }
            (SYS_flock, _) => {
                let locks = self.locks.entry(file).or_default();
                locks.retain(|l| l.kind != 2);
                let how = t.args[1] as i32 & !LOCK_NB;
                if how != LOCK_UN {
                    locks.push(Lock {
                        kind: 2,
                        exclusive: how == LOCK_EX,
                        start: 0,
                        len: 0,
                    });
                }
            }
            (SYS_epoll_ctl, _) => {
                let target = (t.args[2] as i32, t.other.as_ref().map_or(0, |o| o.number));
                let all = self.interests.entry(file).or_default();
                match t.args[1] as i32 {
                    EPOLL_CTL_DEL => drop(all.remove(&target)),
                    _ => {
                        if let Some(b) = memory(t.args[3], 12, false)? {
                            let events = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                            all.insert(target, (events, word(&b, 4)));
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sized(&mut self, i: usize, size: Option<u64>) {
        if size.is_some() {
            self.inodes[i].known.size = size;
        }
    }

    fn controlled(
        &mut self,
        t: &Told,
        memory: &mut dyn FnMut(u64, usize, bool) -> hindsight_timeline::Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        let file = t.file.number;
        match t.args[1] as i32 {
            F_SETFL => {
                let flags = self
                    .flags
                    .entry(file)
                    .or_insert_with(|| t.file.flags().unwrap_or(0));
                *flags = *flags & !CHANGEABLE | t.args[2] as i32 & CHANGEABLE;
            }
            command @ (F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW)
                if t.pid == self.own.pid =>
            {
                let kind = u8::from(command == F_OFD_SETLK || command == F_OFD_SETLKW);
                let all = self.locks.entry(file).or_default();
                let Some(b) = memory(t.args[2], 32, false)? else {
                    return Ok(());
                };
                let half = |i: usize| i32::from(u16::from_le_bytes([b[i], b[i + 1]]));
                let (start, len) = (super::history::word(&b, 8), super::history::word(&b, 16));
                if half(2) == SEEK_SET {
                    set_lock(all, kind, half(0), start, len);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What is open at the instant.
    fn open(&mut self, file: &OpenFile, shared: bool) -> Open {
        let number = file.number;
        let flags = self
            .flags
            .get(&number)
            .copied()
            .or(file.flags())
            .unwrap_or(0);
        let kind = match &file.what {
            What::Inherited if (0..3).contains(&file.first) => OpenKind::Standard(file.first),
            What::Inherited => {
                OpenKind::Lost(format!("what it inherited as descriptor {}", file.first))
            }
            What::File {
                path: Some(path),
                folder: true,
                ..
            } => OpenKind::Folder {
                path: path.clone(),
                read: self.read.contains(&number),
            },
            What::File {
                path: Some(path), ..
            } if self.read.contains(&number) => OpenKind::Folder {
                path: path.clone(),
                read: true,
            },
            What::File { .. } | What::Other("memfd") => match self.opened.get(&number) {
                Some(i) => {
                    let inode = &self.inodes[*i];
                    let (stored, unsure) = (*i as u32, inode.unsure.clone());
                    match &inode.path {
                        Some(path) => OpenKind::File {
                            path: path.clone(),
                            stored,
                            unsure,
                        },
                        None => OpenKind::Unnamed {
                            what: inode.what.clone(),
                            stored,
                            unsure,
                        },
                    }
                }
                None => OpenKind::Lost(file.what.to_string()),
            },
            What::Pipe {
                number: pipe,
                reads,
            } => OpenKind::Pipe {
                number: *pipe,
                reads: *reads,
                waiting: match self.pipes.get(pipe) {
                    Some(q) => q.as_ref().map(|q| q.iter().copied().collect()),
                    None => Some(Vec::new()),
                },
            },
            What::Other("eventfd") => {
                OpenKind::Counter(self.counters.get(&number).and_then(|c| c.0))
            }
            What::Other("signalfd") => match self.signals.get(&number) {
                Some(set) => OpenKind::Signals(*set),
                None => OpenKind::Lost(file.what.to_string()),
            },
            What::Other("epoll") => OpenKind::Epoll(Vec::new()),
            what => OpenKind::Lost(what.to_string()),
        };
        Open {
            kind,
            flags,
            place: file.place(),
            shared,
            locks: self.locks.remove(&number).unwrap_or_default(),
        }
    }

    /// What each `epoll` waits for, of what is still open.
    fn interests_of(
        &self,
        list: &[hindsight_timeline::Descriptor],
        which: &BTreeMap<u64, u32>,
        state: &mut ProcessState,
    ) {
        for (number, open) in which {
            let OpenKind::Epoll(to) = &mut state.open[*open as usize].kind else {
                continue;
            };
            for ((fd, target), (events, data)) in self.interests.get(number).into_iter().flatten() {
                let is_open = list.iter().any(|d| d.fd == *fd && d.file.number == *target);
                if let Some(open) = which.get(target).filter(|_| is_open) {
                    to.push(Interest {
                        fd: *fd,
                        open: *open,
                        events: *events,
                        data: *data,
                    });
                }
            }
        }
    }
}

/// Sets or removes a lock on a stretch, as the kernel does: what it covers of others of its kind goes.
fn set_lock(all: &mut Vec<Lock>, kind: u8, how: i32, start: u64, len: u64) {
    let end = |l: &Lock| {
        if l.len == 0 {
            u64::MAX
        } else {
            l.start.saturating_add(l.len)
        }
    };
    let stop = if len == 0 {
        u64::MAX
    } else {
        start.saturating_add(len)
    };
    let of = |l: &Lock, from: u64, to: u64| Lock {
        start: from,
        len: if to == u64::MAX { 0 } else { to - from },
        ..*l
    };
    let mut rest = Vec::new();
    for l in all.iter() {
        if l.kind != kind || end(l) <= start || stop <= l.start {
            rest.push(*l);
            continue;
        }
        if l.start < start {
            rest.push(of(l, l.start, start));
        }
        if stop < end(l) {
            rest.push(of(l, stop, end(l)));
        }
    }
    if how != F_UNLCK {
        rest.push(Lock {
            kind,
            exclusive: how == F_WRLCK,
            start,
            len,
        });
    }
    *all = rest;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_cut_as_the_kernel_does() {
        let mut all = Vec::new();
        set_lock(&mut all, 0, F_RDLCK, 10, 0);
        set_lock(&mut all, 0, F_WRLCK, 20, 5);
        set_lock(&mut all, 1, F_WRLCK, 0, 100);
        set_lock(&mut all, 0, F_UNLCK, 0, 12);
        let lock = |kind, exclusive, start, len| Lock {
            kind,
            exclusive,
            start,
            len,
        };
        assert_eq!(
            all,
            [
                lock(0, false, 12, 8),
                lock(0, false, 25, 0),
                lock(0, true, 20, 5),
                lock(1, true, 0, 100)
            ]
        );
        set_lock(&mut all, 0, F_UNLCK, 0, 0);
        assert_eq!(all, [lock(1, true, 0, 100)]);
    }
}
