//! A thread's stream played on a virtual processor.

use crate::Error;
use crate::code::Code;
use crate::cpu::Cpu;
use crate::host::Prepared;
use crate::order::Order;
use crate::queue::{Counts, Numbers, Op, Queue, Source};
use crate::slow;
use crate::window::Marks;
use hindsight_events::{EndKind, Event};
use hindsight_isa::state::change;
use hindsight_isa::string::StringOp;
use hindsight_isa::{CpuState, Predictor, VecState};
use iced_x86::Mnemonic;
use std::sync::Arc;

const NAMES: [&str; 20] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip", "rflags", "fs_base", "gs_base",
];
const RAX: usize = 0;
const RCX: usize = 1;
const R11: usize = 11;
/// rdi, rsi, rdx, r10, r8, r9.
const ARGS: [usize; 6] = [7, 6, 2, 10, 8, 9];

/// Most bytes of a file that are mapped at once, or of memory that moves.
const MAX_MOVE: u64 = 2 << 30;
/// Bytes of a file that are copied at a time.
const FILE_STEP: u64 = 1 << 20;

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

/// What a virtual processor is between two instructions, without its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub position: u64,
    /// It lies in a gap: nothing is recorded there, and the rest is as it was at the gap's beginning.
    pub gap: bool,
    /// As of when its code is.
    pub epoch: u64,
    pub cpu: CpuState,
    pub vec: VecState,
}

/// A virtual processor that plays one stream.
pub struct Machine<'a> {
    cpu: Cpu,
    queue: Queue<'a>,
    /// A key frame has given the processor its state.
    started: bool,
    /// A system call waits for its result.
    open: bool,
    /// The thread runs unrecorded: only the position changes.
    gap: bool,
    /// Instructions in gaps, in all runs.
    skipped: u64,
    end: Option<End>,
    order: Option<Arc<Order>>,
}

