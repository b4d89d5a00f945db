//! Builds the index of a whole recording.

use super::Engine;
use super::room::Room;
use crate::base::sync::{joined, lock, spawn};
use crate::index::{self, Budget, For, Level, PartRange};
use crate::{Cancel, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A part of the fine level with fewer intervals than this is not kept, unless it is short. Questions in it would be slow each
/// time. One that they make themselves has more.
const FEW: u64 = 2;
/// A part with at least this share of the instructions is written while it is made. What is packed of others waits in memory:
/// they have as small a share of the file.
const STREAMED: u64 = 8;
/// When this many parts in a row found no room, there is none.
const MISSES: usize = 8;

/// How much of the index of a long recording is made ahead.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Depth {
    /// The coarse level. A part of the fine level is made when a question needs it.
    #[default]
    Coarse,
    /// The fine level too, from the end backwards, as far as the file has room.
    Full,
}

/// The state of the index beside a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct IndexStatus {
    /// Path of the index file. The file need not exist.
    pub path: PathBuf,
    /// The number of parts that a complete index has.
    pub parts: usize,
    /// The number of parts that exist.
    pub present: usize,
    /// The number of parts of the fine level, as far as it is known: the coarse level says where they lie. They are
    /// made when a question needs them, so a complete index may lack some.
    pub fine: usize,
    /// The number of those that exist.
    pub fine_present: usize,
    /// The number of bytes of the file that are used.
    pub bytes: u64,
    /// Why some or all of the file is not used, or what it had no room for.
    pub problem: Option<String>,
}

impl Engine {
    /// See [`crate::Timeline::index_status`].
    pub fn index_status(&self) -> IndexStatus {
        let ranges = self.part_ranges();
        let fine = self.fine_ranges(&ranges);
        let s = &self.sidecar;
        let present = |all: &[PartRange]| all.iter().filter(|p| s.has(**p)).count();
        IndexStatus {
            path: s.path.clone(),
            parts: ranges.len(),
            present: present(&ranges),
            fine: fine.len(),
            fine_present: present(&fine),
            bytes: s.len(),
            problem: s.problem(),
        }
    }

    /// The ranges of the fine level in those of the coarse level that exist.
    fn fine_ranges(&self, ranges: &[PartRange]) -> Vec<PartRange> {
        let mut out = Vec::new();
        for range in ranges.iter().filter(|r| r.level == Level::Coarse) {
            if let Some(part) = self.part_if_built(*range) {
                let all = 0..part.borders.len();
                out.extend(all.filter_map(|i| self.fine_range(&part, i)));
            }
        }
        out
    }

    /// See [`crate::Timeline::build_index`].
    pub fn build_index(
        self: &Arc<Self>,
        depth: Depth,
        progress: &(dyn Fn(u64, u64) + Sync),
        cancel: &Cancel,
    ) -> Result<IndexStatus> {
        self.scans()?;
        let mut ranges = self.part_ranges();
        let mut leveled = ranges.clone();
        leveled.retain(|p| p.level == Level::Coarse);
        let later: u64 = match depth {
            Depth::Coarse => 0,
            Depth::Full => leveled.iter().map(PartRange::len).sum(),
        };
        // Damaged parts show when they are read.
        ranges.retain(|p| !self.sidecar.is_whole(*p));
        ranges.sort_by_key(|p| std::cmp::Reverse(p.len()));
        let total = ranges.iter().map(PartRange::len).sum::<u64>();
        let done = AtomicU64::new(0);
        let progress = |n: u64| {
            progress(done.fetch_add(n, Relaxed) + n, total + later);
            !cancel.is_cancelled()
        };
        self.build_all(&ranges, total, &progress)?;
        if depth == Depth::Coarse {
            return Ok(self.index_status());
        }
        let mut fine = self.fine_ranges(&leveled);
        fine.retain(|p| !self.sidecar.is_whole(*p));
        // What is near the end is asked for first. Neighbours come one after the other, since memory at a border follows
        // from memory at the next one.
        fine.sort_by_key(|p| std::cmp::Reverse((p.thread, p.to)));
        self.build_fine(&fine, &progress)?;
        Ok(self.index_status())
    }

