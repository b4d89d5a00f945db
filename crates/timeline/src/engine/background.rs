//! Makes the index while nobody asks: first around the place that somebody looks at, then backwards.
//!
//! It makes no answer wait. While a question is being answered, it pauses. Only if the question needs the very part that is
//! being made, it goes on.

use super::{Engine, Making, Wish};
use crate::base::sync::{HAS_THREADS, lock};
use crate::index::{self, PartRange};
use crate::{Cancel, Error, Result, ThreadId};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it looks whether a question has been answered.
const PAUSE: Duration = Duration::from_millis(2);

/// A thread that makes the index. It ends when this is dropped.
pub struct Background {
    stop: Cancel,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Waits until all of the index is there that it makes. It never is as long as somebody asks ([`Asking`]).
    pub fn wait(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(t) = self.thread.take() {
            // It only makes what a question would make too. So the next question meets what failed here.
            let _ = t.join();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.cancel();
        self.join();
    }
}

/// A question is being answered as long as this exists.
pub struct Asking<'a>(&'a Engine);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Relaxed);
    }
}

impl Engine {
    /// See [`crate::Timeline::asking`].
    pub fn asking(&self) -> Asking<'_> {
        self.asking.fetch_add(1, Relaxed);
        Asking(self)
    }

    /// Notes where somebody looks.
    pub fn look_at(&self, thread: ThreadId, count: u64) {
        *lock(&self.focus) = Some((thread, count));
    }

    /// See [`crate::Timeline::index_in_background`].
    pub fn in_background(self: &Arc<Self>) -> Background {
        let (engine, stop) = (Arc::clone(self), Cancel::new());
        let stopped = stop.clone();
        // Without threads, questions make what they need.
        let begin = || std::thread::spawn(move || engine.make_all(&stopped));
        Background {
            stop,
            thread: HAS_THREADS.then(begin),
        }
    }

    fn make_all(self: &Arc<Self>, stop: &Cancel) {
        // Beside this, a question may make a part. What cannot be saved is left to questions.
        if self.unsaved || index::affordable_coarse(&self.recording) < 2 {
            return;
        }
        let threads = self.threads.iter();
        let mut left: Vec<PartRange> = threads
            .flat_map(|t| self.part_ranges_of(*t).to_vec())
            .collect();
        while let Some(range) = self.take_next(&mut left) {
            if stop.is_cancelled() {
                return;
            }
            if self.has_part(range) {
                continue;
            }
            let making = self.making(range);
            let go_on = |_| {
                while self.asking.load(Relaxed) > 0
                    && making.waiting.load(Relaxed) == 0
                    && !stop.is_cancelled()
                {
                    std::thread::sleep(PAUSE);
                }
                !stop.is_cancelled()
            };
            // It cannot be saved, or nothing is wanted any more. What fails otherwise is not tried again: the question
            // that needs it says why.
            if let Err(Error::Cancelled) = self.build_for(range, Wish::Background, &go_on) {
                return;
            }
        }
    }

    /// Takes the part that is to be made next.
    fn take_next(&self, left: &mut Vec<PartRange>) -> Option<PartRange> {
        let focus = *lock(&self.focus);
        let order = |i: &usize| order(&left[*i], focus);
        let next = (0..left.len()).min_by_key(order)?;
        Some(left.swap_remove(next))
    }
}

/// What comes first: the parts of the thread that somebody looks at, from there backwards, then those behind it. Then the
/// others, the last ones first.
fn order(p: &PartRange, focus: Option<(ThreadId, u64)>) -> (u8, u64) {
    match focus {
        Some((thread, count)) if thread == p.thread => match p.from <= count {
            true => (0, count - p.from),
            false => (1, p.from - count),
        },
        _ => (2, u64::MAX - p.to),
    }
}

impl Making {
    /// Waits for who makes the part now, as long as `progress` wants that.
    pub fn alone(&self, progress: &index::Progress) -> Result<MutexGuard<'_, ()>> {
        self.waiting.fetch_add(1, Relaxed);
        let alone = loop {
            match self.lock.try_lock() {
                Ok(alone) => break Ok(alone),
                Err(TryLockError::Poisoned(e)) => break Ok(e.into_inner()),
                Err(TryLockError::WouldBlock) if !progress(0) => break Err(Error::Cancelled),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        };
        self.waiting.fetch_sub(1, Relaxed);
        alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Level;

    #[test]
    fn what_is_looked_at_comes_first_then_what_is_before_it() {
        let part = |thread, from| PartRange {
            thread: ThreadId(thread),
            chunk: 0,
            until: 1,
            stepped: false,
            from,
            to: from + 10,
            last: false,
            level: Level::Only,
        };
        let mut parts: Vec<PartRange> = [(1, 0), (2, 0), (2, 10), (2, 20), (2, 30), (3, 50)]
            .map(|p| part(p.0, p.1))
            .into();
        parts.sort_by_key(|p| order(p, Some((ThreadId(2), 25))));
        let found: Vec<(u32, u64)> = parts.iter().map(|p| (p.thread.0, p.from)).collect();
        assert_eq!(found, [(2, 20), (2, 10), (2, 0), (2, 30), (3, 50), (1, 0)]);
    }
}
