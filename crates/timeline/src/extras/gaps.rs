//! The gaps of a thread, for those who know what the program did in them.

use crate::scan::Scan;
use crate::{GapReason, Kind, Result, ThreadId, Timeline};
use std::ops::Range;

/// A stretch in which a thread ran unrecorded. It lies next to an instant that somebody asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unrecorded {
    /// The instructions that the thread had completed where it begins and where it ends. A gap at the end of a thread ends
    /// at `u64::MAX`.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// Between the gap and the instant, only instructions of the thread changed memory: there was no system call and no signal.
    pub instructions_only: bool,
}

impl Timeline {
    /// The last gap that a thread had left before it had completed `count` instructions. `None`: there is none, or the thread
    /// was not recorded there.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn gap_before(&self, thread: ThreadId, count: u64) -> Result<Option<Unrecorded>> {
        let scan = self.0.scan(thread)?;
        let i = scan.gaps.partition_point(|g| g.start < count);
        let last = i.checked_sub(1).map(|i| &scan.gaps[i]);
        Ok((last.filter(|g| g.end <= count)).map(|g| unrecorded(scan, g, g.end..count)))
    }

    /// The first gap that a thread enters when it has completed `count` instructions, or later. `None`: there is none, or the
    /// thread was not recorded there.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn gap_after(&self, thread: ThreadId, count: u64) -> Result<Option<Unrecorded>> {
        let scan = self.0.scan(thread)?;
        let i = scan.gaps.partition_point(|g| g.end <= count);
        let next = scan.gaps.get(i).filter(|g| g.start >= count);
        Ok(next.map(|g| unrecorded(scan, g, count..g.start)))
    }

    /// Whether all gaps of a thread are there since whole files were not recorded: not for a time, and not outside of some functions.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn leaves_out_files_only(&self, thread: ThreadId) -> Result<bool> {
        let scan = self.0.scan(thread)?;
        let other =
            |k: &Kind| matches!(k, Kind::GapBegin { reason } if *reason != GapReason::Module);
        Ok(!scan.notes.iter().any(|(_, k)| other(k)))
    }

    /// For each of `len` bytes from `address` on: whether the recording says that memory was mapped anew there, or that the kernel
    /// changed it, between two instants of a thread. These are numbers of completed instructions. What happened within a gap, the
    /// recording need not say.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn made_anew(
        &self,
        thread: ThreadId,
        (address, len): (u64, usize),
        (from, to): (u64, u64),
    ) -> Result<Vec<bool>> {
        let sources = self.0.scan(thread)?.sources_of(address, len, to);
        Ok((sources.iter().map(|s| s.is_some_and(|s| s.at >= from))).collect())
    }
}

fn unrecorded(scan: &Scan, gap: &Range<u64>, between: Range<u64>) -> Unrecorded {
    let call = scan.events.iter().any(|e| between.contains(&e.0));
    Unrecorded {
        from: gap.start,
        to: gap.end,
        instructions_only: !call && scan.changed(between.start, between.end).is_empty(),
    }
}