impl<'a> Machine<'a> {
    /// Makes a processor with a predictor of this size that executes `code`.
    pub fn new(code: Arc<Code>, predictor: Predictor) -> Result<Machine<'a>, Error> {
        Machine::make(code, predictor, false)
    }

    /// Makes a processor with a predictor of 32 bits that marks each byte it reads or writes. Slower
    /// than one that does not, by a few instructions per access.
    pub fn observing(code: Arc<Code>) -> Result<Machine<'a>, Error> {
        Machine::make(code, Predictor::WINDOW, true)
    }

    fn make(code: Arc<Code>, predictor: Predictor, observe: bool) -> Result<Machine<'a>, Error> {
        let nothing = Queue::new(Box::new(Vec::new().into_iter()));
        Ok(Machine {
            cpu: Cpu::new(code, predictor, observe)?,
            queue: nothing,
            started: false,
            open: false,
            gap: false,
            skipped: 0,
            end: None,
            order: None,
        })
    }

    /// Executes other code from now on: that of another program image.
    pub fn set_code(&mut self, code: Arc<Code>) {
        self.cpu.set_code(code);
    }

    /// Has all sequence numbers checked to be unique in `order`.
    pub fn check_order(&mut self, order: Arc<Order>) {
        self.order = Some(order);
    }

    /// Begins to play a stream, or a part of one, whose first event (but for its place in the
    /// order of all threads) is a key frame; or that is empty, since the thread was killed
    /// before it began. Translated code is kept from whatever was played before.
    pub fn from_keyframe(&mut self, source: Box<dyn Source + 'a>) -> Result<(), Error> {
        self.queue = Queue::new(source);
        if let Some(order) = &self.order {
            self.queue.check_order(Arc::clone(order));
        }
        self.started = false;
        self.open = false;
        self.gap = false;
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
        self.queue = Queue::new(source);
        if let Some(order) = &self.order {
            self.queue.check_order(Arc::clone(order));
        }
        self.open = false;
        self.end = None;
        self.started = true;
        self.gap = state.gap;
        self.cpu.pos = state.position;
        self.cpu.set_epoch(state.epoch);
        self.cpu.set_registers(&state.cpu);
        self.cpu.set_vectors(&state.vec);
        self.queue.skip_to(state.position)
    }

    /// The state between two instructions, without memory.
    pub fn state(&self) -> State {
        State {
            position: self.cpu.pos,
            gap: self.gap,
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
    /// (see [`hindsight_translate::watch_index`]; it outlives the machine), before each instruction that
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
                Op::Word(addr, value) => self.cpu.window.set_word(addr, value),
                Op::Bytes(addr, len, value) => self.cpu.window.set_bytes(addr, len, value),
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
        self.cpu.window.write(addr, buf);
    }

    /// Empties all cells.
    pub fn clear_window(&mut self) -> Result<(), Error> {
        self.cpu.window.clear()
    }

    /// Numbers of the pages (4096 cells each) that hold anything but zero, and perhaps of others;
    /// ascending.
    pub fn window_pages(&self) -> Result<Vec<u32>, Error> {
        self.cpu.window.pages()
    }

    /// Numbers of the pages of cells that have marks, ascending. Only of an observing machine.
    pub fn marked_pages(&self, marks: Marks) -> Result<Vec<u32>, Error> {
        self.cpu.window.marked(marks)
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

    /// Memory operands read by this machine in all its runs (string instructions not counted).
    pub fn reads(&self) -> u64 {
        self.cpu.reads()
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

    /// Plays until `position` instructions are completed, the stream ends or something is wrong.
    pub fn run_to(&mut self, position: u64) -> Result<Stop, Error> {
        let host = self.cpu.prepare()?;
        self.play(position, &host)
    }

    /// As [`Machine::run_to`], but shows itself before each instruction, when what happens there has
    /// not yet happened. Ends early, with [`Stop::Position`], when `look` says no.
    pub fn each(
        &mut self,
        position: u64,
        look: &mut dyn FnMut(&Machine) -> bool,
    ) -> Result<Stop, Error> {
        let host = self.cpu.prepare()?;
        while self.cpu.pos < position && look(self) {
            match self.play(self.cpu.pos + 1, &host)? {
                Stop::Position => {}
                other => return Ok(other),
            }
        }
        Ok(Stop::Position)
    }

    fn play(&mut self, position: u64, host: &Prepared) -> Result<Stop, Error> {
        if !self.started {
            if self.queue.prepare()?.is_none() {
                return Ok(Stop::OutOfEvents);
            }
            return Err(self.corrupt("nothing to play"));
        }
        loop {
            if let Some(end) = &self.end {
                return Ok(Stop::Ended(end.clone()));
            }
            if self.cpu.pos >= position {
                return Ok(Stop::Position);
            }
            if self.cpu.at_break() && !self.open && !self.gap {
                self.cpu.pass();
                return Ok(Stop::Break);
            }
            if self.gap {
                self.leave_gap(position)?;
                if self.gap && self.cpu.pos < position && self.end.is_none() {
                    return Ok(Stop::OutOfEvents);
                }
                continue;
            }
            let Some(next) = self.queue.prepare()? else {
                return Ok(Stop::OutOfEvents);
            };
            if next.pos > self.cpu.pos && self.open {
                return Err(self.cpu.difference("the result of a system call", "none"));
            }
            match next.op {
                _ if next.pos > self.cpu.pos => {}
                _ if next.pos < self.cpu.pos => return Err(self.late()),
                Op::Other(at) => {
                    self.event(at)?;
                    continue;
                }
                Op::BadNumber(number) => {
                    return Err(self.cpu.difference(
                        "a sequence number that grows and occurs once",
                        number.to_string(),
                    ));
                }
                _ => {}
            }
            self.cpu.run(&mut self.queue, position, host)?;
            if self.cpu.take_watched() {
                self.cpu.pass();
                return Ok(Stop::Break);
            }
        }
    }

    /// Goes to the end of the gap at hand, which takes effect, but not beyond `position`.
    pub fn leave_gap(&mut self, position: u64) -> Result<(), Error> {
        while self.gap && self.end.is_none() {
            let Some(next) = self.queue.prepare()? else {
                return Ok(());
            };
            if next.pos > self.cpu.pos {
                let to = next.pos.min(position.max(self.cpu.pos));
                self.skipped += to - self.cpu.pos;
                self.cpu.pos = to;
                if to < next.pos {
                    return Ok(());
                }
            }
            match next.op {
                Op::Other(at) => self.event(at)?,
                _ => return Err(self.corrupt("an event within a gap")),
            }
        }
        Ok(())
    }

    /// Lets the events that are due now take effect up to the next key frame, which is compared
    /// with the state; for the end of a part of a stream that another part follows.
    pub fn finish_at_keyframe(&mut self) -> Result<(), Error> {
        loop {
            let next = self.queue.prepare()?;
            match next.map(|e| (e.pos == self.cpu.pos, e.op)) {
                Some((true, Op::Other(at))) => {
                    let last = matches!(self.queue.event(at)?, Event::KeyFrame { .. });
                    self.event(at)?;
                    if last {
                        return Ok(());
                    }
                }
                Some((true, Op::Word(..) | Op::Bytes(..))) => self.queue.advance(),
                _ => return Err(self.cpu.difference("a key frame", "none")),
            }
        }
    }

    fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt {
            position: self.cpu.pos,
            what,
        }
    }

    /// An event that should have been consumed by the instruction before.
    fn late(&self) -> Error {
        self.cpu.difference(
            "an event for the instruction before",
            "an instruction that took none",
        )
    }

    /// The event at offset `at`, due now, takes effect.
    fn event(&mut self, at: usize) -> Result<(), Error> {
        let event = self.queue.event(at)?;
        if self.open
            && !matches!(
                event,
                Event::SyscallRet { .. }
                    | Event::SetState { .. }
                    | Event::End { .. }
                    | Event::Zero { .. }
                    | Event::Memory { .. }
                    | Event::Signal { .. }
            )
        {
            return Err(self
                .cpu
                .difference("the result of a system call", "another event"));
        }
        if self.gap {
            match event {
                Event::GapEnd { .. } | Event::End { .. } | Event::CodeEpoch { .. } => {}
                // They say when processes were made, and what the program wanted to be known.
                Event::Syscall { .. } | Event::SyscallRet { .. } | Event::Mark { .. } => {
                    self.queue.advance();
                    return Ok(());
                }
                Event::Seq { .. } => {}
                _ => return Err(self.corrupt("an event within a gap")),
            }
        }
        let cpu = &mut self.cpu;
        match event {
            Event::GapBegin { .. } => self.gap = true,
            Event::GapEnd {
                mask,
                values,
                parts,
                vec,
            } => {
                if !self.gap {
                    return Err(self.corrupt("the end of a gap that did not begin"));
                }
                let mut bytes = cpu.registers().to_bytes();
                for (i, v) in values.iter().enumerate() {
                    if mask & (1 << i) != 0 {
                        bytes[8 * i..8 * i + 8].copy_from_slice(&v.to_le_bytes());
                    }
                }
                let mut vectors = cpu.vectors().to_bytes();
                if !change(&mut vectors, parts, vec) {
                    return Err(self.corrupt("vector registers behind a gap"));
                }
                cpu.set_registers(&CpuState::from_bytes(&bytes));
                cpu.set_vectors(&VecState::from_bytes(&vectors));
                // Whatever was known may have changed meanwhile.
                cpu.window.forget(0, u64::MAX)?;
                self.gap = false;
            }
            // The instruction has no effect but what follows.
            Event::Mark { .. } => {}
            Event::KeyFrame {
                code_epoch,
                cpu: regs,
                vec,
            } => {
                let (regs, vec) = (CpuState::from_bytes(regs), VecState::from_bytes(vec));
                if self.started {
                    compare(cpu, &regs, &vec)?;
                }
                cpu.set_epoch(code_epoch);
                cpu.window.clear()?;
                cpu.set_registers(&regs);
                cpu.set_vectors(&vec);
                self.started = true;
            }
            Event::Digest { cpu: digest, vec } => {
                let found = cpu.registers().digest();
                if digest != found {
                    let found = format!("{found:016x} ({})", show(&cpu.registers()));
                    return Err(
                        cpu.difference(format!("registers with digest {digest:016x}"), found)
                    );
                }
                if vec != 0 {
                    let found = cpu.vectors().digest();
                    if vec != found {
                        let found = format!("{found:016x}");
                        return Err(cpu.difference(
                            format!("vector registers with digest {vec:016x}"),
                            found,
                        ));
                    }
                }
            }
            Event::Syscall { nr, args } => {
                if current(cpu)?.map(|i| i.mnemonic()) != Some(Mnemonic::Syscall) {
                    return Err(cpu.difference(format!("system call {nr}"), "another instruction"));
                }
                let gpr = &cpu.window.ctx().gpr;
                let found = ARGS.map(|r| gpr[r]);
                if (gpr[RAX], found) != (nr, args) {
                    let found = format!("{} with {found:x?}", gpr[RAX]);
                    return Err(cpu.difference(format!("system call {nr} with {args:x?}"), found));
                }
                self.open = true;
            }
            Event::SyscallRet { ret } => {
                let len = current(cpu)?.map_or(2, |i| i.len()) as u64;
                if !self.open {
                    return Err(cpu.difference("the result of a system call", "none in progress"));
                }
                let flags = cpu.registers().rflags | 0x202;
                let next = cpu.rip.wrapping_add(len);
                let c = cpu.window.ctx_mut();
                c.gpr[RAX] = ret;
                c.gpr[RCX] = next;
                c.gpr[R11] = flags;
                cpu.complete(len);
                self.open = false;
            }
            Event::Regs { mask, ilen, values } => {
                if ilen != 0 && current(cpu)?.map(|i| i.len()) != Some(ilen as usize) {
                    return Err(cpu.difference(
                        format!("an instruction of {ilen} bytes with recorded results"),
                        "another",
                    ));
                }
                let mut s = cpu.registers();
                for (i, v) in values
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| mask & (1 << i) != 0)
                {
                    match i {
                        0..16 => s.gpr[i] = *v,
                        16 => s.rflags = *v,
                        17 => s.fs_base = *v,
                        _ => s.gs_base = *v,
                    }
                }
                cpu.set_registers(&s);
                if ilen != 0 {
                    cpu.complete(ilen as u64);
                }
            }
            Event::RepChunk { .. } => return self.string(),
            // What it does to the registers follows.
            Event::Signal { .. } => {}
            Event::SetState { cpu: regs, vec } => {
                if self.open {
                    cpu.complete(0);
                    self.open = false;
                }
                cpu.set_registers(&CpuState::from_bytes(regs));
                cpu.set_vectors(&VecState::from_bytes(vec));
            }
            Event::Zero { addr, len } => {
                cpu.window.zero(addr, len)?;
                cpu.window.forget(addr, len)?;
            }
            Event::Memory { addr, bytes } => {
                cpu.window.write(addr, bytes);
                cpu.window.given(addr, bytes.len() as u64)?;
            }
            Event::FileOf {
                addr,
                len,
                module,
                offset,
            } => {
                if len > MAX_MOVE {
                    return Err(self.corrupt("a file in memory is too large"));
                }
                let mut done = 0;
                while done < len {
                    let n = (len - done).min(FILE_STEP);
                    let from = offset.saturating_add(done);
                    let part = self.queue.module(module, from, n as usize)?;
                    cpu.window.write(addr.wrapping_add(done), &part);
                    done += n;
                }
                cpu.window.forget(addr, len)?;
            }
            Event::File { path, .. } => {
                let path = String::from_utf8_lossy(path).into_owned();
                return Err(Error::MissingFile {
                    position: cpu.pos,
                    path,
                });
            }
            Event::Move { from, to, len } => {
                if len > MAX_MOVE {
                    return Err(self.corrupt("moved memory is too large"));
                }
                let mut bytes = vec![0; len as usize];
                cpu.window.read(from, &mut bytes);
                cpu.window.zero(from, len)?;
                cpu.window.write(to, &bytes);
                cpu.window.forget(from, len)?;
                cpu.window.forget(to, len)?;
            }
            // Replay executes both alike.
            Event::Regime { .. } => {}
            Event::CodeEpoch { epoch } => cpu.set_epoch(epoch),
            Event::End {
                kind,
                code,
                message,
            } => {
                let message = String::from_utf8_lossy(message).into_owned();
                self.end = Some(End {
                    kind,
                    code,
                    message,
                });
            }
            Event::Patch { .. }
            | Event::PatchBytes { .. }
            | Event::Seq { .. }
            | Event::Code { .. }
            | Event::CodeFrom { .. }
            | Event::CodeOf { .. }
            | Event::Map { .. }
            | Event::Unmap { .. } => {
                return Err(self.corrupt("an event that does not belong to a thread"));
            }
        }
        self.queue.advance();
        Ok(())
    }

    /// Executes the string instruction that the next event belongs to.
    fn string(&mut self) -> Result<(), Error> {
        let mut buf = [0; 15];
        let n = self.cpu.fetch(&mut buf)?;
        let Some(op) = StringOp::decode(&buf[..n]) else {
            return Err(self
                .cpu
                .difference("a string instruction", "another instruction"));
        };
        let before = self.queue.peek().map(|e| e.pos);
        if slow::string(&mut self.cpu, &op, Some(&mut self.queue))? {
            self.cpu.complete(op.len as u64);
            // A mark that it did not come to.
            if self.queue.prepare()?.map(|e| e.pos) == before {
                return Err(self.late());
            }
        }
        Ok(())
    }
}

