//! A place in a recording from which to look and to move.

use crate::ThreadInstant;
use crate::access::accesses;
use crate::calls::{self, Call};
use crate::model::memory::*;
use crate::model::stops::*;
use crate::play::Viewpoint;
use crate::search::{self, Writes};
use crate::{Position, Result, ThreadId, Timeline, value};
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::access::Access;
use std::sync::Arc;

/// A place in a recording. Several can exist at the same time.
pub struct Cursor {
    timeline: Timeline,
    pub(crate) view: Viewpoint,
}

impl Cursor {
    pub(crate) fn new(timeline: Timeline) -> Result<Cursor> {
        let view = Viewpoint::new(Arc::clone(&timeline.0))?;
        Ok(Cursor { timeline, view })
    }

    /// The recording.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Does what may take long so that it ends early when `cancel` says so: the answer is then
    /// [`crate::Error::Cancelled`], and the cursor stays where it was.
    ///
    /// ```no_run
    /// # use hindsight_timeline::{Cancel, Cursor, Position, Result};
    /// fn look(c: &mut Cursor, at: Position, cancel: &Cancel) -> Result<Vec<u8>> {
    ///     c.cancellable(cancel, |c| c.seek(at))?;
    ///     c.cancellable(cancel, |c| Ok(c.memory(0x40_1000, 8)?.prefix()))
    /// }
    /// ```
    pub fn cancellable<T>(
        &mut self,
        cancel: &Cancel,
        what: impl FnOnce(&mut Cursor) -> Result<T>,
    ) -> Result<T> {
        let outer = self.view.set_cancel(cancel.clone());
        let done = what(self);
        self.view.set_cancel(outer);
        done
    }

    /// Goes to a position.
    pub fn seek(&mut self, position: Position) -> Result<()> {
        let ThreadInstant { thread, count } = self.timeline.locate(position)?;
        self.seek_count(thread, count)
    }

    /// Whether it stands where a run stopped before the first instruction that a thread executes behind a signal that comes
    /// there: registers and memory are then those of the handler, and no longer what was interrupted.
    pub fn has_entered(&mut self) -> Result<bool> {
        self.view.here()?.has_entered()
    }

    /// Vector, mask and x87 registers.
    pub fn vectors(&mut self) -> Result<VecState> {
        Ok(self.view.here()?.vectors())
    }

    /// The registers of any thread as of the cursor's position in the total order; `None` if it has
    /// not begun.
    pub fn registers_of(&mut self, thread: ThreadId) -> Result<Option<Registers>> {
        let count = match thread == self.thread() {
            true => Some(self.count()),
            false => self.timeline.count_at(thread, self.position()?)?,
        };
        let Some(count) = count else { return Ok(None) };
        let other = thread != self.thread();
        let p = self.view.player(thread)?;
        if other {
            p.leave_entered(count)?;
        }
        p.go(count)?;
        Ok(Some(Registers {
            general: p.registers(),
            vectors: p.vectors(),
        }))
    }

    /// What is known of `len` bytes of memory from `address` on, what else they may be, and who wrote that.
    ///
    /// ```no_run
    /// # use hindsight_timeline::{Cursor, Result};
    /// fn word(c: &mut Cursor, address: u64) -> Result<Option<u64>> {
    ///     let bytes = c.memory(address, 8)?.whole();
    ///     Ok(bytes.and_then(|b| b.try_into().ok()).map(u64::from_le_bytes))
    /// }
    /// ```
    pub fn memory(&mut self, address: u64, len: usize) -> Result<Memory> {
        let cancel = self.view.cancel().clone();
        value::memory(&mut self.view, address, len, Detail::Candidates, &cancel)
    }

    /// The same bytes are known, without looking for what else they may be: where threads that ran at the same time
    /// may have written other values, [`Memory::unnamed`] says which threads, and not all candidates are there, or none.
    /// That is several times as fast, if there are any. (What was written and read since has either of the two grounds,
    /// which may differ from one question to the other.)
    pub fn known_memory(&mut self, address: u64, len: usize) -> Result<Memory> {
        let cancel = self.view.cancel().clone();
        value::memory(&mut self.view, address, len, Detail::Known, &cancel)
    }

    /// Forwards: behind the return from the present function. Backwards: before the call of it. In
    /// this thread.
    pub fn step_out(&mut self, direction: Direction, cancel: &Cancel) -> Result<Stop> {
        search::step_out(&mut self.view, direction, cancel)
    }

