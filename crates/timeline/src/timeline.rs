//! An opened recording.

use crate::index::{self, Part, Place};
use crate::maps::{self, Change};
use crate::model::*;
use crate::scan::{Raw, Scan};
use crate::sidecar::{self, Sidecar};
use crate::{Cancel, Cursor, Error, Position, Result};
use hindsight_isa::Predictor;
use hindsight_replay::Code;
use hindsight_trace::{ModuleHash, Trace};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// How to open a recording.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads that may replay at the same time; 0: as many as there are processors.
    pub jobs: usize,
    /// Instructions between the frames of an index that is built: fewer make travel faster and the
    /// index larger, which is made coarser where it would become too large. 0: about eight million.
    pub interval: u64,
}

/// What there is of the index beside a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexStatus {
    pub path: PathBuf,
    /// Parts that an index of the whole recording has.
    pub parts: usize,
    /// Those that are there.
    pub present: usize,
    /// Bytes of the file that are used.
    pub bytes: u64,
    /// Why some or all of the file is not used.
    pub problem: Option<String>,
}

/// A recording, and what has been found out about it. Cheap to clone; may be used from several threads.
#[derive(Clone)]
pub struct Timeline(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub trace: Trace,
    pub path: PathBuf,
    pub jobs: usize,
    /// Instructions of an interval.
    pub interval: u64,
    threads: Vec<ThreadId>,
    scans: OnceLock<BTreeMap<ThreadId, Scan>>,
    codes: Mutex<BTreeMap<u32, Arc<Code>>>,
    changes: Mutex<BTreeMap<u32, Arc<Vec<Change>>>>,
    /// Modules that were read lately, the last one first.
    files: Mutex<VecDeque<(ModuleHash, Arc<Vec<u8>>)>>,
    /// The index beside the trace.
    sidecar: Sidecar,
    /// Indexed parts of threads, by their first instruction.
    parts: Mutex<BTreeMap<(ThreadId, u64), Arc<Part>>>,
    /// Chunks in wire form that were used lately, the last one first.
    chunks: Mutex<VecDeque<Wire>>,
}

/// A chunk in wire form, by thread and number.
type Wire = ((ThreadId, usize), Arc<Vec<u8>>);

/// Chunks that are kept in wire form, of about a mebibyte each.
const CHUNKS: usize = 16;
/// What an index may have besides twice the bytes of its trace.
pub const INDEX_CONSTANT: u64 = 64 << 20;