    /// Builds the coarsest level of some parts.
    fn build_all(
        self: &Arc<Self>,
        ranges: &[PartRange],
        total: u64,
        progress: &index::Progress,
    ) -> Result<()> {
        let engine = self;
        let budget = Budget::new(ranges.iter().map(|p| engine.budget(*p)).sum(), total);
        let next = AtomicUsize::new(0);
        // A part that is longer than one thread's share is made by several threads.
        let jobs = |p: &PartRange| {
            let share = p.len() as f64 / f64::max(total as f64, 1.0);
            (share * engine.jobs as f64).ceil().max(1.0) as usize
        };
        let work = || -> Result<()> {
            loop {
                let Some(range) = ranges.get(next.fetch_add(1, Relaxed)) else {
                    return Ok(());
                };
                let mut stream = match ranges.len() {
                    1 => engine.sidecar.begin(),
                    // The file may have other records when it is done. Then there is something to copy.
                    _ if range.len() >= total / STREAMED => engine.stream(),
                    _ => None,
                };
                let (jobs, stream_to) = (jobs(range), stream.as_mut());
                let part = engine.draft(*range, &budget, jobs, stream_to, progress)?;
                let part = part.encode()?;
                if engine.sidecar.add(*range, &part, For::Index, stream)? {
                    // From now on the part is read from the file.
                    lock(&engine.parts).remove(&(range.thread, range.from));
                } else if range.is_coarse() {
                    // The file has no room for it. The fine level still needs it.
                    engine.hold(&Arc::new(index::IndexPart::made(*range, &part)?));
                }
            }
        };
        std::thread::scope(|s| {
            let most = match ranges.iter().any(PartRange::is_coarse) {
                true => engine.affordable_jobs(),
                false => engine.jobs,
            };
            let n = most.min(ranges.len());
            let all: Vec<_> = (0..n).map(|_| spawn(s, work)).collect();
            all.into_iter().try_for_each(joined)
        })
    }

    /// Builds parts of the fine level, one after the other. What does not fit the file is not kept.
    fn build_fine(
        self: &Arc<Self>,
        ranges: &[PartRange],
        progress: &index::Progress,
    ) -> Result<()> {
        let engine = self;
        let next = AtomicUsize::new(0);
        let missed = AtomicUsize::new(0);
        let jobs = engine.affordable_jobs().min(ranges.len());
        let room = Mutex::new(Room {
            bytes: engine.sidecar.room(),
            instructions: ranges.iter().map(PartRange::len).sum(),
            jobs: jobs as u64,
        });
        let work = || -> Result<()> {
            while missed.load(Relaxed) < MISSES
                && let Some(range) = ranges.get(next.fetch_add(1, Relaxed))
            {
                let share = lock(&room).take(range.len());
                if share == 0 {
                    return Ok(());
                }
                let budget = Budget::new(share, range.len());
                let mut stream = engine.stream();
                let draft = engine.draft(*range, &budget, 1, stream.as_mut(), progress)?;
                let few = (draft.intervals.len() as u64) < FEW;
                let useful = !few || range.len() <= FEW * range.span(engine);
                let part = draft.encode()?;
                let bytes = part.1.iter().map(|s| s.len() as u64).sum::<u64>();
                let saved = useful && engine.sidecar.add(*range, &part, For::Rest, stream)?;
                lock(&room).give_back(share, if saved { bytes } else { 0 });
                match saved {
                    true => missed.store(0, Relaxed),
                    false => drop(missed.fetch_add(1, Relaxed)),
                }
            }
            Ok(())
        };
        std::thread::scope(|s| {
            let all: Vec<_> = (0..jobs).map(|_| spawn(s, work)).collect();
            all.into_iter().try_for_each(joined)
        })
    }

    /// How many parts of a long thread are made at the same time. Each takes a multiple of the program's memory.
    fn affordable_jobs(&self) -> usize {
        let most = index::affordable_coarse(&self.recording);
        self.jobs.min(most).max(1)
    }
}
