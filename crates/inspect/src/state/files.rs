//! What a process has open at an instant.
//!
//! Two passes over the recorded calls until the instant: the first one says what descriptors lead to, the second one what was
//! read from that and written to it. What happened later says nothing here: others may have changed a file in between.

use super::folders::Renamed;
use super::mapped::Mappings;
use super::names::{Inode, is_no_file, may_write, plain};
use super::{Known, Open, OpenKind, ProcessState, Stat};
use hindsight_syscalls::abi;
use hindsight_syscalls::abi::{O_APPEND, O_CREAT, O_EXCL, O_PATH, O_TMPFILE, O_TRUNC};
use hindsight_timeline::Result;
use hindsight_timeline::{
    Cursor, Flow, OpenFile, Position, Thread, ThreadId, Timeline, Transfer, Way, What,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// The most bytes of files' contents that are kept in memory.
const MOST: u64 = 512 << 20;
/// The most bytes that a pipe can hold.
const PIPE: usize = 1 << 20;

/// A pipe.
#[derive(Default)]
pub(super) struct Pipe {
    /// What was written and not read. `None`: that is not known.
    waiting: Option<VecDeque<u8>>,
}

/// What has happened to what is open, until the instant.
pub(super) struct Files<'a> {
    timeline: &'a Timeline,
    pub(super) own: &'a Thread,
    at: Position,
    counts: HashMap<ThreadId, u64>,
    /// Paths and numbers of what is open at the instant.
    pub(super) paths: HashSet<Vec<u8>>,
    numbers: HashSet<u64>,
    pub(super) inodes: Vec<Inode>,
    pub(super) names: HashMap<Vec<u8>, usize>,
    /// Which inode an open file is.
    pub(super) opened: HashMap<u64, usize>,
    pub(super) flags: HashMap<u64, i32>,
    /// What the kernel said of open files.
    pub(super) stats: HashMap<u64, Stat>,
    /// Files that were written to, by the numbers of their openings: whether that opening has made the file, or is older than
    /// all that was made.
    pub(super) wrote: HashMap<u64, bool>,
    pub(super) read: HashSet<u64>,
    pipes: HashMap<u64, Pipe>,
    pub(super) counters: HashMap<u64, (Option<u64>, bool)>,
    pub(super) signals: HashMap<u64, u64>,
    pub(super) locks: HashMap<u64, bool>,
    /// What else was done with an open file that nobody does again, in words.
    pub(super) odd: BTreeMap<u64, BTreeSet<String>>,
    pub(super) mappings: Mappings,
    /// Names that may lead elsewhere.
    pub(super) renamed: Renamed,
    /// A process may write memory through `/proc/PID/mem`, which no instruction and no call tells.
    writes_memory: bool,
    /// Why nothing is certain of any file.
    pub(super) blind: Option<String>,
    cost: u64,
}

