//! What a trace says without a replay.

pub mod celled;
mod chunks;
mod clobbers;
mod endings;
mod forks;
mod happen;
mod lists;
pub mod maps;
mod positions;
mod restated;

pub use chunks::Chunks;
pub use clobbers::Clobbers;
pub use forks::forked_by;

use crate::base::lru::LruCache;
use crate::base::sync::{joined, lock, spawn};
use crate::model::error::replay;
use crate::scan::Scan;
use crate::{Error, Position, Processor, Result, ThreadId};
use hindsight_isa::Predictor;
use hindsight_replay::{Code, Machine, Model};
use hindsight_trace::{Completeness, ModuleHash, StreamId, Trace};
use maps::Change;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// A trace, and what was read from it. Each thing is read when somebody asks for it first.
pub struct Recording {
    pub trace: Trace,
    pub path: PathBuf,
    /// How many threads may work at the same time.
    pub jobs: usize,
    /// Instructions in an interval of the index. 0: the caller did not choose.
    pub interval: u64,
    /// Instructions in an interval of its coarse level. 0: the caller did not choose.
    pub coarse: u64,
    /// What executes instructions.
    pub model: Model,
    pub threads: Vec<ThreadId>,
    scans: OnceLock<BTreeMap<ThreadId, Scan>>,
    /// Threads that a signal killed, with its number, as other threads tell.
    killed: OnceLock<BTreeMap<ThreadId, u32>>,
    codes: Mutex<BTreeMap<u32, Arc<Code>>>,
    changes: Mutex<BTreeMap<u32, Arc<Vec<Change>>>>,
    clobbers: Mutex<BTreeMap<u32, Arc<Clobbers>>>,
    /// Modules that were read lately.
    files: Mutex<LruCache<ModuleHash, Arc<Vec<u8>>>>,
    /// Whether recorded processes may have written into the memory of others by system calls.
    pub meddled: OnceLock<bool>,
    /// Chunks in wire form that were used lately. The last one comes first.
    chunks: Mutex<VecDeque<Wire>>,
}

/// A chunk in wire form, by thread and number.
type Wire = ((ThreadId, usize), Arc<Vec<u8>>);

/// This many bytes of modules stay in memory, or one module.
const FILES: usize = 128 << 20;
/// This many chunks stay in memory in wire form. A chunk has about one MiB.
const CHUNKS: usize = 16;

/// Whether the recording says anything of a thread's registers. Of a thread that was just about to begin where the trace
/// stops, it may have what comes before its first key frame, which is no instruction.
fn is_shown(trace: &Trace, thread: StreamId) -> bool {
    let chunks = trace.chunks(thread);
    trace.completeness() == Completeness::Complete
        || chunks.iter().any(|c| c.keyframe)
        || (chunks.first().zip(chunks.last())).is_some_and(|(a, b)| a.first_pos < b.last_pos)
}

