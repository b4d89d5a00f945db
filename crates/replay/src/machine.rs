//! A thread's stream played on a virtual processor.

mod play;

use crate::code::Code;
use crate::cost::Ticks;
use crate::cpu::{Cpu, Observe};
use crate::host::Held;
use crate::library::Library;
use crate::lines::Lines;
use crate::marks::ShowPage;
use crate::order::Order;
use crate::queue::{Counts, Numbers, Op, Queue, Source};
use crate::restated::Before;
use crate::window::Marks;
use crate::{Error, Gap, Snapshot, State};
use hindsight_events::{EndKind, Event};
use hindsight_isa::{CpuState, Executed, Predictor, VecState};
use std::sync::Arc;

/// How a stream ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    pub kind: EndKind,
    pub code: u32,
    pub message: String,
}

/// Why [`Machine::run_to`] returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The position was reached; events due there have not yet taken effect.
    Position,
    /// The next instruction is at an address of [`Machine::set_breaks`].
    Break,
    /// The stream's end event.
    Ended(End),
    /// The stream has no more events and no end: it was cut.
    OutOfEvents,
}

/// A virtual processor that plays one stream.
pub struct Machine<'a> {
    pub(crate) cpu: Cpu,
    pub(crate) queue: Queue<'a>,
    /// A key frame has given the processor its state.
    pub(crate) started: bool,
    /// What is wrong if anything is executed before the next key frame.
    pub(crate) missing: Option<Error>,
    /// What memory holds at a key frame is being said.
    pub(crate) restating: bool,
    /// That is compared with what it held before.
    pub(crate) compares_memory: bool,
    /// What that was.
    pub(crate) before: Option<Before>,
    /// A system call waits for its result.
    pub(crate) open: bool,
    /// The thread runs unrecorded: only the position changes.
    pub(crate) gap: bool,
    /// Where the kernel last had the thread go on somewhere else than at the instruction that stands there.
    pub(crate) sent_on: Option<u64>,
    /// Where the last gap ended.
    pub(crate) gap_end: Option<u64>,
    /// Instructions in gaps, in all runs, and the gaps that have begun.
    skipped: u64,
    pub gaps: u64,
    pub(crate) end: Option<End>,
    order: Option<Arc<Order>>,
    /// Only digests and key frames are compared.
    pub(crate) digests_only: bool,
    /// Time spent in comparisons.
    pub(crate) compared: Ticks,
    /// This thread is prepared to run translated code, for several runs.
    held: Option<Held>,
}