impl Timeline {
    /// Opens a trace file. Reads no more than the headers of its chunks; what else is needed is read
    /// when it is asked for.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Timeline> {
        let path = path.as_ref().to_path_buf();
        Timeline::new(Trace::open(&path)?, path, options)
    }

    fn new(trace: Trace, path: PathBuf, options: Options) -> Result<Timeline> {
        if trace.header().predictor_bits != Predictor::WINDOW.bits {
            return Err(Error::Unsupported(
                "this was recorded with a small predictor (--predictor cache), which keeps too little to \
                 travel in it; `replay --verify` works"
                    .into(),
            ));
        }
        let threads = trace
            .threads()
            .into_iter()
            .map(ThreadId)
            .collect::<Vec<_>>();
        if threads.is_empty() {
            return Err(Error::Empty);
        }
        let jobs = match options.jobs {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let sidecar = Sidecar::open(sidecar::path(&path), trace.identity());
        Ok(Timeline(Arc::new(Inner {
            files: Mutex::default(),
            sidecar,
            trace,
            path,
            jobs,
            interval: match options.interval {
                0 => index::SPAN,
                n => n,
            },
            threads,
            scans: OnceLock::new(),
            codes: Mutex::default(),
            changes: Mutex::default(),
            parts: Mutex::default(),
            chunks: Mutex::default(),
        })))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The trace itself.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// A place to look from, at the first instruction of the first thread.
    pub fn cursor(&self) -> Result<Cursor> {
        Cursor::new(self.clone())
    }

    /// All program images, parents before children.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let scans = self.scans()?;
        let mut out = Vec::new();
        for i in self.0.trace.images() {
            let threads: Vec<ThreadId> = (i.threads.iter().copied().map(ThreadId))
                .filter(|t| scans.contains_key(t))
                .collect();
            let ends = |t: &ThreadId| self.0.ends(*t, &scans[t]);
            out.push(Process {
                image: i.number,
                parent: i.parent,
                by_exec: i.by_exec,
                pid: i.pid,
                command: self.0.trace.command(i.number),
                begin: threads.iter().map(|t| ends(t).0).min().unwrap_or_default(),
                end: threads.iter().map(|t| ends(t).1).max().unwrap_or_default(),
                threads,
            });
        }
        Ok(out)
    }

    /// All threads of all processes, in the order in which they were first seen.
    pub fn threads(&self) -> Result<Vec<Thread>> {
        let scans = self.scans()?;
        Ok(scans.iter().map(|(t, s)| self.describe(*t, s)).collect())
    }

    /// One thread.
    pub fn thread(&self, id: ThreadId) -> Result<Thread> {
        Ok(self.describe(id, self.0.scan(id)?))
    }

    fn describe(&self, id: ThreadId, scan: &Scan) -> Thread {
        let info = self.0.trace.stream_info(id.0).cloned().unwrap_or_default();
        let command = self.0.trace.command(info.image);
        let program = command.split(' ').next().unwrap_or("");
        let name = program.rsplit('/').next().unwrap_or("");
        let (first, last) = self.0.ends(id, scan);
        Thread {
            id,
            tid: info.tid,
            pid: info.pid,
            image: info.image,
            // As the kernel cuts it.
            name: name.chars().take(15).collect(),
            first,
            last,
            from: scan.from,
            to: scan.to,
            ending: scan.ending.clone().unwrap_or(Ending::Unknown),
        }
    }

    /// The files that a program image had mapped, in the order in which they were.
    pub fn modules(&self, image: u32) -> Result<Vec<Module>> {
        Ok(maps::modules(&self.0.trace, &self.changes(image)?))
    }

    /// What a program image has mapped at a position, in order of address.
    pub fn mappings(&self, image: u32, at: Position) -> Result<Vec<Mapping>> {
        Ok(maps::at(&self.changes(image)?, Some(at)))
    }

    /// The content of a module.
    pub fn module_bytes(&self, hash: ModuleHash) -> Result<Vec<u8>> {
        Ok(self.0.trace.module_bytes(hash)?)
    }

    /// What there is of the index.
    pub fn index_status(&self) -> IndexStatus {
        let places = self.0.places();
        let s = &self.0.sidecar;
        IndexStatus {
            path: s.path.clone(),
            parts: places.len(),
            present: places.iter().filter(|p| s.has(**p)).count(),
            bytes: s.len(),
            problem: s.problem(),
        }
    }

    /// Builds what is missing of the index and writes it beside the trace, several parts at the same
    /// time. `progress` is told the numbers of instructions done and to do. What was written when it
    /// fails or is cancelled stays and is used.
    pub fn build_index(
        &self,
        progress: &(dyn Fn(u64, u64) + Sync),
        cancel: &Cancel,
    ) -> Result<IndexStatus> {
        let inner = &self.0;
        inner.scans()?;
        let mut places = inner.places();
        // Those that are damaged show when they are read.
        places.retain(|p| !inner.sidecar.has(*p) || inner.sidecar.load(*p).is_none());
        places.sort_by_key(|p| std::cmp::Reverse(p.to - p.from));
        let total = places.iter().map(|p| p.to - p.from).sum();
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let work = || -> Result<()> {
            loop {
                let Some(place) = places.get(next.fetch_add(1, Relaxed)) else {
                    return Ok(());
                };
                let scan = inner.scan(place.thread)?;
                let budget = inner.budget(*place);
                let part = index::build(inner, *place, scan, budget, &|n| {
                    progress(done.fetch_add(n, Relaxed) + n, total);
                    !cancel.is_cancelled()
                })?;
                inner.sidecar.add(&part)?;
            }
        };
        std::thread::scope(|s| {
            let n = inner.jobs.min(places.len());
            let all: Vec<_> = (0..n).map(|_| s.spawn(work)).collect();
            all.into_iter().try_for_each(joined)
        })?;
        Ok(self.index_status())
    }

    pub(crate) fn changes(&self, image: u32) -> Result<Arc<Vec<Change>>> {
        let mut all = lock(&self.0.changes);
        if let Some(c) = all.get(&image) {
            return Ok(Arc::clone(c));
        }
        let scans = self.scans()?;
        let mine: Vec<(ThreadId, &Scan)> = (scans.iter())
            .filter(|(t, _)| self.0.image(**t) == image)
            .map(|(t, s)| (*t, s))
            .collect();
        let position = |t: ThreadId, n: u64| self.0.position(t, &scans[&t], n);
        let new = Arc::new(maps::changes(&self.0.trace, image, &mine, &position)?);
        all.insert(image, Arc::clone(&new));
        Ok(new)
    }

    /// What happened, in the total order.
    pub fn events(&self, filter: &Filter) -> Result<Vec<Happening>> {
        let scans = self.scans()?;
        let wants = |k| filter.kinds.is_empty() || filter.kinds.contains(&k);
        let mut out = Vec::new();
        for (t, scan) in scans {
            let image = self.0.image(*t);
            if filter.thread.is_some_and(|f| f != *t) || filter.image.is_some_and(|f| f != image) {
                continue;
            }
            let mut push = |count: u64, kind: Kind| {
                let position = self.0.position(*t, scan, count);
                out.push(Happening {
                    position,
                    thread: *t,
                    count,
                    kind,
                })
            };
            if wants(KindOf::Thread) {
                push(scan.from, Kind::ThreadBegin);
                push(
                    scan.to,
                    Kind::ThreadEnd(scan.ending.clone().unwrap_or(Ending::Unknown)),
                );
            }
            for (count, raw) in &scan.events {
                match *raw {
                    Raw::Syscall {
                        number,
                        args,
                        result,
                    } => {
                        let chosen =
                            filter.syscalls.is_empty() || filter.syscalls.contains(&number);
                        if wants(KindOf::Syscall) && chosen {
                            push(
                                *count,
                                Kind::Syscall {
                                    number,
                                    args,
                                    result,
                                },
                            )
                        }
                    }
                    Raw::Signal {
                        number,
                        code,
                        address,
                    } => {
                        if wants(KindOf::Signal) {
                            push(
                                *count,
                                Kind::Signal {
                                    number,
                                    code,
                                    address,
                                },
                            )
                        }
                    }
                }
            }
        }
        if wants(KindOf::Process) && filter.thread.is_none() {
            for p in self.processes()? {
                let (Some(first), Some(last)) = (
                    p.threads.first(),
                    p.threads
                        .iter()
                        .max_by_key(|t| self.0.ends(**t, &scans[*t]).1),
                ) else {
                    continue;
                };
                if filter.image.is_some_and(|f| f != p.image) {
                    continue;
                }
                let image = p.image;
                out.push(Happening {
                    position: p.begin,
                    thread: *first,
                    count: scans[first].from,
                    kind: Kind::ProcessBegin { image },
                });
                out.push(Happening {
                    position: p.end,
                    thread: *last,
                    count: scans[last].to,
                    kind: Kind::ProcessEnd { image },
                });
            }
        }
        if wants(KindOf::Module) {
            let images = self.0.trace.images().iter().map(|i| i.number);
            for image in images.filter(|i| filter.image.is_none_or(|f| f == *i)) {
                for m in self.modules(image)? {
                    let (path, start, end) = (m.path, m.start, m.end);
                    let load = m.load.map(|p| {
                        let path = path.clone();
                        (p, Kind::ModuleLoad { path, start, end })
                    });
                    let unload = m
                        .unload
                        .map(|p| (p, Kind::ModuleUnload { path, start, end }));
                    for (position, kind) in load.into_iter().chain(unload) {
                        let (thread, count) = self.locate(position)?;
                        if filter.thread.is_none_or(|f| f == thread) {
                            out.push(Happening {
                                position,
                                thread,
                                count,
                                kind,
                            });
                        }
                    }
                }
            }
        }
        out.retain(|h| {
            filter.from.is_none_or(|p| p <= h.position)
                && filter.until.is_none_or(|p| h.position < p)
        });
        out.sort_by_key(|h| {
            (
                h.position,
                matches!(h.kind, Kind::ThreadEnd(_) | Kind::ProcessEnd { .. }),
            )
        });
        Ok(out)
    }

    /// The segments of a thread, in order; empty ones are left out.
    pub fn segments(&self, thread: ThreadId) -> Result<impl Iterator<Item = Segment> + '_> {
        let scan = self.0.scan(thread)?;
        let all = (0..=scan.numbers.len()).map(move |i| scan.nth(thread, i));
        Ok(all.filter(|s| s.from < s.to))
    }

    /// The segment in which a thread has completed `count` instructions.
    pub fn segment(&self, thread: ThreadId, count: u64) -> Result<Segment> {
        Ok(self.0.scan(thread)?.segment(thread, count))
    }

    /// The position at which a thread has completed `count` instructions.
    pub fn position(&self, thread: ThreadId, count: u64) -> Result<Position> {
        let scan = self.0.scan(thread)?;
        Ok(self.0.position(thread, scan, count))
    }

    /// The thread that is at a position, and the number of instructions it has completed there.
    pub fn locate(&self, position: Position) -> Result<(ThreadId, u64)> {
        for (t, scan) in self.scans()? {
            if let Some(s) = scan.opened_by(*t, position.segment) {
                let count = s.from.checked_add(position.offset);
                let count = count.filter(|c| *c <= s.to);
                return Ok((*t, count.ok_or(Error::NoPosition(position))?));
            }
        }
        Err(Error::NoPosition(position))
    }

    /// Instructions that a thread has completed at a position of the total order; `None` if it has
    /// not begun. What follows in the segment that it runs then counts as completed when the segment
    /// was opened before.
    pub fn count_at(&self, thread: ThreadId, position: Position) -> Result<Option<u64>> {
        let scan = self.0.scan(thread)?;
        if let Some(s) = scan.opened_by(thread, position.segment) {
            return Ok(Some(s.from.saturating_add(position.offset).min(s.to)));
        }
        let i = scan.numbers.partition_point(|n| n.0 <= position.segment);
        let begun = i > 0 || scan.begins_without_number();
        Ok(begun.then(|| scan.nth(thread, i).to))
    }

    /// The position at this many percent (0 to 100) of all instructions, threads one after the other
    /// in the order of the list; of a recording with one thread, at this part of its run.
    pub fn percent(&self, percent: f64) -> Result<Position> {
        let scans = self.scans()?;
        let total: u64 = scans.values().map(|s| s.to - s.from).sum();
        let mut left = (total as f64 * percent.clamp(0.0, 100.0) / 100.0) as u64;
        let mut last = Position::default();
        for (t, s) in scans {
            let n = s.to - s.from;
            last = self.0.position(*t, s, s.from + left.min(n));
            if left <= n {
                break;
            }
            left -= n;
        }
        Ok(last)
    }

    /// The first and the last position of the recording.
    pub fn range(&self) -> Result<(Position, Position)> {
        let scans = self.scans()?;
        let ends = scans.iter().map(|(t, s)| self.0.ends(*t, s));
        let both = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        both.ok_or(Error::Empty)
    }

    /// The first segment with instructions that was opened after this number.
    pub(crate) fn opened_after(
        &self,
        number: u64,
        of: impl Fn(ThreadId) -> bool,
    ) -> Result<Option<Segment>> {
        let mut best: Option<Segment> = None;
        for (t, scan) in self.scans()?.iter().filter(|(t, _)| of(**t)) {
            let mut i = scan.numbers.partition_point(|n| n.0 <= number);
            while i < scan.numbers.len() {
                let s = scan.nth(*t, i + 1);
                if best.is_some_and(|b| b.opens < s.opens) {
                    break;
                }
                if s.from < s.to {
                    best = Some(s);
                    break;
                }
                i += 1;
            }
        }
        Ok(best)
    }

    /// The last segment with instructions that was opened before this number.
    pub(crate) fn opened_before(
        &self,
        number: u64,
        of: impl Fn(ThreadId) -> bool,
    ) -> Result<Option<Segment>> {
        let mut best: Option<Segment> = None;
        for (t, scan) in self.scans()?.iter().filter(|(t, _)| of(**t)) {
            let mut i = scan.numbers.partition_point(|n| n.0 < number);
            loop {
                let s = scan.nth(*t, i);
                if best.is_some_and(|b| b.opens > s.opens) {
                    break;
                }
                if s.from < s.to && s.opens < number {
                    best = Some(s);
                    break;
                }
                let Some(before) = i.checked_sub(1) else {
                    break;
                };
                i = before;
            }
        }
        Ok(best)
    }

    pub(crate) fn scans(&self) -> Result<&BTreeMap<ThreadId, Scan>> {
        self.0.scans()
    }
}

