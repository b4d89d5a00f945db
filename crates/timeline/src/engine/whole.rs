//! Builds the index of a whole recording.

use super::Engine;
use crate::base::sync::{joined, lock};
use crate::index::{self, Budget};
use crate::{Cancel, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

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
    /// The number of bytes of the file that are used.
    pub bytes: u64,
    /// Why some or all of the file is not used.
    pub problem: Option<String>,
}

impl Engine {
    /// See [`crate::Timeline::index_status`].
    pub fn index_status(&self) -> IndexStatus {
        let ranges = self.part_ranges();
        let s = &self.sidecar;
        IndexStatus {
            path: s.path.clone(),
            parts: ranges.len(),
            present: ranges.iter().filter(|p| s.has(**p)).count(),
            bytes: s.len(),
            problem: s.problem(),
        }
    }

    /// See [`crate::Timeline::build_index`].
    pub fn build_index(
        self: &Arc<Self>,
        progress: &(dyn Fn(u64, u64) + Sync),
        cancel: &Cancel,
    ) -> Result<IndexStatus> {
        let engine = self;
        engine.scans()?;
        let mut ranges = engine.part_ranges();
        // Damaged parts show when they are read.
        ranges.retain(|p| !engine.sidecar.is_whole(*p));
        ranges.sort_by_key(|p| std::cmp::Reverse(p.to - p.from));
        let lengths = ranges.iter().map(|p| p.to - p.from);
        let total = lengths.fold(0, u64::saturating_add);
        let budget = Budget::new(ranges.iter().map(|p| engine.budget(*p)).sum(), total);
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        // A part that is longer than one thread's share is made by several threads.
        let jobs = |p: &index::PartRange| {
            let share = (p.to - p.from) as f64 / f64::max(total as f64, 1.0);
            (share * engine.jobs as f64).ceil().max(1.0) as usize
        };
        let work = || -> Result<()> {
            loop {
                let Some(range) = ranges.get(next.fetch_add(1, Relaxed)) else {
                    return Ok(());
                };
                let scan = engine.scan(range.thread)?;
                // Streaming works for one part only. Several threads would find the others' data in the file, and would
                // have to copy it.
                let mut stream = engine.sidecar.begin().filter(|_| ranges.len() == 1);
                let progress = |n| {
                    progress(done.fetch_add(n, Relaxed) + n, total);
                    !cancel.is_cancelled()
                };
                let (jobs, stream_to) = (jobs(range), stream.as_mut());
                let part = index::by_several(
                    &engine.recording,
                    *range,
                    scan,
                    &budget,
                    jobs,
                    stream_to,
                    &progress,
                )?;
                let part = index::encode(&part)?;
                engine.sidecar.finish(*range, &part, stream)?;
                // From now on the part is read from the file.
                lock(&engine.parts).remove(&(range.thread, range.from));
            }
        };
        std::thread::scope(|s| {
            let n = engine.jobs.min(ranges.len());
            let all: Vec<_> = (0..n).map(|_| s.spawn(work)).collect();
            all.into_iter().try_for_each(joined)
        })?;
        Ok(self.index_status())
    }
}