impl<'a> Machine<'a> {
    /// Makes a processor with a predictor of this size that executes `code`.
    pub fn new(code: Arc<Code>, predictor: Predictor) -> Result<Machine<'a>, Error> {
        Machine::make(code, predictor, Observe::Not)
    }

    /// Makes a processor with a predictor of 32 bits that marks each byte it reads or writes. Slower
    /// than one that does not, by a few instructions per access.
    pub fn observing(code: Arc<Code>) -> Result<Machine<'a>, Error> {
        Machine::make(code, Predictor::WINDOW, Observe::Anywhere)
    }

    /// The same for one that executes much: it marks with less code if it is the only such machine of the process.
    pub fn observing_much(code: Arc<Code>) -> Result<Machine<'a>, Error> {
        Machine::make(code, Predictor::WINDOW, Observe::Near)
    }

    fn make(code: Arc<Code>, predictor: Predictor, observe: Observe) -> Result<Machine<'a>, Error> {
        let nothing = Queue::new(Box::new(Vec::new().into_iter()));
        Ok(Machine {
            cpu: Cpu::new(code, predictor, observe)?,
            queue: nothing,
            started: false,
            missing: None,
            restating: false,
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
            held: None,
        })
    }

    /// Executes other code from now on: that of another program image.
    pub fn set_code(&mut self, code: Arc<Code>) {
        self.cpu.set_code(code);
    }

    /// Takes translated blocks from `library`, and leaves its own there. Before anything is played.
    pub fn share(&mut self, library: Arc<Library>) {
        library.serve(self.cpu.marking());
        self.cpu.library = Some(library);
    }

    /// Leaves out what [`Checks::Digests`](crate::Checks::Digests) does. Before anything is played.
    pub fn digests_only(&mut self) {
        self.digests_only = true;
    }

    /// Time spent in comparisons in all runs.
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

    /// Compares memory that key frames restate with what it held before.
    pub fn compare_memory(&mut self) {
        self.compares_memory = true;
    }

    /// Has all sequence numbers checked to be unique in `order`.
    pub fn check_order(&mut self, order: Arc<Order>) {
        self.order = Some(order);
    }

    /// Begins to play a stream, or a part of one, whose first event (but for its place in the
    /// order of all threads) is a key frame; or that is empty, since the thread was killed
    /// before it began. Translated code is kept from whatever was played before.
    pub fn from_keyframe(&mut self, source: Box<dyn Source + 'a>) -> Result<(), Error> {
        self.begin(source);
        (self.started, self.restating, self.before) = (false, false, None);
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
        self.event(at)
    }

    /// Begins to play a stream in its middle, at a position where this was the state. `source`
    /// begins at or before the position; the window is left as it is. Only for states that a
    /// machine had between two instructions.
    pub fn resume(&mut self, source: Box<dyn Source + 'a>, state: &State) -> Result<(), Error> {
        self.take_up(source, state);
        self.queue.skip_to(state.position)?;
        if self.gap_end.is_some() {
            // All else that is due there comes again. An end takes effect also where one only wants to come so far.
            self.queue.skip_gap_end(state.position)?;
        }
        Ok(())
    }

    fn take_up(&mut self, source: Box<dyn Source + 'a>, state: &State) {
        self.begin(source);
        self.open = false;
        self.sent_on = None;
        self.end = None;
        (self.started, self.restating, self.before) = (true, false, None);
        self.gap = state.gap == Gap::Within;
        self.gap_end = (state.gap == Gap::Behind).then_some(state.position);
        self.cpu.pos = state.position;
        self.cpu.set_epoch(state.epoch);
        self.cpu.set_registers(&state.cpu);
        self.cpu.set_vectors(&state.vec);
    }

    /// Lets the window hold these lines and zeros elsewhere, without marks. `lines` also has, without a line, every
    /// page that is accessed from where the machine takes up until this is done again. Only of an observing machine.
    pub fn set_window(&mut self, lines: &Lines) -> Result<(), Error> {
        self.cpu.window.begin_with(lines)
    }

    /// Lets the window hold these lines in the place of what is there. Besides what it was said to access it may access
    /// their pages from here on. Only of an observing machine.
    pub fn add_to_window(&mut self, lines: &Lines) {
        self.cpu.window.add_lines(lines);
    }

    /// All that the window holds.
    pub fn content(&self) -> Result<Lines, Error> {
        self.cpu.window.beyond(&Lines::default())
    }

    /// Lets the window hold what that of another machine did, without marks. Only of an observing machine.
    pub fn set_content(&mut self, lines: &Lines) -> Result<(), Error> {
        self.cpu.window.begin_anywhere(lines)
    }

    /// What it needs to come back to this place later. `base`: what the window held at some time; the less it has
    /// changed since, the smaller a snapshot is. Only of an observing machine.
    pub fn snapshot(&mut self, base: &Lines) -> Result<Snapshot, Error> {
        let state = self.state();
        let window = &mut self.cpu.window;
        Ok(Snapshot {
            state,
            bookmark: self.queue.bookmark(),
            cells: window.beyond(base)?,
            marks: [
                window.marked_lines(Marks::Reads)?,
                window.marked_lines(Marks::Writes)?,
            ],
        })
    }

    /// The same without marks: for [`Machine::restore_memory`].
    pub fn snapshot_memory(&mut self, base: &Lines) -> Result<Snapshot, Error> {
        Ok(Snapshot {
            cells: self.cpu.window.beyond(base)?,
            ..self.snapshot_of_start()
        })
    }

    /// The same where it has just taken up a state with a window that holds `base`.
    pub fn snapshot_of_start(&self) -> Snapshot {
        Snapshot {
            state: self.state(),
            bookmark: self.queue.bookmark(),
            cells: Lines::default(),
            marks: Default::default(),
        }
    }

    /// Goes back, or ahead, to where it was when a snapshot was taken with the same `base`. `source` begins
    /// [`Snapshot::taken`] chunks behind the beginning of the one that was played then.
    pub fn restore(
        &mut self,
        base: &Lines,
        s: &Snapshot,
        source: Box<dyn Source + 'a>,
    ) -> Result<(), Error> {
        self.restore_memory(base, s, source)?;
        for (marks, lines) in [Marks::Reads, Marks::Writes].into_iter().zip(&s.marks) {
            self.cpu.window.become_marked(marks, lines)?;
        }
        Ok(())
    }

    /// The same, but the marks stay as they are, of whatever they are.
    pub fn restore_memory(
        &mut self,
        base: &Lines,
        s: &Snapshot,
        source: Box<dyn Source + 'a>,
    ) -> Result<(), Error> {
        self.cpu.window.become_lines(base, &s.cells)?;
        self.take_up(source, &s.state);
        self.queue.go_to(&s.bookmark);
        Ok(())
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
            epoch: self.cpu.epoch(),
            cpu: self.cpu.registers(),
            vec: self.cpu.vectors(),
        }
    }

    /// Stops before instructions at these addresses from now on ([`Stop::Break`]); each time once.
    pub fn set_breaks(&mut self, mut addresses: Vec<u64>) {
        addresses.sort_unstable();
        addresses.dedup();
        self.cpu.set_breaks(addresses);
    }

    /// Stops before each atomic operation from now on ([`Stop::Break`]) and, if there is a table of places
    /// (see [`hindsight_translate::watch_indices`]; it outlives the machine), before each instruction that
    /// may write to one of them. Before anything is played.
    pub fn watch(&mut self, table: Option<u64>) {
        self.cpu.watch(table);
    }

    /// Lets what is due before the next instruction take effect: afterwards memory and registers are what
    /// that instruction begins with.
    pub fn settle(&mut self) -> Result<(), Error> {
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

    /// Executes the string instruction that comes next, where the recording says something of it: to its end, or up to
    /// where a signal or a fault interrupts it, and then the position stays and what interrupts it is due next. Returns
    /// whether it did. Behind [`Machine::settle`].
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
        Ok(begins)
    }

    /// Lets what the kernel wrote in the system call that is just done take effect, which the recording
    /// says behind it.
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
        Ok(())
    }

    /// Whether the event stands for the instruction itself, or for a part of it.
    fn is_instruction(&self, at: usize) -> Result<bool, Error> {
        let event = self.queue.event(at)?;
        Ok(
            matches!(event, Event::Syscall { .. } | Event::RepChunk { .. })
                || matches!(event, Event::Regs { ilen, .. } if ilen != 0),
        )
    }

    /// Stops again before the instruction that comes next, if it did.
    pub fn look_again(&mut self) {
        self.cpu.look_again();
    }

    /// Known code bytes at `addr`, as of now; returns how many follow one another.
    pub fn code(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.cpu.code_at(addr, buf)
    }

    /// Instructions completed.
    pub fn position(&self) -> u64 {
        self.cpu.pos
    }

    /// General purpose registers, instruction pointer, flags, segment bases.
    pub fn registers(&self) -> CpuState {
        self.cpu.registers()
    }

    /// Vector, mask and x87 registers.
    pub fn vectors(&self) -> VecState {
        self.cpu.vectors()
    }

    /// Copies the cells of the addresses from `addr` on. They hold what the program has read or
    /// written there since the last key frame, unless another address took the cell.
    pub fn read_window(&self, addr: u64, buf: &mut [u8]) {
        self.cpu.window.read(addr, buf);
    }

    /// Stores into the cells of the addresses from `addr` on.
    pub fn write_window(&mut self, addr: u64, buf: &[u8]) {
        self.cpu.window.write_from_outside(addr, buf);
    }

    /// Copies the marks of the cells of `addr` and following ones: 0 if not accessed since
    /// [`Machine::clear_marks`], 0xff if the value is what the cell holds, else the value is not
    /// known any more.
    pub fn read_marks(&self, marks: Marks, addr: u64, buf: &mut [u8]) {
        self.cpu.window.marks(marks, addr, buf);
    }

    /// Replaces marks of the cells of `addr` and following ones.
    pub fn write_marks(&mut self, marks: Marks, addr: u64, new: &[u8]) {
        self.cpu.window.write_marks(marks, addr, new);
    }

    /// Shows all pages of cells that have marks, ascending, and takes all marks back. Only of an observing
    /// machine.
    pub fn take_marks(&mut self, show: &mut ShowPage) -> Result<(), Error> {
        self.cpu.window.take_marks(show)
    }

    /// Takes all marks back.
    pub fn clear_marks(&mut self) -> Result<(), Error> {
        self.cpu.window.clear_marks()
    }

    /// Position of the next event; `None` when there is no more.
    pub fn next_event(&mut self) -> Result<Option<u64>, Error> {
        Ok(self.queue.prepare()?.map(|e| e.pos))
    }

    /// Events read so far, by their tag.
    pub fn event_counts(&self) -> &Counts {
        self.queue.counts()
    }

    /// The first and the last sequence number of what was played or prepared.
    pub fn numbers(&self) -> Option<Numbers> {
        self.queue.numbers()
    }

    /// Has counted what is executed, which takes time. Before anything is played.
    pub fn count(&mut self) {
        self.cpu.count();
    }

    /// What this machine has executed in all its runs, if that is counted.
    pub fn counted(&self) -> Executed {
        self.cpu.executed()
    }

    /// Whether the thread runs unrecorded at this position: its registers are those with which the gap
    /// began.
    pub fn in_gap(&self) -> bool {
        self.gap
    }

    /// Instructions of all runs that were not recorded.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Instructions executed by this machine in all its runs.
    pub fn executed(&self) -> u64 {
        self.cpu.executed
    }

    pub(crate) fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt {
            position: self.cpu.pos,
            what,
        }
    }

    /// An event that should have been consumed by the instruction before.
    pub(crate) fn late(&self) -> Error {
        self.cpu.difference(
            "an event for the instruction before",
            "an instruction that took none",
        )
    }
}
