//! Key frames of a quiet thread. They restate what its memory holds, so replay can begin there.
//!
//! - Files are named.
//! - Pages that were touched are written out. The kernel's `pagemap` tells which. If it cannot be
//!   read, there is no key frame but the first.
//! - Pages that were never touched hold zeros.
//!
//! Most key frames restate only the pages that have changed since an earlier one (see [`Pages`]).
//! A hash of each page tells which have. That works with every kernel, and does not touch the
//! program, as write protection would.

use super::budget::{Budget, Running};
use super::copy::{self, Copy, Fate};
use super::frame::{self, Failed, Plan, What};
use super::pages::Pages;
use crate::memory::backing;
use crate::sys::lock::Lock;
use crate::sys::{self, config};
use crate::thread::Thread;
use hindsight_events::copied::stage;

/// A key frame restates at most one byte for so many instructions, on average. So the recording grows by what the program
/// changes, and in the worst case by that.
const GROWTH: u64 = 100;
/// The same per byte of a file that is named. Replay lays the file out when it begins there.
const GROWTH_OF_FILES: u64 = 40;
/// A key frame that was put off is not considered again sooner than after this part of the interval.
const SOON: u64 = 8;
/// If that many copies in a row fail, there are no more.
const MOST_FAILED: u32 = 2;

/// The key frames so far.
struct Chain {
    pages: Pages,
    /// Key of the hashes, so no program can make two pages with the same one. 0: none yet.
    key: u64,
    /// Bytes that a key frame usually restates.
    usual: u64,
    budget: Budget,
    /// A copy that makes a key frame, or has made it, as long as nobody has seen what became of that.
    copy: Option<Copy>,
    /// The last copy has failed, so this process makes the next key frame itself.
    alone: bool,
    /// How many copies have failed since the last one that did not.
    failed: u32,
}

impl Chain {
    /// Takes note of what became of the last copy's key frame. False if that is not known yet, which does not happen with
    /// `wait`.
    fn settle(&mut self, t: &mut Thread, wait: bool) -> bool {
        let Some(copy) = &mut self.copy else {
            return true;
        };
        match copy.fate(t, wait) {
            Fate::Open => return false,
            Fate::Placed => {
                self.failed = 0;
                self.note(self.pages.said(), self.pages.next() == 1);
            }
            Fate::Dropped => {
                // What the copy has said of pages is in no key frame.
                self.pages.restart();
                (self.usual, self.alone) = (0, true);
                self.failed += 1;
                if self.failed == MOST_FAILED {
                    copy::never();
                }
            }
        }
        self.copy = None;
        true
    }

    /// Notes what a key frame has restated. The cost of key frames with much is spread over the next ones.
    fn note(&mut self, bytes: u64, whole: bool) {
        self.usual = match whole {
            true => bytes / 3,
            false => (3 * self.usual + bytes) / 4,
        };
    }

    /// Whether a copy of the process makes a key frame here. If it does, the thread has nothing more to do.
    fn copies(&mut self, t: &mut Thread) -> bool {
        if core::mem::take(&mut self.alone) {
            return false;
        }
        self.renew();
        let resident = sys::resident_memory();
        let usual = match self.pages.next() {
            0 => resident,
            _ => self.usual,
        };
        if !copy::suits(t, self.budget.cost(resident, usual), usual) {
            return false;
        }
        let key = self.key();
        self.copy = copy::begin(t, &mut self.pages, key);
        self.copy.is_some()
    }

    /// Begins a new chain, if that is worth it.
    fn renew(&mut self) {
        if self.pages.is_worn() || config::get().whole_frames != 0 {
            self.pages.restart();
        }
    }

    /// Key of the hashes.
    fn key(&mut self) -> u64 {
        if self.key == 0 {
            let mut key = [0; 8];
            sys::getrandom(&mut key);
            self.key = u64::from_le_bytes(key) | 1;
        }
        self.key
    }
}

static CHAIN: Lock<Chain> = Lock::new(Chain {
    pages: Pages::new(),
    key: 0,
    usual: 0,
    budget: Budget::new(),
    copy: None,
    alone: false,
    failed: 0,
});

/// Schedules the first key frame of a thread that becomes quiet.
pub fn begin(t: &mut Thread) {
    CHAIN.lock().budget.open();
    schedule(t);
}

/// Schedules the next key frame.
fn schedule(t: &mut Thread) {
    t.regime.restated = t.pos;
    t.schedule_quiet(least());
}

/// The fewest instructions between two key frames.
fn least() -> u64 {
    let wanted = match config::get().restate_every {
        0 => config::get().keyframe_interval,
        n => n,
    };
    match wanted {
        0 => u64::MAX,
        n => n,
    }
}

/// Forgets the key frames so far: memory is another one, or nothing follows.
pub fn forget() {
    end_copy();
    inherited();
}