/// Adds what the process has open.
pub fn opened(
    timeline: &Timeline,
    own: &Thread,
    at: Position,
    state: &mut ProcessState,
) -> Result<Vec<Known>> {
    let found = timeline.descriptors(own.id, at)?;
    state.folder = found.folder.clone();
    if found.unseen.gaps {
        let why = "threads ran where they are not recorded, so files and descriptors may be others";
        state.refused.push(why.into());
    }
    if found.unseen.hidden {
        let why = "the program moved bytes or descriptors in ways that are not recorded (`io_uring` and others)";
        state.refused.push(why.into());
    }
    if found.unseen.received {
        let why = "the program got descriptors over a socket (`SCM_RIGHTS`), or may have got some: what they led to is not recorded";
        state.refused.push(why.into());
    }
    let mut files = Files::new(timeline, own, at);
    for d in &found.list {
        files.numbers.insert(d.file.number);
        if let What::File { path: Some(p), .. } = &d.file.what {
            files.paths.insert(p.clone());
        }
    }
    files.mappings = Mappings::new(timeline, own.image, state)?;
    timeline.flow_told(Some(at), &mut |cursor, flow| files.visit(cursor, &flow))?;
    files.describe(state);
    if files.writes_memory {
        let why =
            "memory may have been written through `/proc/PID/mem`, which was opened for writing";
        state.refused.push(why.into());
    }
    files.doubt();
    state.renamed = files.renamed.all();
    if let Some(path) = state
        .folder
        .as_deref()
        .filter(|p| files.renamed.may_move(p))
    {
        let why = "the working directory, or one above it, may have been renamed or deleted";
        let path = hindsight_text::bytes(path);
        state.refused.push(format!("{why}: {path}"));
    }
    let mut which: BTreeMap<u64, u32> = BTreeMap::new();
    let mut stored: Vec<Known> = Vec::new();
    let mut places = HashMap::new();
    for d in &found.list {
        let next = state.open.len() as u32;
        let n = *which.entry(d.file.number).or_insert(next);
        if n == next {
            let mut open = files.open(&d.file, d.shared);
            if let OpenKind::File { stored: s, .. } | OpenKind::Unnamed { stored: s, .. } =
                &mut open.kind
            {
                let inode = *s as usize;
                *s = *places.entry(inode).or_insert_with(|| {
                    let known = std::mem::take(&mut files.inodes[inode].known);
                    stored.push(known);
                    stored.len() as u32 - 1
                });
            }
            state.open.push(open);
            for what in files.odd.remove(&d.file.number).into_iter().flatten() {
                state.lost.push(format!("of descriptor {}: {what}", d.fd));
            }
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
            lock: None,
        });
        state.descriptors.push((*fd, n, false));
    }
    state.descriptors.sort();
    Ok(stored)
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
            stats: HashMap::new(),
            wrote: HashMap::new(),
            read: HashSet::new(),
            pipes: HashMap::new(),
            counters: HashMap::new(),
            signals: HashMap::new(),
            locks: HashMap::new(),
            odd: BTreeMap::new(),
            mappings: Mappings::default(),
            renamed: Renamed::default(),
            writes_memory: false,
            blind: None,
            cost: 0,
        }
    }

    /// Whether a call had returned at the instant.
    fn is_before(&mut self, thread: ThreadId, count: u64) -> Result<bool> {
        if let Some(n) = self.counts.get(&thread) {
            return Ok(count < *n);
        }
        let n = self.timeline.returned_at(thread, self.at)?.unwrap_or(0);
        self.counts.insert(thread, n);
        Ok(count < n)
    }

    fn visit(&mut self, cursor: &mut Cursor, flow: &Flow) -> Result<()> {
        match flow {
            Flow::Opened(file) => self.met(file),
            Flow::Moved(t) if self.is_before(t.thread, t.count)? => self.moved(cursor, t)?,
            // Another process is in the midst of it.
            Flow::Moved(t) if t.way == Way::Out => {
                self.doubt_inode(t.file.number, "another process was writing to it");
            }
            Flow::Mapped(m) => {
                self.mappings.note(self.timeline, m)?;
                let mapped = self.opened.get(&m.file.number);
                let writes = may_write(&m.file.what);
                if writes && !is_no_file(&m.file.what) {
                    let began = m.file.what == What::Inherited;
                    self.wrote.entry(m.file.number).or_insert(began);
                }
                if writes && let Some(i) = mapped {
                    let inode = &mut self.inodes[*i];
                    inode.is_mapped = true;
                    inode.doubt("it was mapped, so memory may have changed it");
                }
            }
            Flow::Named(n) => self.named(n),
            Flow::Told(t) if self.is_before(t.thread, t.count)? => self.told(cursor, t)?,
            _ => {}
        }
        Ok(())
    }

    /// A file was opened.
    fn met(&mut self, file: &OpenFile) {
        let What::File { path, writes, .. } = &file.what else {
            return;
        };
        let flags = file.flags().unwrap_or(0);
        let unnamed = flags & O_TMPFILE == O_TMPFILE;
        let creates = unnamed || flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        if (flags & O_TRUNC != 0 || creates) && !is_no_file(&file.what) {
            self.wrote.insert(file.number, creates);
        }
        let again = file.original().number != file.number;
        let plain = path.as_deref().map(plain);
        let kernels = plain.as_ref().is_none_or(|p| p.starts_with(b"/proc/"));
        if *writes && kernels && plain.is_some_and(|p| p.ends_with(b"/mem")) {
            self.writes_memory = true;
        }
        if *writes && (again || kernels && !unnamed) {
            let what = "a file was opened for writing by a path that is not known, or through `/proc` or `/dev/fd`";
            self.blind.get_or_insert(what.into());
        }
        if again || !self.is_of_interest(file, path.as_deref()) {
            return;
        }
        let known = path
            .as_ref()
            .filter(|_| !creates)
            .and_then(|p| self.names.get(p));
        let i = match known {
            Some(i) => *i,
            None => {
                let named = path.clone().filter(|_| !unnamed);
                let i = self.inodes.len();
                if let Some(p) = &named {
                    self.names.insert(p.clone(), i);
                }
                self.inodes.push(Inode {
                    path: named,
                    what: "a temporary file without a name".into(),
                    is_made: creates,
                    ..Inode::default()
                });
                i
            }
        };
        self.opened.insert(file.number, i);
        self.flags.insert(file.number, flags);
        if flags & O_TRUNC != 0 || creates {
            self.inodes[i].known.cut(0);
        }
    }

    fn is_of_interest(&self, file: &OpenFile, path: Option<&[u8]>) -> bool {
        self.numbers.contains(&file.number) || path.is_some_and(|p| self.paths.contains(p))
    }

    fn moved(&mut self, cursor: &mut Cursor, t: &Transfer) -> Result<()> {
        match &t.file.what {
            What::Pipe { number, .. } => {
                let all = bytes(cursor, t, PIPE as u64)?;
                let fresh = || Pipe {
                    waiting: Some(VecDeque::new()),
                };
                let pipe = self.pipes.entry(*number).or_insert_with(fresh);
                // In which order several processes use it, the recording does not say for certain. `tee` takes nothing out.
                let is_own = t.pid == self.own.pid && t.number != abi::__NR_tee;
                let Some(q) = pipe.waiting.as_mut() else {
                    return Ok(());
                };
                let all: Option<Vec<u8>> = all.into_iter().collect();
                match (t.way, all) {
                    (Way::Out, Some(b))
                        if is_own && b.len() as u64 == t.len && q.len() + b.len() <= PIPE =>
                    {
                        q.extend(b);
                    }
                    (Way::In, _) if is_own && q.len() as u64 >= t.len => {
                        drop(q.drain(..t.len as usize))
                    }
                    // Perhaps its content came before the recording, or without being seen.
                    _ => pipe.waiting = None,
                }
            }
            What::Other("eventfd") => {
                let all = bytes(cursor, t, 8)?;
                let value: Option<Vec<u8>> = all.into_iter().collect();
                let value = value
                    .and_then(|v| v.try_into().ok())
                    .map(u64::from_le_bytes);
                let is_own = t.pid == self.own.pid;
                if let Some((n, semaphore)) = self.counters.get_mut(&t.file.number) {
                    *n = match (t.way, *n, value) {
                        (Way::Out, Some(n), Some(v)) if is_own => n.checked_add(v),
                        (Way::In, Some(n), _) if is_own && *semaphore => n.checked_sub(1),
                        (Way::In, Some(_), _) if is_own => Some(0),
                        _ => None,
                    };
                }
            }
            _ => {
                if t.way == Way::Out && !is_no_file(&t.file.what) {
                    // What it began with existed before what it has made.
                    let began = t.file.what == What::Inherited;
                    self.wrote.entry(t.file.number).or_insert(began);
                }
                if let Some(i) = self.opened.get(&t.file.number) {
                    self.stored(cursor, t, *i)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes went to or came from a file.
    fn stored(&mut self, cursor: &mut Cursor, t: &Transfer, i: usize) -> Result<()> {
        let writes = t.way == Way::Out;
        let flags = self.flags.get(&t.file.number);
        let appends = flags.is_some_and(|f| f & O_APPEND != 0);
        let inode = &mut self.inodes[i];
        if writes && t.pid != self.own.pid {
            inode.doubt("another process wrote to it");
        }
        let offset = match writes && appends {
            true => inode.known.size,
            false => t.offset,
        };
        let Some(offset) = offset else {
            if writes {
                inode.doubt("it was written to, and where is not known");
            }
            return Ok(());
        };
        if t.len > MOST || self.cost > MOST {
            inode.doubt("too much was read and written");
            return Ok(());
        }
        let cost = inode.known.cost();
        let all = match t.is_in_memory() {
            true => bytes(cursor, t, t.len)?,
            // The kernel moved them from elsewhere.
            false if writes => vec![None; t.len as usize],
            false => Vec::new(),
        };
        if writes && all.len() as u64 != t.len {
            inode.doubt("not all that was written to it is known");
        }
        inode.known.put(offset, &all);
        let end = offset.saturating_add(t.len);
        match writes {
            true => inode.known.size = inode.known.size.map(|s| s.max(end)),
            false => {
                inode.read_to = end;
                // It may have grown since the program asked.
                let grown = inode.known.size.filter(|s| t.len > 0 && *s < end);
                inode.known.size = grown.map_or(inode.known.size, |_| Some(end));
            }
        }
        self.cost = self.cost + inode.known.cost() - cost;
        Ok(())
    }

    pub(super) fn doubt_inode(&mut self, number: u64, why: &str) {
        if let Some(i) = self.opened.get(&number) {
            self.inodes[*i].doubt(why);
        }
    }

    /// What is open at the instant.
    fn open(&mut self, file: &OpenFile, shared: bool) -> Open {
        let number = file.number;
        let flags = self.flags.get(&number).copied().or(file.flags());
        let path_only = flags.is_some_and(|f| f & O_PATH != 0);
        let kind = match &file.what {
            What::Inherited if (0..3).contains(&file.first) => {
                if self.flags.contains_key(&number) {
                    let odd = self.odd.entry(number).or_default();
                    odd.insert("the flags that it chose (`F_SETFL`)".into());
                }
                OpenKind::Standard(file.first)
            }
            What::Inherited => {
                OpenKind::Lost(format!("what it inherited as descriptor {}", file.first))
            }
            What::File { .. } if path_only || flags.is_none() => OpenKind::Lost(format!(
                "{}, opened in a way that is not done again",
                file.what
            )),
            What::File {
                path: Some(path),
                folder,
                ..
            } if *folder || self.read.contains(&number) => match self.read.contains(&number) {
                true => OpenKind::Lost(format!("folder {}, which was being read", file.what)),
                false if self.renamed.may_move(path) => OpenKind::Lost(format!(
                    "folder {}, which may have been renamed or deleted",
                    file.what
                )),
                false => OpenKind::Folder {
                    path: path.clone(),
                    stat: self.stats.get(&number).copied(),
                },
            },
            What::File { .. } | What::Other("memfd") => self.file(file),
            What::Pipe {
                number: pipe,
                reads,
            } => self.pipe(*pipe, *reads, shared, flags),
            What::Other("eventfd") if !shared => {
                OpenKind::Counter(self.counters.get(&number).and_then(|c| c.0))
            }
            What::Other("signalfd") => match self.signals.get(&number) {
                Some(set) => OpenKind::Signals(*set),
                None => OpenKind::Lost(file.what.to_string()),
            },
            what => OpenKind::Lost(what.to_string()),
        };
        Open {
            kind,
            flags: flags.unwrap_or(0),
            place: file.place(),
            shared,
            lock: self.locks.remove(&number),
        }
    }

    fn pipe(&self, number: u64, reads: bool, shared: bool, flags: Option<i32>) -> OpenKind {
        let text = if reads { "reading" } else { "writing" };
        if shared {
            return OpenKind::Lost(format!(
                "pipe {number}, {text} end: another process has it, too"
            ));
        }
        if flags.is_none_or(|f| f & abi::O_DIRECT != 0) {
            return OpenKind::Lost(format!("pipe {number}, {text} end: of packets"));
        }
        let waiting = match self.pipes.get(&number) {
            Some(p) => p.waiting.as_ref().map(|q| q.iter().copied().collect()),
            None => Some(Vec::new()),
        };
        OpenKind::Pipe {
            number,
            reads,
            waiting,
        }
    }

    fn file(&self, file: &OpenFile) -> OpenKind {
        let Some(i) = self.opened.get(&file.number) else {
            return OpenKind::Lost(file.what.to_string());
        };
        let inode = &self.inodes[*i];
        let (stored, unsure) = (*i as u32, inode.unsure.clone());
        match &inode.path {
            Some(path) => OpenKind::File {
                path: path.clone(),
                stored,
                stat: self
                    .stats
                    .get(&file.number)
                    .copied()
                    .filter(|_| !inode.is_mapped),
                unsure,
            },
            None if !inode.is_made => {
                OpenKind::Lost(format!("{}: it may have other names", inode.what))
            }
            None => OpenKind::Unnamed {
                what: inode.what.clone(),
                stored,
                unsure,
            },
        }
    }
}

/// The bytes that were moved, if they are no more than this.
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
