//! A recording with its index. All questions go to it.

pub mod interest;
mod parts;
mod whole;

pub use parts::{Key, Unpacked};
pub use whole::IndexStatus;

use crate::base::lru::LruCache;
use crate::base::sync::lock;
use crate::index::{self, Budget, Draft, For, IndexPart, PartRange, Sidecar, Tracks};
use crate::recording::Recording;
use crate::{Cancel, Error, Result, ThreadId};
use hindsight_trace::Trace;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// How to open a recording.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How many threads may replay at the same time. 0: one for each processor.
    pub jobs: usize,
    /// The number of instructions between frames of an index that is built. Fewer make travel faster and the index
    /// larger. Frames get rarer where the index would become too large. 0: about 32 million; where threads share
    /// memory, 8 million, with steps of two million in between.
    pub interval: u64,
    /// Do not save beside the trace what a question made: parts of the index, and lists of calls.
    pub unsaved: bool,
}

/// A recording, its index, and what else was found out by replaying it. It derefs to the [`Recording`].
pub struct Engine {
    /// The trace, and what was read from it.
    pub recording: Arc<Recording>,
    /// Do not save what a question made.
    pub unsaved: bool,
    /// The index beside the trace.
    pub sidecar: Sidecar,
    /// The indexed parts of threads, by their first instruction.
    parts: Mutex<BTreeMap<(ThreadId, u64), Arc<IndexPart>>>,
    /// The ranges of each thread's parts.
    ranges: Mutex<BTreeMap<ThreadId, Arc<Vec<PartRange>>>>,
    /// What was unpacked of parts lately.
    unpacked: Mutex<LruCache<Key, Unpacked>>,
    /// The calls of functions that somebody asked for, by thread and function.
    calls: Mutex<BTreeMap<(ThreadId, u64), Arc<Tracks>>>,
    /// The callback for progress of parts that questions need.
    pub teller: OnceLock<Teller>,
    /// The number of instructions played for these parts.
    played: AtomicU64,
}

/// See [`crate::Timeline::tell_progress`].
pub type Teller = Box<dyn Fn(Option<u64>) + Send + Sync>;

/// About this many bytes of the index stay unpacked.
const UNPACKED: usize = 128 << 20;
/// An index may have twice the bytes of its trace, and this many more.
pub const INDEX_CONSTANT: u64 = 256 << 20;

/// The number of bytes that the index of a trace may have.
fn most(trace: &Trace) -> u64 {
    2 * trace.len() + INDEX_CONSTANT
}

impl Deref for Engine {
    type Target = Recording;

    fn deref(&self) -> &Recording {
        &self.recording
    }
}

impl Engine {
    /// Opens a trace, and the index beside it if there is one.
    pub fn open(path: &Path, options: Options) -> Result<Engine> {
        let trace = Trace::open(path)?;
        let recording = Recording::new(trace, path.to_path_buf(), options.jobs, options.interval)?;
        let trace = &recording.trace;
        let sidecar = Sidecar::open(
            hindsight_trace::files::index_path(path),
            trace.identity(),
            most(trace),
        );
        Ok(Engine {
            recording: Arc::new(recording),
            unsaved: options.unsaved,
            sidecar,
            parts: Mutex::default(),
            ranges: Mutex::default(),
            unpacked: Mutex::new(LruCache::new(UNPACKED)),
            calls: Mutex::default(),
            teller: OnceLock::new(),
            played: AtomicU64::new(0),
        })
    }

    /// The calls of a function in a thread, if they are already known.
    pub fn known_tracks(&self, thread: ThreadId, function: u64) -> Option<Arc<Tracks>> {
        lock(&self.calls).get(&(thread, function)).cloned()
    }

    /// Remembers the calls of a function in a thread.
    pub fn remember_tracks(&self, thread: ThreadId, function: u64, tracks: &Arc<Tracks>) {
        lock(&self.calls).insert((thread, function), Arc::clone(tracks));
    }

    /// The index of a part, if there is one.
    pub fn part_if_built(&self, range: PartRange) -> Option<Arc<IndexPart>> {
        let key = (range.thread, range.from);
        if let Some(p) = lock(&self.parts).get(&key) {
            return Some(Arc::clone(p));
        }
        let part = Arc::new(self.sidecar.load(range)?);
        lock(&self.parts).insert(key, Arc::clone(&part));
        Some(part)
    }

