//! What is known of a recording, and kept.

mod interest;

use crate::base::lru::LruCache;
use crate::base::sync::{joined, lock};
use crate::index::sidecar::{For, Sidecar};
use crate::index::{self, Budget, Draft, Key, Part, Place, Unpacked};
use crate::model::contents::ThreadId;
use crate::model::error::replay;
use crate::recording::clobbers::Doubts;
use crate::recording::maps::Change;
use crate::scan::Scan;
use crate::{Cancel, Error, Position, Result};
use hindsight_replay::Code;
use hindsight_trace::{ModuleHash, Trace};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

pub struct Inner {
    pub trace: Trace,
    pub path: PathBuf,
    pub jobs: usize,
    /// Instructions of an interval, if that was asked for, else 0.
    pub interval: u64,
    /// What is built for a question is not saved.
    pub unsaved: bool,
    pub threads: Vec<ThreadId>,
    pub scans: OnceLock<BTreeMap<ThreadId, Scan>>,
    /// Threads of which others say that a signal killed them, and which.
    pub killed: OnceLock<BTreeMap<ThreadId, u32>>,
    pub codes: Mutex<BTreeMap<u32, Arc<Code>>>,
    pub changes: Mutex<BTreeMap<u32, Arc<Vec<Change>>>>,
    pub doubts: Mutex<BTreeMap<u32, Arc<Doubts>>>,
    /// Modules that were read lately.
    pub files: Mutex<LruCache<ModuleHash, Arc<Vec<u8>>>>,
    /// Whether recorded processes may have written into the memory of others by system calls.
    pub meddled: OnceLock<bool>,
    /// The index beside the trace.
    pub sidecar: Sidecar,
    /// Indexed parts of threads, by their first instruction.
    pub parts: Mutex<BTreeMap<(ThreadId, u64), Arc<Part>>>,
    /// The parts of threads.
    pub places: Mutex<BTreeMap<ThreadId, Arc<Vec<Place>>>>,
    /// What of them was unpacked lately.
    pub unpacked: Mutex<LruCache<Key, Unpacked>>,
    /// Chunks in wire form that were used lately, the last one first.
    pub chunks: Mutex<VecDeque<Wire>>,
    /// Calls of functions that were asked for.
    pub calls: crate::calls::Known,
    /// Is told how far parts of the index are that are made for questions.
    pub teller: OnceLock<Teller>,
    /// Instructions played for them.
    pub played: AtomicU64,
}

/// See [`crate::Timeline::tell_progress`].
pub type Teller = Box<dyn Fn(Option<u64>) + Send + Sync>;

/// A chunk in wire form, by thread and number.
type Wire = ((ThreadId, usize), Arc<Vec<u8>>);

/// Bytes of modules that are kept, or one.
pub const FILES: usize = 128 << 20;
/// Bytes of the index that are kept unpacked, about.
pub const UNPACKED: usize = 128 << 20;
/// Chunks that are kept in wire form, of about a mebibyte each.
const CHUNKS: usize = 16;
/// What an index may have besides twice the bytes of its trace.
pub const INDEX_CONSTANT: u64 = 256 << 20;

/// Bytes that the index of a trace may have.
pub fn most(trace: &Trace) -> u64 {
    2 * trace.len() + INDEX_CONSTANT
}

impl Inner {
    /// The program image whose code a thread executes.
    pub fn image(&self, t: ThreadId) -> u32 {
        self.trace.stream_info(t.0).map_or(0, |i| i.image)
    }

    /// The threads of a program image.
    pub fn threads_of(&self, image: u32) -> Vec<ThreadId> {
        let all = self.threads.iter().copied();
        all.filter(|t| self.image(*t) == image).collect()
    }

    /// Instructions of an interval of a thread, unless its index would become too large.
    pub fn span(&self, t: ThreadId) -> u64 {
        match self.interval {
            0 if self.has_steps(t) => index::SHARED_SPAN,
            0 => index::SPAN,
            n => n,
        }
    }

    /// Whether the intervals of a thread are made in steps: it is not alone.
    pub fn has_steps(&self, t: ThreadId) -> bool {
        self.threads_of(self.image(t)).len() > 1
    }

    /// The image that an image came from; 0: none.
    pub fn parent(&self, image: u32) -> u32 {
        self.trace.image(image).map_or(0, |i| i.parent)
    }

