//! Plays a thread's stream on a virtual processor.

mod breaks;
mod play;
mod shown;

use crate::access_marks::ShowPage;
use crate::code::Code;
use crate::cost::Ticks;
use crate::cpu::{Cpu, Observe};
use crate::expression::Expression;
use crate::library::Library;
use crate::lines::Lines;
use crate::processor::{Choice, Model, Processor};
use crate::queue::{Counts, Numbers, Op, Queue, Source};
use crate::restated::Before;
use crate::sequence::Sequence;
use crate::window::AccessKind;
use crate::{Checkpoint, Error, Gap, State};
use hindsight_events::{EndKind, Event};
use hindsight_isa::{Executed, Predictor};
use std::sync::Arc;

/// Machines use large pages for programs with this many bytes of memory.
const MUCH_MEMORY: u64 = 256 << 20;

/// How a stream ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamEnd {
    pub kind: EndKind,
    pub code: u32,
    pub message: String,
}

/// Why [`Machine::run_to`] returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The position was reached. Events due there have not taken effect.
    Position,
    /// The next instruction is at an address of [`Machine::set_breaks`].
    Break,
    /// The stream's end event was reached.
    Ended(StreamEnd),
    /// The stream has no more events but no end: it was cut.
    OutOfEvents,
}

/// A virtual processor that plays one stream.
pub struct Machine<'a> {
    pub(crate) cpu: Cpu,
    pub(crate) processor: Box<dyn Processor>,
    pub(crate) queue: Queue<'a>,
    /// A key frame has set the processor's state.
    pub(crate) started: bool,
    /// The error to report if anything is executed before the next key frame.
    pub(crate) missing: Option<Error>,
    /// Events are restating memory.
    pub(crate) restating: bool,
    /// The memory that is restated is only what has changed since another key frame, and the window holds all memory
    /// already.
    pub(crate) passing: bool,
    /// The machine begins at a key frame that builds on another one, which is so many key frames before it. What that
    /// one says is not in the window yet.
    pub(crate) base: Option<u64>,
    /// Whether restated memory is compared with the window.
    pub(crate) compares_memory: bool,
    /// The window's content before memory was restated.
    pub(crate) before: Option<Before>,
    /// A system call waits for its result.
    pub(crate) open: bool,
    /// The thread runs unrecorded: only its position changes.
    pub(crate) gap: bool,
    /// The last position at which the kernel made the thread continue at another instruction.
    pub(crate) sent_on: Option<u64>,
    /// Position at which the last gap ended.
    pub(crate) gap_end: Option<u64>,
    /// Instructions in gaps, over all runs.
    skipped: u64,
    /// Number of gaps that began, over all runs.
    pub gaps: u64,
    pub(crate) end: Option<StreamEnd>,
    order: Option<Arc<Sequence>>,
    /// Only digests and key frames are compared.
    pub(crate) digests_only: bool,
    /// Time spent in comparisons.
    pub(crate) compared: Ticks,
    /// A run ends behind each digest.
    pub(crate) stops_at_digests: bool,
    /// Conditions of breaks, by address. A break that is not here always stops.
    conditions: Vec<(u64, Arc<Expression>)>,
}