    /// Runs to the next or previous stop, the end, or until it is cancelled. The cursor's own
    /// position does not count.
    ///
    /// ```no_run
    /// # use hindsight_timeline::*;
    /// // Back to where the program wrote something else to eight bytes.
    /// fn back(c: &mut Cursor, address: u64) -> Result<Stop> {
    ///     let mut stops = Stops {
    ///         watchpoints: vec![Watchpoint {
    ///             id: 1,
    ///             address,
    ///             len: 8,
    ///             watch: Watch::Write,
    ///             image: None,
    ///         }],
    ///         ..Stops::default()
    ///     };
    ///     c.run(Direction::Backward, Scope::Process, &mut stops, &Cancel::new())
    /// }
    /// ```
    ///
    /// # Errors
    /// If a stream cannot be replayed. The cursor is then where it was.
    pub fn run(
        &mut self,
        direction: Direction,
        scope: Scope,
        stops: &mut Stops,
        cancel: &Cancel,
    ) -> Result<Stop> {
        calls::run(&mut self.view, direction, scope, stops, cancel)
    }

    /// The last instruction before the cursor, of any thread of its program image, that wrote any of
    /// these bytes.
    pub fn last_write(&mut self, address: u64, len: u64, cancel: &Cancel) -> Result<Option<Found>> {
        self.find(Direction::Backward, address, len, Watch::Write, cancel)
    }

    /// The writes to these bytes before the cursor, by any thread of its program image, one after the other and the last
    /// one first: the same that [`Cursor::last_write`] finds when the cursor is placed where it found one, again and
    /// again, but many at a time. `shown`: of how many of the bytes, from the first on, it is said what
    /// [`Cursor::known_memory`] finds behind each write.
    pub fn writes(&self, address: u64, len: u64, shown: usize) -> Result<Writes> {
        Writes::new(&self.view, address, len, shown)
    }

    /// The first instruction from the cursor on, of any thread of its program image, that reads or
    /// writes any of these bytes.
    pub fn first_use(&mut self, address: u64, len: u64, cancel: &Cancel) -> Result<Option<Found>> {
        self.find(Direction::Forward, address, len, Watch::Access, cancel)
    }

    /// The thread that the cursor is in.
    pub fn thread(&self) -> ThreadId {
        self.view.thread()
    }

    /// The program image whose code it executes.
    pub fn image(&self) -> u32 {
        self.view.image()
    }

    /// Instructions that the thread has completed.
    pub fn count(&self) -> u64 {
        self.view.count()
    }

    /// Where the cursor is.
    pub fn position(&self) -> Result<Position> {
        self.view.position()
    }

    /// Goes to where a thread has completed this many instructions; beyond its ends, to those.
    pub fn seek_count(&mut self, thread: ThreadId, count: u64) -> Result<()> {
        self.view.seek_count(thread, count)
    }

    /// General registers, instruction pointer, flags and segment bases.
    pub fn registers(&mut self) -> Result<CpuState> {
        self.view.registers()
    }

    /// Code bytes at an address as of the cursor's position; those known that follow one another.
    pub fn code(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        self.view.code(address, len)
    }

    /// One instruction further or back.
    pub fn step(&mut self, direction: Direction, scope: Scope) -> Result<Stop> {
        search::step(&mut self.view, direction, scope)
    }

    /// One instruction further or back in this thread, calls and all they do counting as one.
    pub fn step_over(&mut self, direction: Direction, cancel: &Cancel) -> Result<Stop> {
        search::step_over(&mut self.view, direction, cancel)
    }

    /// The nearest instruction before (or from the cursor on) that accesses any of these bytes in
    /// this way. The cursor stays.
    pub fn find(
        &mut self,
        direction: Direction,
        address: u64,
        len: u64,
        watch: Watch,
        cancel: &Cancel,
    ) -> Result<Option<Found>> {
        search::find(&mut self.view, direction, address, len, watch, cancel)
    }

    /// The accesses to memory of the instruction at the cursor.
    pub fn accesses(&mut self) -> Result<Vec<Access>> {
        accesses(&mut self.view)
    }

    /// Goes to where a call begins: registers are those that the function finds, also if it handles a signal.
    pub fn seek_call(&mut self, call: &Call, cancel: &Cancel) -> Result<()> {
        calls::seek_call(&mut self.view, call, cancel)
    }
}