impl Inner {
    /// The program image whose code a thread executes.
    pub fn image(&self, t: ThreadId) -> u32 {
        self.trace.stream_info(t.0).map_or(0, |i| i.image)
    }

    /// The code of a program image.
    pub fn code(&self, image: u32, thread: ThreadId) -> Result<Arc<Code>> {
        let mut all = lock(&self.codes);
        if let Some(c) = all.get(&image) {
            return Ok(Arc::clone(c));
        }
        let code = Code::from_trace(&self.trace, image).map_err(|e| replay(thread, e))?;
        let code = Arc::new(code);
        all.insert(image, Arc::clone(&code));
        Ok(code)
    }

    /// The content of a module; the last few are kept.
    pub fn file(&self, hash: ModuleHash) -> Result<Arc<Vec<u8>>> {
        const FILES: usize = 8;
        let mut kept = lock(&self.files);
        if let Some((_, f)) = kept.iter().find(|f| f.0 == hash) {
            return Ok(Arc::clone(f));
        }
        let file = Arc::new(self.trace.module_bytes(hash)?);
        kept.truncate(FILES - 1);
        kept.push_front((hash, Arc::clone(&file)));
        Ok(file)
    }

    /// A chunk of a thread in wire form; `None` behind the last one.
    pub fn chunk(
        &self,
        t: ThreadId,
        index: usize,
    ) -> std::result::Result<Option<Vec<u8>>, hindsight_replay::Error> {
        let Some(c) = self.trace.chunks(t.0).get(index) else {
            return Ok(None);
        };
        let mut kept = lock(&self.chunks);
        if let Some(i) = kept.iter().position(|k| k.0 == (t, index))
            && let Some(found) = kept.remove(i)
        {
            let wire = Vec::clone(&found.1);
            kept.push_front(found);
            return Ok(Some(wire));
        }
        drop(kept);
        let wire = self.trace.load(c)?;
        let mut kept = lock(&self.chunks);
        kept.truncate(CHUNKS - 1);
        kept.push_front(((t, index), Arc::new(wire.clone())));
        Ok(Some(wire))
    }