/// The instruction at the current position.
fn current(cpu: &Cpu) -> Result<Option<iced_x86::Instruction>, Error> {
    let mut buf = [0; 15];
    let n = cpu.fetch(&mut buf)?;
    Ok(slow::decode(&buf[..n], cpu.rip))
}

/// The values of a state's words, in the order of [`NAMES`].
fn words(s: &CpuState) -> [u64; 20] {
    let mut w = [0; 20];
    w[..16].copy_from_slice(&s.gpr);
    w[16..].copy_from_slice(&[s.rip, s.rflags, s.fs_base, s.gs_base]);
    w
}

fn show(s: &CpuState) -> String {
    let list: Vec<_> = words(s)
        .iter()
        .zip(NAMES)
        .map(|(w, n)| format!("{n}={w:x}"))
        .collect();
    list.join(" ")
}

/// Compares the state of the processor with the one that a key frame says.
fn compare(cpu: &Cpu, want: &CpuState, want_vec: &VecState) -> Result<(), Error> {
    let found_vec = &cpu.vectors();
    let (a, b) = (
        words(&want.comparable()),
        words(&cpu.registers().comparable()),
    );
    let differ: Vec<usize> = (0..20).filter(|i| a[*i] != b[*i]).collect();
    if !differ.is_empty() {
        let list = |w: &[u64; 20]| {
            differ
                .iter()
                .map(|i| format!("{}={:x}", NAMES[*i], w[*i]))
                .collect::<Vec<_>>()
                .join(" ")
        };
        return Err(cpu.difference(list(&a), list(&b)));
    }
    if want_vec != found_vec {
        let (want, found) = vector_difference(want_vec, found_vec);
        return Err(cpu.difference(want, found));
    }
    Ok(())
}

/// The first vector, mask or x87 register that differs.
fn vector_difference(want: &VecState, found: &VecState) -> (String, String) {
    let hex = |b: &[u8]| {
        b.iter()
            .rev()
            .map(|b| format!("{b:02x}"))
            .collect::<String>()
    };
    for i in 0..32 {
        if want.zmm[i] != found.zmm[i] {
            return (
                format!("zmm{i}={}", hex(&want.zmm[i])),
                format!("zmm{i}={}", hex(&found.zmm[i])),
            );
        }
    }
    for i in 0..8 {
        if want.k[i] != found.k[i] {
            return (
                format!("k{i}={:x}", want.k[i]),
                format!("k{i}={:x}", found.k[i]),
            );
        }
        if want.st[i] != found.st[i] {
            return (
                format!("st{i}={}", hex(&want.st[i])),
                format!("st{i}={}", hex(&found.st[i])),
            );
        }
    }
    let control = |v: &VecState| {
        format!(
            "mxcsr={:x} fcw={:x} fsw={:x} ftw={:x}",
            v.mxcsr, v.fcw, v.fsw, v.ftw
        )
    };
    (control(want), control(found))
}