/// The same, in a child that has a copy of the memory.
pub fn inherited() {
    let mut c = CHAIN.lock();
    c.pages.restart();
    (c.copy, c.usual) = (None, 0);
}

/// Waits until no copy of the process makes a key frame any more. Whether there was one.
pub fn end_copy() -> bool {
    CHAIN.lock().copy.as_mut().is_some_and(Copy::reap)
}

/// Whether a copy of the process is still making a key frame.
pub fn is_at_work(t: &Thread) -> bool {
    t.emit.ctl().is_some_and(|c| {
        matches!(
            c.copied.stage(),
            stage::AWAITED | stage::HANDED | stage::FAILED
        )
    })
}

/// Has a quiet thread write a key frame behind the instruction at which it stands, whatever that costs. If a copy of the process
/// writes it, that comes later, and not at all if the copy fails.
pub fn state_point(t: &mut Thread) {
    if t.regime.quiet {
        t.regime.wants_state = true;
        t.schedule_quiet(0);
    }
}

/// Writes a key frame, if the instructions since the last one pay for it. The thread stands between
/// two instructions.
pub fn restate(t: &mut Thread) {
    if !t.regime.ends_soon() && backing::changed(true) {
        super::leave_soon(t, super::CHANGED);
    }
    if t.regime.ends_soon() {
        return;
    }
    let wanted = core::mem::take(&mut t.regime.wants_state);
    let mut clock = Budget::start(t.emit.waited());
    let mut chain = CHAIN.lock();
    if !chain.settle(t, wanted) {
        return t.schedule_quiet(least() / SOON);
    }
    if wanted && chain.copies(t) {
        chain.budget.tried(&mut clock, t.emit.waited());
        return schedule(t);
    }
    drop(chain);
    let Some(plan) = frame::plan() else {
        return t.schedule_quiet(least());
    };
    let mut chain = CHAIN.lock();
    let done = try_restate(t, &plan, &mut chain, &mut clock, wanted);
    chain.budget.tried(&mut clock, t.emit.waited());
    drop(chain);
    match done {
        Ok(()) => schedule(t),
        Err(Put::Off(to)) => t.schedule_quiet(to.saturating_sub(t.pos).max(least() / SOON)),
        Err(Put::Never) => super::leave_soon(t, "memory that cannot be read"),
    }
}

/// Why there is no key frame.
enum Put {
    /// It is to be considered again at this position.
    Off(u64),
    /// Not all memory can be read.
    Never,
}

/// Writes a key frame, or says why not. One that the program wants is written whatever it costs, if no copy does it.
fn try_restate(
    t: &mut Thread,
    plan: &Plan,
    c: &mut Chain,
    clock: &mut Running,
    wanted: bool,
) -> Result<(), Put> {
    let interval = t.emit.interval();
    // A ring that has nothing behind its last key frame but what it cannot hold would keep nothing.
    let needed = t.emit.is_long() && plan.bytes < interval / 2;
    let forced = config::get().restate_every != 0 || needed || wanted;
    c.renew();
    let whole = c.pages.next() == 0;
    let usual = if whole { plan.bytes } else { c.usual };
    c.budget.note(t.pos);
    if !forced {
        let growth = usual * GROWTH + plan.file_bytes * GROWTH_OF_FILES;
        let paid = c.budget.due(t.pos, c.budget.cost(plan.bytes, usual));
        let due = t.regime.restated.saturating_add(growth).max(paid);
        if t.pos < due {
            return Err(Put::Off(due));
        }
    }
    let key = c.key();
    frame::look(plan, &mut c.pages, key).map_err(put_off)?;
    c.budget.looked(plan.bytes, clock, t.emit.waited());
    let what = frame::what(&c.pages);
    let cost = c.budget.cost(0, what.bytes);
    if !forced && !Budget::bears(c.budget.left(), cost) {
        c.usual = what.bytes;
        return Err(Put::Off(c.budget.due(t.pos, cost)));
    }
    c.note(what.bytes, whole);
    write(t, plan, &what, c.pages.back())?;
    c.budget.wrote(what.bytes, clock, t.emit.waited());
    c.pages.written(what.bytes);
    Ok(())
}

fn put_off(why: Failed) -> Put {
    match why {
        Failed::Unreadable => Put::Never,
        Failed::ForNow => Put::Off(0),
    }
}

/// Writes a key frame.
fn write(t: &mut Thread, plan: &Plan, what: &What, back: u32) -> Result<(), Put> {
    t.emit.burst(true);
    t.keyframe();
    let all = frame::restate(plan, what, back, &mut |e| t.event(e));
    if back != 0 {
        frame::unsteady(&plan.unsteady, &mut |e| t.event(e));
    }
    t.emit.burst(false);
    if all { Ok(()) } else { Err(Put::Never) }
}