    /// The index of a part, if there is one.
    pub fn part_if_built(&self, place: Place) -> Option<Arc<Part>> {
        let key = (place.thread, place.from);
        if let Some(p) = lock(&self.parts).get(&key) {
            return Some(Arc::clone(p));
        }
        let part = Arc::new(self.sidecar.load(place)?);
        lock(&self.parts).insert(key, Arc::clone(&part));
        Some(part)
    }

    /// The index of a part, which is built if there is none.
    pub fn part(self: &Arc<Self>, place: Place) -> Result<Arc<Part>> {
        if let Some(p) = self.part_if_built(place) {
            return Ok(p);
        }
        self.build(place, &|_| true)
    }

    /// Builds the index of a part.
    pub fn build(
        self: &Arc<Self>,
        place: Place,
        progress: &dyn Fn(u64) -> bool,
    ) -> Result<Arc<Part>> {
        let scan = self.scan(place.thread)?;
        let part = index::build(self, place, scan, self.budget(place), progress)?;
        let part = Arc::new(part);
        lock(&self.parts).insert((place.thread, place.from), Arc::clone(&part));
        Ok(part)
    }

    /// All parts of all threads.
    fn places(&self) -> Vec<Place> {
        let all = self.threads.iter();
        all.flat_map(|t| index::places(self, *t)).collect()
    }