impl<'a> Machine<'a> {
    /// Makes a processor with this size of window that executes `code`.
    pub fn new(code: Arc<Code>, predictor: Predictor) -> Result<Machine<'a>, Error> {
        Machine::with(Choice::default(), code, predictor)
    }

    /// The same with this processor.
    pub fn with(
        model: impl Into<Model>,
        code: Arc<Code>,
        predictor: Predictor,
    ) -> Result<Machine<'a>, Error> {
        Machine::make(model.into(), code, predictor, Observe::Not)
    }

    /// Ends a run, with [`Stop::Position`], behind each digest of registers that was compared.
    pub fn stop_at_digests(&mut self) {
        self.stops_at_digests = true;
    }

    /// Makes a processor with a window of 2^32 cells that marks each byte it reads or writes. Each access
    /// takes a few instructions more.
    pub fn observing(model: impl Into<Model>, code: Arc<Code>) -> Result<Machine<'a>, Error> {
        Machine::make(model.into(), code, Predictor::WINDOW, Observe::Anywhere)
    }

    /// Makes a processor with a window of 2^32 cells that logs which instructions it executes, for [`Machine::log_to`]. Only
    /// the native processor can.
    pub fn logging(model: Model, code: Arc<Code>) -> Result<Machine<'a>, Error> {
        Machine::make(model, code, Predictor::WINDOW, Observe::Runs)
    }

    /// Like [`Machine::observing`], for a machine that executes much. If it is the only one in the process,
    /// it marks writes with less code.
    pub fn observing_much(model: impl Into<Model>, code: Arc<Code>) -> Result<Machine<'a>, Error> {
        Machine::make(model.into(), code, Predictor::WINDOW, Observe::Near)
    }

    fn make(
        model: Model,
        code: Arc<Code>,
        predictor: Predictor,
        observe: Observe,
    ) -> Result<Machine<'a>, Error> {
        let mut cpu = Cpu::new(code, predictor, observe)?;
        let processor = model.make(predictor, &mut cpu)?;
        let nothing = Queue::new(Box::new(Vec::new().into_iter()));
        Ok(Machine {
            cpu,
            processor,
            queue: nothing,
            started: false,
            missing: None,
            restating: false,
            passing: false,
            base: None,
            compares_memory: false,
            before: None,
            open: false,
            gap: false,
            gap_end: None,
            sent_on: None,
            skipped: 0,
            gaps: 0,
            end: None,
            order: None,
            digests_only: false,
            compared: Ticks::default(),
            stops_at_digests: false,
            conditions: Vec::new(),
        })
    }

    /// Says how many bytes of memory the program has. Where these are many, the machine uses large pages. They save most page
    /// faults, but take memory for what the program leaves out between its pages.
    pub fn expect_memory(&mut self, bytes: u64) {
        if bytes >= MUCH_MEMORY {
            self.cpu.window.large_pages();
        }
    }

    /// Executes the code of another program image from now on.
    pub fn set_code(&mut self, code: Arc<Code>) {
        self.processor.set_code(&mut self.cpu, code);
    }

    /// Takes translated blocks from `library` and puts its own there. To be called before anything is played.
    pub fn share(&mut self, library: Arc<Library>) {
        self.processor.share(&self.cpu, library);
    }

    /// Compares only digests and key frames, as `Checks::Digests` in the crate `verify` asks. To be called
    /// before anything is played.
    pub fn digests_only(&mut self) {
        self.digests_only = true;
    }

    /// Time spent in comparisons, over all runs.
    pub fn compared(&self) -> Ticks {
        Ticks(self.compared.0 + self.queue.compared.0)
    }

    /// Plays `source` from now on.
    fn begin(&mut self, source: Box<dyn Source + 'a>) {
        self.compared = self.compared();
        self.queue = Queue::new(source);
        self.queue.any_number = self.digests_only;
        if let Some(order) = &self.order {
            self.queue.check_order(Arc::clone(order));
        }
    }

    /// Compares memory that key frames restate with what the window held before.
    pub fn compare_memory(&mut self) {
        self.compares_memory = true;
    }

    /// Checks with `order` that all order numbers are unique.
    pub fn check_order(&mut self, order: Arc<Sequence>) {
        self.order = Some(order);
    }

    /// Begins to play a stream or a part of one. Its first event, apart from order numbers, must be a key
    /// frame. The stream may be empty: its thread was killed before it began. Translated code of earlier runs
    /// stays. Memory that the key frame restates is laid out, with what the key frames restate on which it builds.
    pub fn from_keyframe(&mut self, source: Box<dyn Source + 'a>) -> Result<(), Error> {
        if self.cpu.window.is_bad() || self.cpu.window.is_full() {
            self.cpu.window.hold(&Lines::default())?;
        }
        self.begin(source);
        self.started = false;
        self.restates_nothing();
        self.open = false;
        self.sent_on = None;
        (self.gap, self.gap_end) = (false, None);
        self.end = None;
        self.cpu.pos = 0;
        let first = self.queue.prepare()?;
        if first.is_none() {
            return Ok(());
        }
        let Some(Op::Other(at)) = first.map(|e| e.op) else {
            return Err(self.corrupt("the stream does not begin with a key frame"));
        };
        let Event::KeyFrame { .. } = self.queue.event(at)? else {
            return Err(self.corrupt("the stream does not begin with a key frame"));
        };
        self.cpu.pos = first.map_or(0, |e| e.pos);
        self.event(at)?;
        while let Some(next) = self.queue.prepare()?
            && let (true, Op::Other(at)) = (next.pos == self.cpu.pos, next.op)
            && (self.restating || matches!(self.queue.event(at)?, Event::Restate { .. }))
        {
            self.event(at)?;
        }
        Ok(())
    }

    fn restates_nothing(&mut self) {
        (self.restating, self.passing) = (false, false);
        (self.before, self.base) = (None, None);
    }

    /// Begins to play a stream in its middle, at a position at which the machine had this state. `source`
    /// begins at or before the position. The window stays as it is. The state must be one between two
    /// instructions.
    pub fn resume(&mut self, source: Box<dyn Source + 'a>, state: &State) -> Result<(), Error> {
        self.take_up(source, state);
        self.queue.skip_to(state.position)?;
        if self.gap_end.is_some() {
            // All other events at this position are read again. The end of a gap must not be: it takes effect
            // even for a machine that runs only up to here.
            self.queue.skip_gap_end(state.position)?;
        }
        Ok(())
    }

    fn take_up(&mut self, source: Box<dyn Source + 'a>, state: &State) {
        self.begin(source);
        self.open = false;
        self.sent_on = None;
        self.end = None;
        self.started = true;
        self.restates_nothing();
        self.gap = state.gap == Gap::Within;
        self.gap_end = (state.gap == Gap::Behind).then_some(state.position);
        self.cpu.pos = state.position;
        self.processor.set_epoch(&mut self.cpu, state.epoch);
        self.cpu.set_registers(&state.cpu);
        self.processor.set_vectors(&state.vec);
    }

    /// Sets the window to these lines, to zero elsewhere, and removes all access marks. Until the next call
    /// the machine may access only the pages that `lines` names; a page may be named without a line. Only for
    /// an observing machine.
    pub fn set_window(&mut self, lines: &Lines) -> Result<(), Error> {
        self.cpu.window.begin_with(lines)
    }

    /// Puts these lines into the window. From now on the machine may access their pages, too. Only for an
    /// observing machine.
    pub fn add_to_window(&mut self, lines: &Lines) {
        self.cpu.window.add_lines(lines);
    }

    /// All that the window holds.
    pub fn content(&self) -> Result<Lines, Error> {
        self.cpu.window.content()
    }

    /// The same. Pages that are equal to those made of `other` are not copied, where pages of the window are made when they are
    /// touched.
    pub fn content_beside(&self, other: &Lines) -> Result<Lines, Error> {
        self.cpu.window.content_beside(other)
    }

    /// How many bytes of memory the window's cells take.
    pub fn held(&self) -> Result<usize, Error> {
        Ok(self.cpu.window.pages()?.len() * 4096)
    }

    /// All that the window holds, of a machine that is not used any more, or begins anew: its window may hold nothing afterwards. Another
    /// machine can take the content over without a copy ([`Machine::set_content`]).
    pub fn take_content(&mut self) -> Result<Lines, Error> {
        self.cpu.window.take_content()
    }

    /// Sets the window to the content of another machine's window, without access marks. Only for an
    /// observing machine.
    pub fn set_content(&mut self, lines: &Lines) -> Result<(), Error> {
        self.cpu.window.begin_anywhere(lines)
    }

    /// Sets the window of a machine that sets no access marks to the content of another machine's window.
    pub fn set_memory(&mut self, lines: &Lines) -> Result<(), Error> {
        self.cpu.window.hold(lines)
    }

    /// A checkpoint of this state. `base` is what the window held at some time. The less the window has
    /// changed since, the smaller the checkpoint is. Only for an observing machine.
    pub fn checkpoint(&mut self, base: &Lines) -> Result<Checkpoint, Error> {
        let state = self.state();
        let window = &mut self.cpu.window;
        Ok(Checkpoint {
            state,
            bookmark: self.queue.bookmark(),
            cells: window.beyond(base)?,
            marks: [
                window.marked_lines(AccessKind::Reads)?,
                window.marked_lines(AccessKind::Writes)?,
            ],
        })
    }

    /// The same without access marks, for [`Machine::restore_memory`].
    pub fn checkpoint_memory(&mut self, base: &Lines) -> Result<Checkpoint, Error> {
        Ok(Checkpoint {
            cells: self.cpu.window.beyond(base)?,
            ..self.checkpoint_of_start()
        })
    }

    /// The same for a machine that has just resumed with a window that holds `base`.
    pub fn checkpoint_of_start(&self) -> Checkpoint {
        Checkpoint {
            state: self.state(),
            bookmark: self.queue.bookmark(),
            cells: Lines::default(),
            marks: Default::default(),
        }
    }

    /// Goes to the state at which a checkpoint with the same `base` was taken. `source` must continue the
    /// stream that was played then, [`Checkpoint::taken`] chunks behind its beginning.
    pub fn restore(
        &mut self,
        base: &Lines,
        s: &Checkpoint,
        source: Box<dyn Source + 'a>,
    ) -> Result<(), Error> {
        self.restore_memory(base, s, source)?;
        for (kind, lines) in [AccessKind::Reads, AccessKind::Writes]
            .into_iter()
            .zip(&s.marks)
        {
            self.cpu.window.become_marked(kind, lines)?;
        }
        Ok(())
    }

    /// The same, but the access marks stay as they are.
    pub fn restore_memory(
        &mut self,
        base: &Lines,
        s: &Checkpoint,
        source: Box<dyn Source + 'a>,
    ) -> Result<(), Error> {
        self.cpu.window.become_lines(base, &s.cells)?;
        self.take_up(source, &s.state);
        self.queue.go_to(&s.bookmark);
        self.check()
    }

    /// The state between two instructions, without memory.
    pub fn state(&self) -> State {
        State {
            position: self.cpu.pos,
            gap: match self.gap {
                true => Gap::Within,
                false if self.gap_end == Some(self.cpu.pos) => Gap::Behind,
                false => Gap::Outside,
            },
            epoch: self.cpu.epoch,
            cpu: self.cpu.registers(),
            vec: self.processor.vectors(),
        }
    }

    /// Stops before each atomic operation from now on ([`Stop::Break`]). With a table (see
    /// [`hindsight_translate::watch_indices`]), also stops before each instruction that may write to an
    /// address in it. The table must outlive the machine. To be called before anything is played.
    pub fn watch(&mut self, table: Option<u64>) {
        self.processor.watch(table);
    }

    /// Applies the events that are due before the next instruction. Then memory and registers are those with
    /// which the instruction begins.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.settle_all()?;
        self.check()
    }

    /// Whether all that the window was to begin with could be made, as far as it was needed. Nothing that the machine shows is to be
    /// trusted otherwise. Runs end with this check.
    ///
    /// # Errors
    /// [`Error::Damaged`], or the program needs more memory than there is.
    pub fn check(&self) -> Result<(), Error> {
        match self.cpu.window.is_bad() {
            true => Err(Error::Damaged),
            false if self.cpu.window.is_full() => Err(Error::full()),
            false => Ok(()),
        }
    }

    fn settle_all(&mut self) -> Result<(), Error> {
        while let Some(next) = self.queue.prepare()?
            && next.pos == self.cpu.pos
            && self.end.is_none()
        {
            match next.op {
                Op::Word(addr, value) => self.cpu.window.give_word(addr, value),
                Op::Bytes(addr, len, value) => self.cpu.window.give_bytes(addr, len, value),
                Op::Other(at) if !self.is_instruction(at)? => {
                    self.event(at)?;
                    continue;
                }
                _ => break,
            }
            self.queue.advance();
        }
        Ok(())
    }

    /// Executes the next instruction if it is a string instruction with events. Returns whether it did. A
    /// signal or a fault may interrupt the instruction: then the position stays and the interruption is due
    /// next. To be called after [`Machine::settle`].
    pub fn begin_string(&mut self) -> Result<bool, Error> {
        let next = self.queue.prepare()?.filter(|e| e.pos == self.cpu.pos);
        let Some(Op::Other(at)) = next.map(|e| e.op) else {
            return Ok(false);
        };
        let begins = !self.gap
            && self.end.is_none()
            && matches!(self.queue.event(at)?, Event::RepChunk { .. });
        if begins {
            self.event(at)?;
        }
        self.check()?;
        Ok(begins)
    }

    /// Applies the memory that the kernel wrote in the system call just completed. The recording has it
    /// behind the call.
    pub fn settle_memory(&mut self) -> Result<(), Error> {
        while !self.open
            && !self.gap
            && self.end.is_none()
            && let Some(next) = self.queue.prepare()?
            && next.pos == self.cpu.pos
            && let Op::Other(at) = next.op
            && matches!(
                self.queue.event(at)?,
                Event::Memory { .. } | Event::FileOf { .. } | Event::Changed { .. }
            )
        {
            self.event(at)?;
        }
        self.check()
    }

    /// Whether the event stands for the instruction itself, or a part of it.
    fn is_instruction(&self, at: usize) -> Result<bool, Error> {
        let event = self.queue.event(at)?;
        Ok(matches!(
            event,
            Event::Syscall { .. } | Event::RepChunk { .. } | Event::X87 { .. }
        ) || matches!(event, Event::Regs { ilen, .. } if ilen != 0))
    }

    /// Stops again before the next instruction, even if the machine stopped there already.
    pub fn look_again(&mut self) {
        self.cpu.look_again();
    }

    /// Writes to the cells of the addresses from `addr` on.
    pub fn write_window(&mut self, addr: u64, buf: &[u8]) {
        self.cpu.window.write_from_outside(addr, buf);
    }

    /// Copies the access marks of the cells from `addr` on. 0: not accessed since [`Machine::clear_marks`].
    /// 0xff: accessed, and the cell holds the value. Other values: accessed, but the value is not known any
    /// more.
    pub fn read_marks(&self, kind: AccessKind, addr: u64, buf: &mut [u8]) {
        self.cpu.window.marks(kind, addr, buf);
    }

    /// Replaces the access marks of the cells from `addr` on.
    pub fn write_marks(&mut self, kind: AccessKind, addr: u64, new: &[u8]) {
        self.cpu.window.write_marks(kind, addr, new);
    }

    /// Shows all pages of cells that have access marks, ascending, and removes all marks. Only for an
    /// observing machine.
    pub fn take_marks(&mut self, show: &mut ShowPage) -> Result<(), Error> {
        self.cpu.window.take_marks(show)?;
        self.check()
    }

    /// Removes all access marks.
    pub fn clear_marks(&mut self) -> Result<(), Error> {
        self.cpu.window.clear_marks()
    }

    /// Position of the next event. `None` if there are no more.
    pub fn next_event(&mut self) -> Result<Option<u64>, Error> {
        Ok(self.queue.prepare()?.map(|e| e.pos))
    }

    /// Numbers of events read so far, by tag.
    pub fn event_counts(&self) -> &Counts {
        self.queue.counts()
    }

    /// The first and the last order number of what was played or prepared.
    pub fn numbers(&self) -> Option<Numbers> {
        self.queue.numbers()
    }

    /// Counts what is executed, which takes time. To be called before anything is played.
    pub fn count(&mut self) {
        self.processor.count();
    }

    /// What all runs have executed, if [`Machine::count`] was called.
    pub fn counted(&self) -> Executed {
        self.processor.counted(&self.cpu)
    }

    /// Whether the thread runs unrecorded at this position. Its registers are then those at the gap's
    /// beginning.
    pub fn in_gap(&self) -> bool {
        self.gap
    }

    /// Number of unrecorded instructions in all runs.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of instructions that this machine executed in all its runs.
    pub fn executed(&self) -> u64 {
        self.cpu.executed
    }

    pub(crate) fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt {
            position: self.cpu.pos,
            what,
        }
    }

    /// The previous instruction should have consumed an event.
    pub(crate) fn late(&self) -> Error {
        self.cpu.difference(
            "an event for the instruction before",
            "an instruction that did not consume it",
        )
    }
}
