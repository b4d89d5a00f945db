//! How long machines run ahead, again and again, before the index is made, and how long players play in intervals of the coarse
//! level before their parts of the fine level are.
//!
//! Nobody knows how many questions will follow. So what runs cost may come to what the index costs, and to one run more. Then
//! no session takes much more than twice as long as if it had known. A machine that goes on from where it is costs nothing here.

use super::Engine;
use crate::base::sync::lock;
use crate::index::{IndexPart, PartRange};
use crate::{Result, ThreadId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// To make the index of a part takes about as long as to run it so many times.
const TIMES: u64 = 2;
/// Instructions. The index of a part that was run for less in all is not worth its memory.
const LITTLE: u64 = 64 << 30;

/// To make a part of the fine level takes about so many times as long as to play all of its interval.
const TIMES_COARSE: u64 = 3;
/// The same without marks.
const TIMES_UNMARKED: u64 = 8;
/// A player of a coarse interval that accesses so many pages can take no checkpoint: it would be too large. To go back would mean
/// to play all of it again.
const LARGE: usize = 16 << 10;
/// The same where somebody chose the length of coarse intervals. The programs of tests are small.
const LARGE_IF_CHOSEN: usize = 128;

/// What is known of intervals of the coarse level whose parts of the fine level are missing, by where they begin.
pub type PlayedCoarse = BTreeMap<(ThreadId, u64), Coarsely>;

/// What was played in such an interval.
#[derive(Clone, Copy, Default)]
pub struct Coarsely {
    instructions: u64,
    /// Without marks.
    unmarked: u64,
}

/// How much memory intervals of coarse parts access, by the part's number and the interval's.
pub type Sizes = BTreeMap<(u64, usize), Size>;

/// How much memory such an interval accesses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Usual,
    /// Much. What the interval needs is found out when it is touched.
    Large,
    /// Much, and the interval's frame has what it accesses.
    Framed,
}

impl Engine {
    /// Whether a player is to play once more in an interval of a coarse part, rather than its part of the fine level be made.
    pub fn may_play_coarse(self: &Arc<Self>, part: &IndexPart, interval: usize) -> Result<bool> {
        if !part.range.is_coarse() {
            return Ok(false);
        }
        let (from, to) = part.bounds(interval);
        let its = lock(&self.played_coarse).get(&(part.thread, from)).copied();
        let played = its.unwrap_or_default().instructions;
        Ok(played == 0
            || played < (to - from).saturating_mul(TIMES_COARSE)
                && !self.is_large(part, interval)?)
    }

    /// Whether a machine without marks is to run `instructions` in an interval of a coarse part once more, rather than its part of
    /// the fine level be made. If so, they count from now on.
    pub fn may_run_coarse(&self, part: &IndexPart, interval: usize, instructions: u64) -> bool {
        let (from, to) = part.bounds(interval);
        let mut played = lock(&self.played_coarse);
        let its = &mut played.entry((part.thread, from)).or_default().unmarked;
        let may = *its < (to - from).saturating_mul(TIMES_UNMARKED);
        if may {
            *its = its.saturating_add(instructions);
        }
        may
    }

    /// Whether an interval of a coarse part accesses so much memory that a player can only go forwards in it: checkpoints would
    /// be too large. One whose frame has the lines that it accesses is no such interval.
    pub fn is_large(self: &Arc<Self>, part: &IndexPart, interval: usize) -> Result<bool> {
        Ok(self.size_of(part, interval)? == Size::Large)
    }

    /// Whether the frame of an interval of a coarse part has the lines that the interval accesses.
    pub fn is_framed(self: &Arc<Self>, part: &IndexPart, interval: usize) -> Result<bool> {
        Ok(self.size_of(part, interval)? == Size::Framed)
    }

    /// Whether an interval that accesses so many pages accesses much memory.
    pub fn is_much(&self, pages: usize) -> bool {
        let large = match self.coarse {
            0 => LARGE,
            _ => LARGE_IF_CHOSEN,
        };
        pages >= large
    }

    fn size_of(self: &Arc<Self>, part: &IndexPart, interval: usize) -> Result<Size> {
        // A part that was made anew may have other frames.
        let key = (part.number, interval);
        if let Some(size) = lock(&self.sizes_coarse).get(&key) {
            return Ok(*size);
        }
        let frame = part.frame(self, interval)?;
        let (_, accessed) = frame.open().ok_or_else(|| self.bad_frame())?;
        let size = if accessed.has_lines() {
            Size::Framed
        } else if self.is_much(accessed.pages.len()) {
            Size::Large
        } else {
            Size::Usual
        };
        lock(&self.sizes_coarse).insert(key, size);
        Ok(size)
    }

    /// Notes that so many instructions were played in an interval of a coarse part.
    pub fn note_coarse(&self, part: &IndexPart, interval: usize, instructions: u64) {
        let from = part.bounds(interval).0;
        let mut played = lock(&self.played_coarse);
        let its = &mut played.entry((part.thread, from)).or_default().instructions;
        *its = its.saturating_add(instructions);
    }

    /// Whether a machine is to run `instructions` in a part once more, rather than the index be made. If so, they count from
    /// now on.
    pub fn may_run_ahead(&self, range: PartRange, instructions: u64) -> bool {
        let mut all = lock(&self.ran_ahead);
        let ran = all.entry((range.thread, range.from)).or_default();
        let may = is_patient(*ran, range.len());
        if may {
            *ran = ran.saturating_add(instructions);
        }
        may
    }
}

/// Whether a part of `len` instructions, of which `ran` have been run already, is run again.
fn is_patient(ran: u64, len: u64) -> bool {
    ran < len.saturating_mul(TIMES).max(LITTLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cost_no_more_than_the_index() {
        // The first question runs, however far it is.
        assert!(is_patient(0, u64::MAX) && is_patient(0, 1));
        let len = 100 << 30;
        assert!(is_patient(2 * len - 1, len) && !is_patient(2 * len, len));
        // Many short runs in a short part.
        assert!(is_patient(LITTLE - 1, 1 << 30) && !is_patient(LITTLE, 1 << 30));
    }
}
