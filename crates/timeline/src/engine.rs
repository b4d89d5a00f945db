//! A recording with its index. All questions go to it.

mod background;
mod contents;
pub mod interest;
mod levels;
mod parts;
mod passed;
mod patience;
mod room;
mod whole;

pub use background::{Asking, Background};
pub use levels::Looked;
pub use parts::{Key, Unpacked};
pub use room::INDEX_CONSTANT;
pub use whole::{Depth, IndexStatus};

use crate::base::lru::LruCache;
use crate::base::sync::lock;
use crate::index::{
    self, Budget, Draft, For, IndexPart, Level, PartRange, Sidecar, Stream, Tracks,
};
use crate::recording::Recording;
use crate::{Cancel, Error, Processor, Result, ThreadId};
use hindsight_trace::Trace;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
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
    /// The number of instructions in an interval of the coarse level. A part of the index has that level if it is much
    /// longer. 0: about half a billion.
    pub coarse: u64,
    /// The number of bytes that the index file may have. 0: twice those of the trace, 256 MiB, one for four
    /// bytes of the program's memory, but at most a GiB of these, and one for
    /// each 512 instructions.
    pub index_size: u64,
    /// The number of bytes more that the file may have for each interval of the coarse level, where all of the fine level is
    /// made ahead ([`Depth::Full`]). 0: 16 MiB.
    pub fine_size: u64,
    /// The number of bytes for parts of the fine level that are not in the file. Those that were used longest ago are
    /// made again when they are needed. 0: 256 MiB.
    pub fine_memory: usize,
    /// Do not save beside the trace what a question made: parts of the index, and lists of calls.
    pub unsaved: bool,
    /// What executes instructions.
    pub processor: Processor,
}

/// A recording, its index, and what else was found out by replaying it. It derefs to the [`Recording`].
pub struct Engine {
    /// The trace, and what was read from it.
    pub recording: Arc<Recording>,
    /// Do not save what a question made.
    pub unsaved: bool,
    /// How it was opened.
    options: Options,
    /// The index beside the trace.
    pub sidecar: Sidecar,
    /// The indexed parts of threads, by their first instruction.
    parts: Mutex<BTreeMap<(ThreadId, u64), Arc<IndexPart>>>,
    /// Parts of the fine level.
    fine: Mutex<LruCache<(ThreadId, u64), Arc<IndexPart>>>,
    /// What memory holds at borders between coarse intervals, the one asked about last at the end.
    at_border: Mutex<contents::Contents>,
    /// Where machines without marks came by in coarse intervals.
    passed: Mutex<passed::Passed>,
    /// The index file in which parts lie that were read.
    file: Mutex<Option<Arc<File>>>,
    /// Whoever makes a part has its lock. Others wait for it, and need not make it again.
    making: Mutex<BTreeMap<(Level, ThreadId, u64), Arc<Making>>>,
    /// Instructions that machines have run ahead in each part.
    ran_ahead: Mutex<BTreeMap<(ThreadId, u64), u64>>,
    /// What was played in intervals of the coarse level.
    played_coarse: Mutex<patience::PlayedCoarse>,
    sizes_coarse: Mutex<patience::Sizes>,
    /// How many questions are being answered.
    asking: AtomicUsize,
    /// Where somebody looked last.
    focus: Mutex<Option<(ThreadId, u64)>>,
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

/// Who makes a part.
#[derive(Default)]
struct Making {
    lock: Mutex<()>,
    /// How many wait for it.
    waiting: AtomicUsize,
}

/// Why a part is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// A question needs it.
    Question,
    /// A question may need it later.
    Background,
}

/// See [`crate::Timeline::tell_progress`].
pub type Teller = Box<dyn Fn(Option<u64>) + Send + Sync>;

/// About this many bytes of the index stay unpacked.
const UNPACKED: usize = 128 << 20;
/// Parts of the fine level that are not in the file have at most this many bytes together.
const FINE: usize = 256 << 20;
/// A program that had so many bytes of memory is a large one.
const LARGE: u64 = 128 << 20;

impl Deref for Engine {
    type Target = Recording;

    fn deref(&self) -> &Recording {
        &self.recording
    }
}

impl Engine {
    /// Opens a trace, and the index beside it if there is one.
    pub fn open(path: &Path, options: Options) -> Result<Engine> {
        Engine::of(Trace::open(path)?, path, options)
    }

