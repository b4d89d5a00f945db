//! An opened recording.

use crate::base::lru::LruCache;
use crate::base::sync::{joined, lock};
use crate::engine::Inner;
use crate::index::sidecar::{self, Sidecar};
use crate::index::{self, Budget};
use crate::model::contents::*;
use crate::recording::maps::{self, Change};
use crate::scan::Scan;
use crate::{Cancel, Cursor, Error, Position, Result};
use hindsight_isa::Predictor;
use hindsight_trace::{ModuleHash, Trace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// How to open a recording.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads that may replay at the same time; 0: as many as there are processors.
    pub jobs: usize,
    /// Instructions between the frames of an index that is built: fewer make travel faster and the
    /// index larger, which is made coarser where it would become too large. 0: about 32 million,
    /// and 8 million with steps of two million between them where threads share memory.
    pub interval: u64,
    /// What is built of the index for a question, and calls that were found for one, are not saved beside the trace.
    pub unsaved: bool,
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
        trace.check_pace()?;
        let jobs = match options.jobs {
            0 => hindsight_guard::processors(),
            n => n,
        };
        let sidecar = Sidecar::open(
            sidecar::path(&path),
            trace.identity(),
            crate::engine::most(&trace),
        );
        Ok(Timeline(Arc::new(Inner {
            files: Mutex::new(LruCache::new(crate::engine::FILES)),
            sidecar,
            trace,
            path,
            jobs,
            interval: options.interval,
            unsaved: options.unsaved,
            threads,
            scans: OnceLock::new(),
            killed: OnceLock::new(),
            meddled: OnceLock::new(),
            codes: Mutex::default(),
            changes: Mutex::default(),
            doubts: Mutex::default(),
            parts: Mutex::default(),
            places: Mutex::default(),
            unpacked: Mutex::new(LruCache::new(crate::engine::UNPACKED)),
            chunks: Mutex::default(),
            calls: Mutex::default(),
            teller: OnceLock::new(),
            played: AtomicU64::new(0),
        })))
    }

    /// From now on `tell` is told, while a part of the index is made because a question needs it, how many instructions were
    /// played for such parts in all, and `None` when one is done. By any thread; what was set first stays.
    pub fn tell_progress(&self, tell: impl Fn(Option<u64>) + Send + Sync + 'static) {
        let _ = self.0.teller.set(Box::new(tell));
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
            ending: self.0.ending(id, scan),
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
        places.retain(|p| !inner.sidecar.is_whole(*p));
        places.sort_by_key(|p| std::cmp::Reverse(p.to - p.from));
        let total: u64 = places.iter().map(|p| p.to - p.from).sum();
        let budget = Budget::new(places.iter().map(|p| inner.budget(*p)).sum(), total);
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        // Several make one that is more than the share of one.
        let jobs = |p: &index::Place| {
            let share = (p.to - p.from) as f64 / f64::max(total as f64, 1.0);
            (share * inner.jobs as f64).ceil().max(1.0) as usize
        };
        let work = || -> Result<()> {
            loop {
                let Some(place) = places.get(next.fetch_add(1, Relaxed)) else {
                    return Ok(());
                };
                let scan = inner.scan(place.thread)?;
                // One of several would find what the others have made, and have to copy it.
                let mut stream = inner.sidecar.begin().filter(|_| places.len() == 1);
                let progress = |n| {
                    progress(done.fetch_add(n, Relaxed) + n, total);
                    !cancel.is_cancelled()
                };
                let (jobs, stream_to) = (jobs(place), stream.as_mut());
                let part =
                    index::by_several(inner, *place, scan, &budget, jobs, stream_to, &progress)?;
                let part = index::encode(&part)?;
                inner.sidecar.finish(*place, &part, stream)?;
                // From now on it is read from there.
                lock(&inner.parts).remove(&(place.thread, place.from));
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

    pub(crate) fn scans(&self) -> Result<&BTreeMap<ThreadId, Scan>> {
        self.0.scans()
    }
}