    /// Whether an image began with a copy of its parent's memory.
    pub fn is_forked(&self, image: u32) -> bool {
        let info = self.trace.image(image);
        info.is_some_and(|i| !i.by_exec && i.parent != 0)
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
        if let Some(f) = lock(&self.files).get(&hash) {
            return Ok(f);
        }
        let file = Arc::new(self.trace.module_bytes(hash)?);
        lock(&self.files).put(hash, Arc::clone(&file), file.len());
        Ok(file)
    }

    /// A chunk of a thread in wire form; `None` behind the last one.
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

    /// The parts of a thread.
    pub fn places_of(&self, thread: ThreadId) -> Arc<Vec<Place>> {
        let mut all = lock(&self.places);
        let list = all.entry(thread);
        Arc::clone(list.or_insert_with(|| Arc::new(index::places(self, thread))))
    }

    /// The index of the part in which instruction `count` of a thread is; `None` if it has none.
    pub fn part_at(
        self: &Arc<Self>,
        thread: ThreadId,
        count: u64,
        cancel: &Cancel,
    ) -> Result<Option<Arc<Part>>> {
        let places = self.places_of(thread);
        let i = places.partition_point(|p| p.from <= count);
        let place = places.get(i.saturating_sub(1));
        place.map(|p| self.part(*p, cancel)).transpose()
    }

    /// The index of a part, which is built if there is none, unless that is cancelled.
    pub fn part(self: &Arc<Self>, place: Place, cancel: &Cancel) -> Result<Arc<Part>> {
        if let Some(p) = self.part_if_built(place) {
            return Ok(p);
        }
        let Some(tell) = self.teller.get() else {
            return self.build(place, &|_| !cancel.is_cancelled());
        };
        let progress = |n| {
            tell(Some(self.played.fetch_add(n, Relaxed) + n));
            !cancel.is_cancelled()
        };
        let built = self.build(place, &progress);
        tell(None);
        built
    }

    /// Builds the index of a part, and saves it for others if that can be.
    pub fn build(self: &Arc<Self>, place: Place, progress: &index::Progress) -> Result<Arc<Part>> {
        if !self.unsaved {
            self.sidecar.refresh();
            if let Some(p) = self.part_if_built(place) {
                return Ok(p);
            }
        }
        let scan = self.scan(place.thread)?;
        let draft = index::by_several(
            self,
            place,
            scan,
            &Budget::new(self.budget(place), place.to - place.from),
            self.jobs,
            None,
            progress,
        )?;
        let encoded = index::encode(&draft)?;
        drop(draft);
        // Where it cannot be saved (in a folder that may not be written, on a full disk) the next one makes it again.
        let saved = !self.unsaved && self.sidecar.add(place, &encoded, For::Question).is_ok();
        let part = match self.sidecar.load(place).filter(|_| saved) {
            Some(p) => p,
            None => Part::made(place, &encoded)?,
        };
        let part = Arc::new(part);
        lock(&self.parts).insert((place.thread, place.from), Arc::clone(&part));
        Ok(part)
    }

    /// Makes the index of a part once more, with the same intervals.
    pub fn again(self: &Arc<Self>, place: Place, borders: &[u64]) -> Result<Draft> {
        let scan = self.scan(place.thread)?;
        index::build(
            self,
            place,
            scan,
            &index::Budget::unlimited(),
            borders,
            None,
            true,
            None,
            &|_| true,
        )
    }

    /// All parts of all threads.
    pub fn places(&self) -> Vec<Place> {
        let all = self.threads.iter();
        all.flat_map(|t| index::places(self, *t)).collect()
    }

    /// Bytes that the index of a part may have: its share of what the whole may have.
    pub fn budget(&self, place: Place) -> u64 {
        let length = |t: &ThreadId| match self.trace.chunks(t.0) {
            [first, .., last] => last.last_pos - first.first_pos,
            _ => 0,
        };
        let total: u64 = self.threads.iter().map(length).fold(0, u64::saturating_add);
        let share = (place.to - place.from) as f64 / total.max(1) as f64;
        // What is around the parts is little.
        (most(&self.trace) as f64 * 0.9 * share) as u64
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

    pub fn ends(&self, t: ThreadId, scan: &Scan) -> (Position, Position) {
        (
            self.position(t, scan, scan.from),
            self.position(t, scan, scan.to),
        )
    }
}