    /// Opens a trace that is in memory. Nothing of it is saved.
    pub fn from_bytes(bytes: Vec<u8>, options: Options) -> Result<Engine> {
        let options = Options {
            unsaved: true,
            ..options
        };
        // No file has an empty path, so there is no index either.
        Engine::of(Trace::from_bytes(bytes)?, Path::new(""), options)
    }

    /// The recording with what was written since it was opened. Players and what was unpacked are left behind. The index
    /// file has what was found out, as far as it stays true.
    pub fn renewed(&self) -> Result<Engine> {
        Engine::of(self.trace.renewed()?, &self.path, self.options.clone())
    }

    fn of(trace: Trace, path: &Path, options: Options) -> Result<Engine> {
        let spans = [options.interval, options.coarse];
        let recording = Recording::new(
            trace,
            path.to_path_buf(),
            options.jobs,
            spans,
            options.processor,
        )?;
        let sidecar = Sidecar::open(
            hindsight_trace::files::index_path(path),
            recording.trace.identity(),
            room::limits(&recording, &options),
        );
        let fine = match options.fine_memory {
            0 => FINE,
            n => n,
        };
        Ok(Engine {
            recording: Arc::new(recording),
            unsaved: options.unsaved,
            options,
            sidecar,
            parts: Mutex::default(),
            fine: Mutex::new(LruCache::new(fine)),
            at_border: Mutex::default(),
            passed: Mutex::default(),
            file: Mutex::default(),
            making: Mutex::default(),
            ran_ahead: Mutex::default(),
            played_coarse: Mutex::default(),
            sizes_coarse: Mutex::default(),
            asking: AtomicUsize::new(0),
            focus: Mutex::default(),
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
        let held = match range.level {
            Level::Fine { .. } => lock(&self.fine).get(&key),
            _ => lock(&self.parts).get(&key).cloned(),
        };
        // A coarse part that was made anew may have other intervals.
        if let Some(p) = held.filter(|p| p.range == range) {
            return Some(p);
        }
        let part = Arc::new(self.sidecar.load(range)?);
        self.hold(&part);
        Some(part)
    }

    /// Keeps a part in memory. One that is in the file takes little.
    fn hold(&self, part: &Arc<IndexPart>) {
        let key = (part.thread, part.from);
        let new = Arc::clone(part);
        self.drop_old();
        match part.range.level {
            Level::Fine { .. } => lock(&self.fine).put(key, new, part.held()),
            _ => drop(lock(&self.parts).insert(key, new)),
        }
    }

    /// Drops parts that lie in a file whose place another one has taken. The old file would keep its room on the disk.
    fn drop_old(&self) {
        let file = self.sidecar.file();
        let mut last = lock(&self.file);
        let same = match (&*last, &file) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        if same {
            return;
        }
        last.clone_from(&file);
        lock(&self.parts).retain(|_, p| !p.is_elsewhere(file.as_ref()));
        lock(&self.fine).retain(|p| !p.is_elsewhere(file.as_ref()));
        // Whoever has the lock may be making a part.
        if let Ok(mut borders) = self.at_border.try_lock() {
            borders.clear();
        }
        lock(&self.passed).clear();
    }

    /// The parts of a thread.
    pub fn part_ranges_of(&self, thread: ThreadId) -> Arc<Vec<PartRange>> {
        let mut all = lock(&self.ranges);
        let list = all.entry(thread);
        Arc::clone(list.or_insert_with(|| Arc::new(index::part_ranges(&self.recording, thread))))
    }

    /// The index of the part that has instruction `count` of a thread, of the coarsest level. `None`: there is no such
    /// part.
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
        self.show(cancel, |progress| self.build(range, progress))
    }

    /// Does what may take long, and shows how far it is.
    pub fn show<R>(&self, cancel: &Cancel, work: impl FnOnce(&index::Progress) -> R) -> R {
        let Some(tell) = self.teller.get() else {
            return work(&|_| !cancel.is_cancelled());
        };
        let progress = |n| {
            tell(Some(self.played.fetch_add(n, Relaxed) + n));
            !cancel.is_cancelled()
        };
        let done = work(&progress);
        tell(None);
        done
    }

    /// Builds the index of a part. It is saved for other processes where that is possible.
    pub fn build(
        self: &Arc<Self>,
        range: PartRange,
        progress: &index::Progress,
    ) -> Result<Arc<IndexPart>> {
        self.build_for(range, Wish::Question, progress)
    }

    /// Who makes a part, or will make it.
    fn making(&self, range: PartRange) -> Arc<Making> {
        let key = (range.level, range.thread, range.from);
        Arc::clone(lock(&self.making).entry(key).or_default())
    }

    /// Whether the index has a part.
    fn has_part(&self, range: PartRange) -> bool {
        let key = (range.thread, range.from);
        lock(&self.parts)
            .get(&key)
            .is_some_and(|p| p.range == range)
            || self.sidecar.has(range)
    }

    fn build_for(
        self: &Arc<Self>,
        range: PartRange,
        wish: Wish,
        progress: &index::Progress,
    ) -> Result<Arc<IndexPart>> {
        let making = self.making(range);
        let _alone = making.alone(progress)?;
        if !self.unsaved {
            self.sidecar.refresh();
        }
        if let Some(p) = self.part_if_built(range) {
            return Ok(p);
        }
        let budget = Budget::new(self.budget(range), range.len());
        let mut stream = self.stream();
        let draft = self.draft(range, &budget, self.jobs, stream.as_mut(), progress)?;
        let encoded = draft.encode()?;
        drop(draft);
        // Saving can fail: the folder may not be writable, or the disk full. Then the next question makes the part
        // again.
        let why = match wish {
            Wish::Question => For::Question,
            Wish::Background => For::Background,
        };
        let add = || self.sidecar.add(range, &encoded, why, stream);
        let saved = !self.unsaved && matches!(add(), Ok(true));
        let wanted = wish == Wish::Question || making.waiting.load(Relaxed) > 0;
        if !saved && !wanted {
            // It would only take memory.
            return Err(Error::Cancelled);
        }
        let part = match self.sidecar.load(range).filter(|_| saved) {
            Some(p) => p,
            None => IndexPart::made(range, &encoded)?,
        };
        let part = Arc::new(part);
        self.hold(&part);
        Ok(part)
    }

    /// What takes packed intervals while a question waits for a part. `None`: they wait in memory. A file costs a small program more
    /// than it saves.
    fn stream(&self) -> Option<Stream> {
        let large = self.recording.memory().is_none_or(|had| had >= LARGE);
        if large && !self.unsaved {
            self.sidecar.begin()
        } else {
            None
        }
    }

    /// Replays a part and makes its index. `stream` takes the sections as they are made.
    fn draft(
        self: &Arc<Self>,
        range: PartRange,
        budget: &Budget,
        jobs: usize,
        stream: Option<&mut Stream>,
        progress: &index::Progress,
    ) -> Result<Draft> {
        if let Level::Fine { .. } = range.level {
            return self.draft_with(range, &[], budget, stream, progress);
        }
        let scan = self.scan(range.thread)?;
        index::by_several(&self.recording, range, scan, budget, jobs, stream, progress)
    }

    /// The same, with intervals that begin at these borders.
    fn draft_with(
        self: &Arc<Self>,
        range: PartRange,
        borders: &[u64],
        budget: &Budget,
        stream: Option<&mut Stream>,
        progress: &index::Progress,
    ) -> Result<Draft> {
        let start = self.start(range, progress)?;
        index::build(
            &self.recording,
            range,
            self.scan(range.thread)?,
            budget,
            borders,
            start,
            true,
            stream,
            progress,
        )
    }

    /// Builds the index of a part again, with the same intervals.
    pub fn again(self: &Arc<Self>, range: PartRange, borders: &[u64]) -> Result<Draft> {
        self.draft_with(range, borders, &Budget::unlimited(), None, &|_| true)
    }

    /// All parts of all threads.
    pub fn part_ranges(&self) -> Vec<PartRange> {
        let all = self.threads.iter();
        all.flat_map(|t| index::part_ranges(&self.recording, *t))
            .collect()
    }

    /// The error for a frame that does not decode: somebody changed the index while it was in use.
    pub fn bad_frame(&self) -> Error {
        Error::Index {
            path: self.path.display().to_string(),
            what: "a frame does not decode; delete the index".into(),
        }
    }
}