    /// Bytes that the index of a part may have: its share of what the whole may have.
    fn budget(&self, place: Place) -> u64 {
        let length = |t: &ThreadId| match self.trace.chunks(t.0) {
            [first, .., last] => last.last_pos - first.first_pos,
            _ => 0,
        };
        let total: u64 = self.threads.iter().map(length).fold(0, u64::saturating_add);
        let share = (place.to - place.from) as f64 / total.max(1) as f64;
        // What is around the parts is little.
        ((2 * self.trace.len() + INDEX_CONSTANT) as f64 * 0.9 * share) as u64
    }

    /// A frame that does not decode: the index was changed while it was used.
    pub fn bad_frame(&self) -> Error {
        Error::Index {
            path: self.path.display().to_string(),
            what: "a frame does not decode; delete the index".into(),
        }
    }

    pub fn scan(&self, t: ThreadId) -> Result<&Scan> {
        self.scans()?.get(&t).ok_or(Error::NoThread(t))
    }

    fn scans(&self) -> Result<&BTreeMap<ThreadId, Scan>> {
        if let Some(s) = self.scans.get() {
            return Ok(s);
        }
        let next = AtomicUsize::new(0);
        let done = Mutex::new(BTreeMap::new());
        let work = || -> Result<()> {
            loop {
                let i = next.fetch_add(1, Relaxed);
                let Some(t) = self.threads.get(i) else {
                    return Ok(());
                };
                let scan = Scan::read(&self.trace, *t)?;
                lock(&done).insert(*t, scan);
            }
        };
        std::thread::scope(|s| {
            let n = self.jobs.min(self.threads.len());
            let all: Vec<_> = (0..n).map(|_| s.spawn(work)).collect();
            all.into_iter().try_for_each(joined)
        })?;
        let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
        Ok(self.scans.get_or_init(|| done))
    }

    pub fn position(&self, t: ThreadId, scan: &Scan, count: u64) -> Position {
        let s = scan.segment(t, count);
        Position::new(s.opens, count.saturating_sub(s.from))
    }

    fn ends(&self, t: ThreadId, scan: &Scan) -> (Position, Position) {
        (
            self.position(t, scan, scan.from),
            self.position(t, scan, scan.to),
        )
    }
}

fn joined(w: std::thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    match w.join() {
        Ok(r) => r,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub(crate) fn replay(thread: ThreadId, source: hindsight_replay::Error) -> Error {
    match source {
        hindsight_replay::Error::Trace(e) => Error::Trace(e),
        source => Error::Replay { thread, source },
    }
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}
