//! A cursor stands at one instant of a recording. It looks and moves.

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

/// An instant of a recording, from which one looks and moves. Several cursors can exist at the same time.
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

    /// Runs `what`, which may take long. It ends early with [`crate::Error::Cancelled`] when `cancel` is set. The
    /// cursor then stays where it was. Only runs and steps say it otherwise: they stop with [`Reason::Cancelled`].
    ///
    /// ```
    /// # use hindsight_timeline::{Cancel, Cursor, Options, Position, Result, Timeline};
    /// fn look(c: &mut Cursor, at: Position, cancel: &Cancel) -> Result<Vec<u8>> {
    ///     c.cancellable(cancel, |c| c.seek(at))?;
    ///     c.cancellable(cancel, |c| Ok(c.memory(0x40_1000, 8)?.prefix()))
    /// }
    /// # let (_scene, trace) = hindsight_lab::example();
    /// # let t = Timeline::open(&trace, Options::default())?;
    /// # let (at, cancel) = (t.range()?.1, Cancel::new());
    /// # let mut c = t.cursor()?;
    /// # assert!(look(&mut c, at, &cancel).is_ok());
    /// # Ok::<(), hindsight_timeline::Error>(())
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

    /// Whether the cursor stands at the entry of a signal handler. A run can stop before the first instruction that a
    /// thread executes after a signal. Registers and memory are then those of the handler. They are no longer those of
    /// the interrupted code.
    pub fn has_entered(&mut self) -> Result<bool> {
        self.view.here()?.has_entered()
    }

    /// Vector, mask and x87 registers.
    pub fn vectors(&mut self) -> Result<VecState> {
        Ok(self.view.here()?.vectors())
    }

    /// The registers of any thread, at the cursor's position in the total order. `None`: the thread has not begun.
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

    /// What is known of `len` bytes of memory from `address` on. Where a byte is not known, the answer has its
    /// candidates: what it may hold, and who wrote that.
    ///
    /// ```
    /// # use hindsight_timeline::{Cursor, Options, Result, Timeline};
    /// fn word(c: &mut Cursor, address: u64) -> Result<Option<u64>> {
    ///     let bytes = c.memory(address, 8)?.whole();
    ///     Ok(bytes.and_then(|b| b.try_into().ok()).map(u64::from_le_bytes))
    /// }
    /// # let (_scene, trace) = hindsight_lab::example();
    /// # let t = Timeline::open(&trace, Options::default())?;
    /// # let mut c = t.cursor()?;
    /// # // The number of arguments.
    /// # let rsp = c.registers()?.gpr[hindsight_timeline::regs::RSP];
    /// # assert_eq!(word(&mut c, rsp)?, Some(1));
    /// # assert_eq!(word(&mut c, 0)?, None);
    /// # Ok::<(), hindsight_timeline::Error>(())
    /// ```
    pub fn memory(&mut self, address: u64, len: usize) -> Result<Memory> {
        value::memory(&mut self.view, address, len, Detail::Candidates)
    }

    /// Like [`Cursor::memory`], but without a search for candidates. The same bytes are known. It is several times as
    /// fast where there are candidates.
    ///
    /// Threads that ran at the same time may have written other values. [`Memory::unnamed`] then says which threads.
    /// Some of the candidates may be there, or none.
    ///
    /// A byte that was written and then read may have either ground, [`crate::Ground::Written`] or
    /// [`crate::Ground::Read`]. The ground may differ from one question to the next.
    pub fn known_memory(&mut self, address: u64, len: usize) -> Result<Memory> {
        value::memory(&mut self.view, address, len, Detail::Known)
    }

    /// Leaves the present function, in this thread. Forwards, the cursor stops after the return; backwards, before the
    /// call.
    pub fn step_out(&mut self, direction: Direction) -> Result<Stop> {
        search::step_out(&mut self.view, direction)
    }

    /// Runs to the next or previous stop, to the end, or until it is cancelled ([`Cursor::cancellable`]). A stop at the
    /// cursor's own position does not count.
    ///
    /// ```
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
    ///     c.run(Direction::Backward, Scope::Process, &mut stops)
    /// }
    /// # let (_scene, trace) = hindsight_lab::example();
    /// # let t = Timeline::open(&trace, Options::default())?;
    /// # let mut c = t.cursor()?;
    /// # c.seek(t.range()?.1)?;
    /// # let end = c.position()?;
    /// # let rsp = c.registers()?.gpr[regs::RSP];
    /// # back(&mut c, rsp)?;
    /// # assert!(c.position()? < end);
    /// # Ok::<(), hindsight_timeline::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a stream cannot be replayed. The cursor is then where it was.
    pub fn run(&mut self, direction: Direction, scope: Scope, stops: &mut Stops) -> Result<Stop> {
        calls::run(&mut self.view, direction, scope, stops)
    }

    /// The last write to any of these bytes before the cursor, by any thread of its program image.
    pub fn last_write(&mut self, address: u64, len: u64) -> Result<Option<Found>> {
        self.find(Direction::Backward, address, len, Watch::Write)
    }

    /// All writes to these bytes before the cursor, by any thread of its program image. The last one comes first.
    ///
    /// They are the same that [`Cursor::last_write`] finds when the cursor goes back from one write to the next. The
    /// list searches for many at a time.
    ///
    /// `shown` is a number of bytes, counted from the first. The list says what these bytes hold after each write, as
    /// [`Cursor::known_memory`] would.
    pub fn writes(&self, address: u64, len: u64, shown: usize) -> Result<Writes> {
        Writes::new(&self.view, address, len, shown)
    }

    /// The first instruction from the cursor on that reads or writes any of these bytes. Threads of the cursor's
    /// program image count.
    pub fn first_use(&mut self, address: u64, len: u64) -> Result<Option<Found>> {
        self.find(Direction::Forward, address, len, Watch::Access)
    }

    /// The thread that the cursor is in.
    pub fn thread(&self) -> ThreadId {
        self.view.thread()
    }

    /// The program image whose code it executes.
    pub fn image(&self) -> u32 {
        self.view.image()
    }

    /// The number of instructions that the thread has completed.
    pub fn count(&self) -> u64 {
        self.view.count()
    }

    /// Where the cursor is.
    pub fn position(&self) -> Result<Position> {
        self.view.position()
    }

    /// Goes to where a thread has completed `count` instructions. A count outside the thread's range goes to its first
    /// or last instant.
    pub fn seek_count(&mut self, thread: ThreadId, count: u64) -> Result<()> {
        self.view.seek_count(thread, count)
    }

    /// General registers, instruction pointer, flags and segment bases.
    pub fn registers(&mut self) -> Result<CpuState> {
        self.view.registers()
    }

    /// Code bytes from `address` on, at the cursor's position. They end, before `len`, at the first byte that is not
    /// known.
    pub fn code(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        self.view.code(address, len)
    }

    /// One instruction forwards or backwards.
    pub fn step(&mut self, direction: Direction, scope: Scope) -> Result<Stop> {
        search::step(&mut self.view, direction, scope)
    }

    /// One instruction forwards or backwards in this thread. A call counts as one instruction, with all that it does.
    pub fn step_over(&mut self, direction: Direction) -> Result<Stop> {
        search::step_over(&mut self.view, direction)
    }

    /// The nearest access to any of these bytes in the way that `watch` says. Backwards it lies before the cursor,
    /// forwards at the cursor or later. The cursor stays.
    pub fn find(
        &mut self,
        direction: Direction,
        address: u64,
        len: u64,
        watch: Watch,
    ) -> Result<Option<Found>> {
        search::find(&mut self.view, direction, address, len, watch)
    }

    /// The memory that the instruction at the cursor accesses.
    pub fn accesses(&mut self) -> Result<Vec<Access>> {
        accesses(&mut self.view)
    }

    /// Goes to where a call begins. The registers are those that the function finds. That also holds for a function
    /// that handles a signal.
    pub fn seek_call(&mut self, call: &Call) -> Result<()> {
        calls::seek_call(&mut self.view, call)
    }
}