    /// The parts of a thread.
    pub fn part_ranges_of(&self, thread: ThreadId) -> Arc<Vec<PartRange>> {
        let mut all = lock(&self.ranges);
        let list = all.entry(thread);
        Arc::clone(list.or_insert_with(|| Arc::new(index::part_ranges(&self.recording, thread))))
    }

    /// The index of the part that has instruction `count` of a thread. `None`: there is no such part.
    pub fn part_at(
        self: &Arc<Self>,
        thread: ThreadId,
        count: u64,
        cancel: &Cancel,
    ) -> Result<Option<Arc<IndexPart>>> {
        let ranges = self.part_ranges_of(thread);
        let i = ranges.partition_point(|p| p.from <= count);
        let range = ranges.get(i.saturating_sub(1));
        range.map(|p| self.part(*p, cancel)).transpose()
    }

    /// The index of a part. It is built if there is none, unless that is cancelled.
    pub fn part(self: &Arc<Self>, range: PartRange, cancel: &Cancel) -> Result<Arc<IndexPart>> {
        if let Some(p) = self.part_if_built(range) {
            return Ok(p);
        }
        let Some(tell) = self.teller.get() else {
            return self.build(range, &|_| !cancel.is_cancelled());
        };
        let progress = |n| {
            tell(Some(self.played.fetch_add(n, Relaxed) + n));
            !cancel.is_cancelled()
        };
        let built = self.build(range, &progress);
        tell(None);
        built
    }

    /// Builds the index of a part. It is saved for other processes where that is possible.
    pub fn build(
        self: &Arc<Self>,
        range: PartRange,
        progress: &index::Progress,
    ) -> Result<Arc<IndexPart>> {
        if !self.unsaved {
            self.sidecar.refresh();
            if let Some(p) = self.part_if_built(range) {
                return Ok(p);
            }
        }
        let scan = self.scan(range.thread)?;
        let draft = index::by_several(
            &self.recording,
            range,
            scan,
            &Budget::new(self.budget(range), range.to - range.from),
            self.jobs,
            None,
            progress,
        )?;
        let encoded = index::encode(&draft)?;
        drop(draft);
        // Saving can fail: the folder may not be writable, or the disk full. Then the next question makes the part
        // again.
        let saved = !self.unsaved && self.sidecar.add(range, &encoded, For::Question).is_ok();
        let part = match self.sidecar.load(range).filter(|_| saved) {
            Some(p) => p,
            None => IndexPart::made(range, &encoded)?,
        };
        let part = Arc::new(part);
        lock(&self.parts).insert((range.thread, range.from), Arc::clone(&part));
        Ok(part)
    }

    /// Builds the index of a part again, with the same intervals.
    pub fn again(self: &Arc<Self>, range: PartRange, borders: &[u64]) -> Result<Draft> {
        let scan = self.scan(range.thread)?;
        index::build(
            &self.recording,
            range,
            scan,
            &Budget::unlimited(),
            borders,
            None,
            true,
            None,
            &|_| true,
        )
    }

    /// All parts of all threads.
    pub fn part_ranges(&self) -> Vec<PartRange> {
        let all = self.threads.iter();
        all.flat_map(|t| index::part_ranges(&self.recording, *t))
            .collect()
    }

    /// The number of bytes that the index of a part may have: its share of the whole.
    pub fn budget(&self, range: PartRange) -> u64 {
        let length = |t: &ThreadId| match self.trace.chunks(t.0) {
            [first, .., last] => last.last_pos - first.first_pos,
            _ => 0,
        };
        let total: u64 = self.threads.iter().map(length).fold(0, u64::saturating_add);
        let share = (range.to - range.from) as f64 / total.max(1) as f64;
        // The rest of the file, around the parts, is small.
        (most(&self.trace) as f64 * 0.9 * share) as u64
    }

    /// The error for a frame that does not decode: somebody changed the index while it was in use.
    pub fn bad_frame(&self) -> Error {
        Error::Index {
            path: self.path.display().to_string(),
            what: "a frame does not decode; delete the index".into(),
        }
    }
}