impl Recording {
    /// A machine for the stream of a thread.
    pub fn machine(&self, thread: ThreadId) -> Result<Machine<'static>> {
        let code = self.code(self.image(thread), thread)?;
        let machine = Machine::with(self.model.clone(), code, Predictor::WINDOW);
        self.expecting(machine.map_err(|e| replay(thread, e))?)
    }

    /// Says how much memory it will need.
    fn expecting(&self, mut machine: Machine<'static>) -> Result<Machine<'static>> {
        machine.expect_memory(self.memory().unwrap_or(0));
        Ok(machine)
    }

    /// The number of bytes of memory that the program had at most. `None`: the recording does not say it.
    pub fn memory(&self) -> Option<u64> {
        let summary = self.trace.summary()?;
        Some(summary.peak_memory_kib.saturating_mul(1024))
    }

    /// The same with access marks.
    pub fn observing(&self, thread: ThreadId) -> Result<Machine<'static>> {
        let code = self.code(self.image(thread), thread)?;
        Machine::observing(self.model.clone(), code).map_err(|e| replay(thread, e))
    }

    /// The same for a machine that executes much.
    pub fn observing_much(&self, thread: ThreadId) -> Result<Machine<'static>> {
        let code = self.code(self.image(thread), thread)?;
        let machine = Machine::observing_much(self.model.clone(), code);
        self.expecting(machine.map_err(|e| replay(thread, e))?)
    }

    /// The same for a machine that logs which instructions it executes.
    pub fn logging(&self, thread: ThreadId) -> Result<Machine<'static>> {
        let code = self.code(self.image(thread), thread)?;
        Machine::logging(self.model.clone(), code).map_err(|e| replay(thread, e))
    }

    /// A recording for a trace that is open. Nothing else of it is read yet.
    pub fn new(
        trace: Trace,
        path: PathBuf,
        jobs: usize,
        [interval, coarse]: [u64; 2],
        processor: Processor,
    ) -> Result<Recording> {
        if trace.header().predictor_bits != Predictor::WINDOW.bits {
            return Err(Error::Unsupported(
                "this was recorded with a small predictor (--predictor cache), which keeps too little to \
                 travel in it; `replay --verify` works"
                    .into(),
            ));
        }
        let model = Model::of(processor, trace.header());
        let threads = trace.threads().into_iter();
        let threads: Vec<ThreadId> = (threads.filter(|t| is_shown(&trace, *t)))
            .map(ThreadId)
            .collect();
        if threads.is_empty() {
            return Err(Error::Empty);
        }
        trace.check_pace()?;
        Ok(Recording {
            trace,
            path,
            jobs: match jobs {
                0 => hindsight_guard::processors(),
                n => n,
            },
            interval,
            coarse,
            model,
            threads,
            scans: OnceLock::new(),
            killed: OnceLock::new(),
            codes: Mutex::default(),
            changes: Mutex::default(),
            clobbers: Mutex::default(),
            files: Mutex::new(LruCache::new(FILES)),
            meddled: OnceLock::new(),
            chunks: Mutex::default(),
        })
    }

    /// The program image whose code a thread executes.
    pub fn image(&self, t: ThreadId) -> u32 {
        self.trace.stream_info(t.0).map_or(0, |i| i.image)
    }

    /// The threads of a program image.
    pub fn threads_of(&self, image: u32) -> Vec<ThreadId> {
        let all = self.threads.iter().copied();
        all.filter(|t| self.image(*t) == image).collect()
    }

    /// Whether the intervals of a thread are made in steps. They are if the thread is not alone in its image.
    pub fn has_steps(&self, t: ThreadId) -> bool {
        self.threads_of(self.image(t)).len() > 1
    }

    /// The image from which an image came. 0: none.
    pub fn parent(&self, image: u32) -> u32 {
        self.trace.image(image).map_or(0, |i| i.parent)
    }

    /// The thread with which an image began, if the recording has it.
    pub fn first_thread(&self, image: u32) -> Option<ThreadId> {
        let info = self.trace.image(image)?;
        let first = info.threads.first().copied().map(ThreadId);
        // Where the recording stops in the middle, it may know of a thread only that it is there.
        first.filter(|t| self.threads.binary_search(t).is_ok())
    }

    /// Whether the recording has all that an image's program did since it was loaded. Not if it ran before, if a ring has lost
    /// the beginning, or if the image is a copy of another one.
    pub fn has_all_of(&self, image: u32) -> Result<bool> {
        match self.first_thread(image) {
            Some(t) => Ok(self.scan(t)?.fresh && !self.is_forked(image)),
            None => Ok(false),
        }
    }

    /// Whether an image began with a copy of its parent's memory.
    pub fn is_forked(&self, image: u32) -> bool {
        let info = self.trace.image(image);
        info.is_some_and(|i| !i.by_exec && i.parent != 0)
    }

    /// Whether a thread goes on behind what the recording has of it.
    pub fn is_open(&self, t: ThreadId, scan: &Scan) -> bool {
        self.trace.completeness() == Completeness::Growing
            && scan.ending.is_none()
            && !self.trace.has_ended(t.0)
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

    /// The content of a module. The last few stay in memory.
    pub fn file(&self, hash: ModuleHash) -> Result<Arc<Vec<u8>>> {
        if let Some(f) = lock(&self.files).get(&hash) {
            return Ok(f);
        }
        let file = Arc::new(self.trace.module_bytes(hash)?);
        lock(&self.files).put(hash, Arc::clone(&file), file.len());
        Ok(file)
    }

    /// A chunk of a thread in wire form. `None`: there is no such chunk.
    pub fn chunk(
        &self,
        t: ThreadId,
        index: usize,
    ) -> std::result::Result<Option<Arc<Vec<u8>>>, hindsight_replay::Error> {
        let Some(c) = self.trace.chunks(t.0).get(index) else {
            return Ok(None);
        };
        let mut kept = lock(&self.chunks);
        if let Some(i) = kept.iter().position(|k| k.0 == (t, index))
            && let Some(found) = kept.remove(i)
        {
            let wire = Arc::clone(&found.1);
            kept.push_front(found);
            return Ok(Some(wire));
        }
        drop(kept);
        let wire = Arc::new(self.trace.load(c)?);
        let mut kept = lock(&self.chunks);
        kept.truncate(CHUNKS - 1);
        kept.push_front(((t, index), Arc::clone(&wire)));
        Ok(Some(wire))
    }

    pub fn scan(&self, t: ThreadId) -> Result<&Scan> {
        self.scans()?.get(&t).ok_or(Error::NoThread(t))
    }

    pub fn scans(&self) -> Result<&BTreeMap<ThreadId, Scan>> {
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
            let all: Vec<_> = (0..n).map(|_| spawn(s, work)).collect();
            all.into_iter().try_for_each(joined)
        })?;
        let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
        Ok(self.scans.get_or_init(|| done))
    }

    pub fn position_in(&self, t: ThreadId, scan: &Scan, count: u64) -> Position {
        scan.segment(t, count).position(count)
    }

    pub fn bounds(&self, t: ThreadId, scan: &Scan) -> (Position, Position) {
        (
            self.position_in(t, scan, scan.from),
            self.position_in(t, scan, scan.to),
        )
    }
}
