//! The segments of one thread, and the events for which a front end may ask.

mod clobber;
mod given;
mod restated;
mod segments;
mod sources;
mod times;
mod waits;

use crate::Kind;
use crate::{Direction, Ending, Error, Result, ThreadId};
use hindsight_events::event::{EndKind, tag};
use hindsight_events::{Decoder, Event, GapReason};
use hindsight_isa::CpuState;
use hindsight_isa::regs::RSP;
use hindsight_trace::Trace;
use hindsight_trace::meta::Opener;
use std::ops::Range;

pub use clobber::{Clobber, Instant, When};
pub use restated::{Frames, Held, RestatingFrame, Told};
use sources::Sources;
pub use waits::Waited;

/// System calls that create processes and threads: `clone`, `fork`, `vfork`, `clone3`.
pub const FORKS: [u64; 4] = [56, 57, 58, 435];

/// What a stream says apart from the values that were read.
#[derive(Default, Debug)]
pub struct Scan {
    /// Order numbers and their positions, both ascending.
    pub numbers: Vec<(u64, u64)>,
    /// If the beginning of the stream was left out: the last number before the rest.
    pub opener: Option<Opener>,
    /// System calls and signals, with their positions.
    pub events: Vec<(u64, Raw)>,
    /// Where signal handlers begin: position, and address of the handler.
    handlers: Vec<(u64, u64)>,
    /// Where the kernel lets the thread go on elsewhere, at a handler's beginning or after one: position and address.
    entries: Vec<(u64, u64)>,
    /// Positions of string instructions that are interrupted before they are done.
    interrupted: Vec<u64>,
    /// Further events for front ends, with positions: gaps, marks, regimes.
    pub notes: Vec<(u64, Kind)>,
    /// What the kernel said of children, with the index of the call in `events`.
    reports: Vec<(usize, waits::Report)>,
    /// Cells that become zero: position, address, length.
    pub zeros: Vec<(u64, u64, u64)>,
    /// Memory whose content the recording gives: position, address, length.
    pub given: Vec<(u64, u64, u64)>,
    /// Memory that key frames restate: position, address, length. It had that content before.
    pub restated: Vec<(u64, u64, u64)>,
    /// What key frames restate.
    pub frames: Frames,
    /// Memory is being restated.
    restating: bool,
    /// Only what has changed since another key frame is being restated.
    based: bool,
    /// Positions of the key frames that restate only what has changed since another one.
    based_frames: Vec<u64>,
    /// What the kernel wrote in system calls and for signals: instructions completed before, address, length.
    pub written: Vec<(u64, u64, u64)>,
    /// Memory that may no longer be what it was: position, address, length.
    pub changed: Vec<(u64, u64, u64)>,
    /// What made memory what it is, apart from the thread's instructions and the kernel's writes.
    pub sources: Sources,
    /// Changes of memory that others cannot know, in the order of their beginnings.
    raw_clobbers: Vec<RawClobber>,
    /// The stack pointer at the beginning of what the recording has of the thread.
    pub stack: Option<u64>,
    /// How many of `numbers` came before the last system call.
    call: usize,
    /// The position of the last string instruction of which the stream says something.
    string: Option<u64>,
    /// Whether the recording says what memory held at the beginning.
    pub told: bool,
    /// Whether this is the first thread of a program at its first instruction. `false` for a process that ran before it
    /// was recorded.
    pub fresh: bool,
    /// Up to here, only instructions, `sources` and `given` change memory. 0: never.
    pub quiet_until: u64,
    /// Where the thread ran unrecorded, ascending. What was known before need not hold after it.
    pub gaps: Vec<Range<u64>>,
    /// When stretches of the thread happened, ascending.
    pub times: Vec<TimeSpan>,
    /// The first and the last position.
    pub from: u64,
    pub to: u64,
    pub ending: Option<Ending>,
}

/// A stretch of a thread, from its first to its last event. It happened between two times, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeSpan {
    pub first: u64,
    pub last: u64,
    pub since: u64,
    pub until: u64,
}

/// A [`Clobber`], with the numbers around it as indices into the list.
#[derive(Clone, Copy, Debug)]
struct RawClobber {
    from: u64,
    endless: bool,
    first: usize,
    next: usize,
    address: u64,
    len: u64,
}

/// What made a stretch of memory what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Position.
    pub at: u64,
    pub address: u64,
    pub len: u64,
    pub origin: Origin,
}

/// Where memory came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// It is empty: fresh, or no longer there.
    Zero,
    /// A module, by number, from this offset on. After its end come zeros.
    File { module: u32, offset: u64 },
    /// The memory that was at this address.
    Moved(u64),
    /// What the mapping there says.
    Mapped,
    /// The mapping there gives it again: the program has discarded what it held (`MADV_DONTNEED`).
    Discarded,
    /// Nobody knows.
    Unknown,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub enum Raw {
    Syscall {
        number: u64,
        args: [u64; 6],
        result: Option<u64>,
    },
    Signal {
        number: u8,
        code: i32,
        address: u64,
    },
}

/// Whether the kernel goes on writing into the program's memory after this system call: `io_submit`, `io_uring_setup`,
/// `io_uring_enter`.
fn works_on(number: u64) -> bool {
    matches!(number, 209 | 425 | 426)
}

/// Memory that is not available. It notes whether somebody asked for it.
struct Unseen<'a>(&'a std::cell::Cell<bool>);

impl hindsight_syscalls::Memory for Unseen<'_> {
    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        self.0.set(true);
        false
    }
}

impl Scan {
    /// Reads all events of a thread.
    pub fn read(trace: &Trace, thread: ThreadId) -> Result<Scan> {
        let chunks = trace.chunks(thread.0);
        let mut scan = Scan {
            from: chunks.first().map_or(0, |c| c.first_pos),
            to: chunks.last().map_or(0, |c| c.last_pos),
            ..Scan::default()
        };
        let info = trace.stream_info(thread.0);
        scan.opener = info.and_then(|i| i.dropped?.opener);
        let mut first = None;
        for (number, c) in chunks.iter().enumerate() {
            scan.chunk(number, &trace.load_outline(c)?, c.offset, &mut first)?;
        }
        let first = scan.numbers.first().copied();
        let before = |o: &Opener| o.at <= scan.from && first.is_none_or(|n| o.number < n.0);
        scan.opener = scan.opener.filter(before);
        scan.open_call();
        Ok(scan)
    }

    /// Reads the chunk of this number. `first` is the first position for which the time is not yet known.
    fn chunk(
        &mut self,
        number: usize,
        wire: &[u8],
        offset: u64,
        first: &mut Option<u64>,
    ) -> Result<()> {
        let mut decoder = Decoder::default();
        let mut at = 0;
        // The memory that the event before gave.
        let mut last = None;
        while at < wire.len() {
            let Some((pos, event, n)) = decoder.decode(&wire[at..]) else {
                return Err(Error::Trace(hindsight_trace::Error::Damaged {
                    offset,
                    what: "an event does not decode",
                }));
            };
            let t = wire[at];
            at += n;
            if let Event::Time { since, until } = event {
                self.time(first.take().unwrap_or(pos), pos, since, until);
                continue;
            }
            first.get_or_insert(pos);
            if matches!(t, tag::PATCH | tag::PATCH_BYTES | tag::LINES) {
                continue;
            }
            let frame = last.take();
            if self.restates(pos, number, &event) {
                continue;
            }
            match event {
                Event::Seq { number } => self.numbers.push((number, pos)),
                Event::Syscall { nr, args } => self.begin_call(pos, nr, args),
                Event::SyscallRet { ret } => {
                    if let Some((p, Raw::Syscall { result, .. })) = self.events.last_mut()
                        && *p == pos
                    {
                        *result = Some(ret);
                    }
                }
                Event::Signal { signo, code, addr } => {
                    self.frame_of(pos, frame);
                    let (number, address) = (signo, addr);
                    let signal = Raw::Signal {
                        number,
                        code,
                        address,
                    };
                    self.events.push((pos, signal));
                }
                Event::SetState { cpu, .. } => self.set_state(pos, CpuState::from_bytes(cpu).rip),
                Event::KeyFrame { cpu, .. } => self.key_frame(pos, &CpuState::from_bytes(cpu)),
                Event::RepChunk { .. } => self.string = Some(pos),
                Event::GapBegin { reason } => self.begin_gap(pos, reason),
                Event::GapEnd { .. } => self.end_gap(pos),
                Event::Mark { name, bytes } => {
                    self.mark(pos, bytes.split_at(name.min(bytes.len())))
                }
                Event::Regime { quiet, reason } => self.regime(pos, quiet, reason),
                Event::Zero { addr, len } => self.zero(pos, addr, len),
                Event::Changed { addr, len } => {
                    self.changed.push((pos, addr, len));
                    self.source(pos, addr, len, self.changed_by(pos, addr, len));
                }
                Event::Memory { addr, bytes } => {
                    self.report(pos, addr, bytes);
                    self.write(pos, addr, bytes.len() as u64);
                    last = Some((addr, bytes.len() as u64));
                }
                Event::FileOf {
                    addr,
                    len,
                    module,
                    offset,
                } => {
                    self.write(pos, addr, len);
                    self.source(pos, addr, len, Origin::File { module, offset });
                }
                Event::Move { from, to, len } => {
                    self.zeros.push((pos, from, len));
                    self.write(pos, to, len);
                    self.source(pos, from, len, Origin::Zero);
                    self.source(pos, to, len, Origin::Moved(from));
                }
                Event::End {
                    kind,
                    code,
                    message,
                } => self.ending = Some(ending(kind, code, message)),
                _ => {}
            }
        }
        Ok(())
    }

    fn begin_call(&mut self, pos: u64, number: u64, args: [u64; 6]) {
        self.call = self.numbers.len();
        if works_on(number) {
            self.clobber(pos, true, 0, u64::MAX);
        }
        let result = None;
        let call = Raw::Syscall {
            number,
            args,
            result,
        };
        self.events.push((pos, call));
    }

    fn zero(&mut self, pos: u64, addr: u64, len: u64) {
        self.zeros.push((pos, addr, len));
        let origin = match self.quiet_until {
            u64::MAX => Origin::Zero,
            _ => self.fresh(pos),
        };
        self.source(pos, addr, len, origin);
    }

    fn key_frame(&mut self, pos: u64, cpu: &CpuState) {
        self.frames.key_frame();
        if self.stack.is_some() {
            return;
        }
        self.stack = Some(cpu.gpr[RSP]);
        // The kernel starts a program with empty registers. A process that already runs has something in one of them: even
        // right after a system call, rcx holds the address of the next instruction.
        let empty = |(i, value): (usize, &u64)| i == RSP || *value == 0;
        self.fresh = pos == 0 && cpu.gpr.iter().enumerate().all(empty);
    }

    /// All registers have changed; the thread goes on at `rip`.
    fn set_state(&mut self, pos: u64, rip: u64) {
        self.entries.push((pos, rip));
        if self.string == Some(pos) && self.interrupted.last() != Some(&pos) {
            self.interrupted.push(pos);
        }
        if let Some((p, Raw::Signal { .. })) = self.events.last()
            && *p == pos
        {
            self.handlers.push((pos, rip));
        }
    }

    fn begin_gap(&mut self, pos: u64, reason: GapReason) {
        // A second event within a gap only says more about the same gap.
        if self.gaps.last().is_none_or(|g| g.end <= pos) {
            self.gaps.push(pos..u64::MAX);
            self.clobber(pos, false, 0, u64::MAX);
            self.last_clobber_goes_on();
        }
        self.notes.push((pos, Kind::GapBegin { reason }));
    }

    fn end_gap(&mut self, pos: u64) {
        if let Some(g) = self.gaps.last_mut() {
            g.end = pos;
        }
        self.gap_ends();
        self.notes.push((pos, Kind::GapEnd));
    }

    fn mark(&mut self, pos: u64, (name, payload): (&[u8], &[u8])) {
        let kind = Kind::Mark {
            name: String::from_utf8_lossy(name).into_owned(),
            payload: payload.to_vec(),
        };
        self.notes.push((pos, kind));
    }

    fn regime(&mut self, pos: u64, quiet: bool, reason: &[u8]) {
        if !quiet && self.quiet_until == u64::MAX {
            self.untold(pos);
        }
        // It begins once.
        let ended = self.told && self.quiet_until != u64::MAX;
        self.told |= quiet;
        // It ends where it begins if not all could be told.
        let begins =
            |n: &(u64, Kind)| n.0 == pos && matches!(n.1, Kind::Regime { quiet: true, .. });
        self.told &= quiet || !self.notes.iter().any(begins);
        self.quiet_until = match quiet {
            true if ended => self.quiet_until,
            true => u64::MAX,
            false => pos,
        };
        let reason = String::from_utf8_lossy(reason).into_owned();
        self.notes.push((pos, Kind::Regime { quiet, reason }));
    }

    /// Adds a time. Times stay ascending, whatever a trace says.
    fn time(&mut self, first: u64, last: u64, since: u64, until: u64) {
        let before = self.times.last().map_or(0, |s| s.until);
        let since = since.max(before);
        self.times.push(TimeSpan {
            first,
            last,
            since,
            until: until.max(since),
        });
    }

    /// Whether a signal comes at a position whose handler is this function.
    pub fn handles(&self, pos: u64, function: u64) -> bool {
        let from = self.handlers.partition_point(|h| h.0 < pos);
        let here = self.handlers[from..].iter();
        here.take_while(|h| h.0 == pos).any(|h| h.1 == function)
    }

    /// The addresses at which the kernel lets the thread go on, at a position, before its next instruction.
    pub fn entries(&self, pos: u64) -> impl Iterator<Item = u64> + '_ {
        let from = self.entries.partition_point(|e| e.0 < pos);
        let here = self.entries[from..].iter();
        here.take_while(move |e| e.0 == pos).map(|e| e.1)
    }

    /// Whether the string instruction at a position is interrupted before it is done. The kernel then lets the thread
    /// go on elsewhere.
    pub fn interrupts(&self, pos: u64) -> bool {
        self.interrupted.binary_search(&pos).is_ok()
    }

    /// The first position, `pos` or behind it, at which the thread does something else than the instruction that follows: the kernel
    /// lets it go on elsewhere, a string instruction is interrupted, or a gap begins.
    pub fn next_turn(&self, pos: u64) -> u64 {
        let entry = self
            .entries
            .get(self.entries.partition_point(|e| e.0 < pos));
        let interrupted = self
            .interrupted
            .get(self.interrupted.partition_point(|p| *p < pos));
        let gap = self.gaps.get(self.gaps.partition_point(|g| g.start < pos));
        let all = [
            entry.map(|e| e.0),
            interrupted.copied(),
            gap.map(|g| g.start),
        ];
        all.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// A signal is delivered. `frame` is the memory that was given just before. It is the signal's frame if it looks
    /// like one (`struct rt_sigframe`) and is no output of the system call before.
    fn frame_of(&mut self, pos: u64, frame: Option<(u64, u64)>) {
        const LEAST: u64 = 440;
        let Some((addr, len)) = frame.filter(|f| f.1 >= LEAST && f.0 % 16 == 8) else {
            return;
        };
        if let Some(w) = self.written.last()
            && (w.1, w.2) == (addr, len)
            && w.0 + 1 == pos
        {
            self.written.pop();
        }
        if self.written.last() != Some(&(pos, addr, len)) {
            self.written.push((pos, addr, len));
        }
    }

    /// Notes that something else may have changed memory: in the present system call, in the one that has just ended,
    /// or here.
    fn clobber(&mut self, pos: u64, endless: bool, address: u64, len: u64) {
        let in_call = match self.events.last() {
            Some((p, Raw::Syscall { .. })) if *p == pos || p + 1 == pos => Some(*p),
            _ => None,
        };
        self.raw_clobbers.push(RawClobber {
            from: in_call.unwrap_or(pos),
            endless,
            first: match in_call {
                Some(_) => self.call,
                None => self.numbers.len(),
            },
            next: match endless {
                true => usize::MAX,
                false => self.numbers.len(),
            },
            address,
            len,
        });
    }

    fn last_clobber_goes_on(&mut self) {
        if let Some(d) = self.raw_clobbers.last_mut() {
            d.next = usize::MAX;
        }
    }

    fn gap_ends(&mut self) {
        let next = self.numbers.len();
        let gap = |d: &&mut RawClobber| d.next == usize::MAX && !d.endless;
        if let Some(d) = self.raw_clobbers.iter_mut().rev().find(gap) {
            d.next = next;
        }
    }

    /// A system call that never returned may have written its outputs.
    fn open_call(&mut self) {
        let Some((
            pos,
            Raw::Syscall {
                number,
                args,
                result: None,
            },
        )) = self.events.last().copied()
        else {
            return;
        };
        if pos != self.to || self.quiet_until == u64::MAX {
            return;
        }
        let asked = std::cell::Cell::new(false);
        let mut ranges = Vec::new();
        let most = args[2].min(i64::MAX as u64) as i64;
        let class =
            hindsight_syscalls::outputs(number as u32, &args, most, &Unseen(&asked), &mut |r| {
                ranges.push((r.addr, r.len))
            });
        if class == hindsight_syscalls::Class::Unknown || asked.get() {
            ranges = vec![(0, u64::MAX)];
        }
        for (address, len) in ranges {
            self.clobber(pos, false, address, len);
            self.last_clobber_goes_on();
        }
    }

    /// Changes of memory that others cannot know.
    pub fn clobbers(&self, thread: ThreadId) -> impl Iterator<Item = Clobber> + '_ {
        self.raw_clobbers.iter().map(move |d| Clobber {
            thread,
            from: d.from,
            endless: d.endless,
            opens: (d.first.checked_sub(1)).map_or(0, |i| self.numbers[i].0),
            closes: self.numbers.get(d.next).map(|n| n.0),
            address: d.address,
            len: d.len,
        })
    }

    /// Whether the thread makes a system call when it has completed `count` instructions.
    pub fn calls(&self, count: u64) -> bool {
        let from = self.events.partition_point(|e| e.0 < count);
        let here = self.events[from..].iter().take_while(|e| e.0 == count);
        here.into_iter().any(|e| matches!(e.1, Raw::Syscall { .. }))
    }

    /// For each byte, what made it what it was: the last source before `count` instructions were completed.
    pub fn sources_of(&self, address: u64, len: usize, count: u64) -> Vec<Option<Source>> {
        self.sources.of(address, len, count)
    }

    /// Whether a key frame at this position restates only what has changed since another one. Where the quiet regime
    /// ends, another key frame may stand behind it.
    pub fn is_based(&self, at: u64) -> bool {
        self.based_frames.binary_search(&at).is_ok()
    }

    /// Where something else than the thread's instructions changed memory, or may have, between two positions. The
    /// answer has addresses and lengths.
    pub fn changed(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let within = |z: &&(u64, u64, u64)| from <= z.0 && z.0 < to;
        let said = self.zeros.iter().chain(&self.given).chain(&self.changed);
        let said = said.filter(within);
        let gap = self.gaps.iter().any(|g| g.start < to && from < g.end);
        said.map(|z| (z.1, z.2))
            .chain(gap.then_some((0, u64::MAX)))
            .collect()
    }

    /// `count`, unless the thread runs unrecorded there. Then it is the end or the beginning of that gap.
    pub fn outside_gap(&self, count: u64, direction: Direction) -> u64 {
        let i = self.gaps.partition_point(|g| g.end <= count);
        match (self.gaps.get(i).filter(|g| g.start < count), direction) {
            (Some(g), Direction::Forward) => g.end.min(self.to),
            (Some(g), Direction::Backward) => g.start,
            (None, _) => count,
        }
    }
}

/// How a thread ended, by its last event.
fn ending(kind: EndKind, code: u32, message: &[u8]) -> Ending {
    match kind {
        EndKind::Exit => Ending::Exit(code),
        EndKind::Signal => Ending::Signal(code),
        EndKind::Exec => Ending::Exec,
        EndKind::Detached => Ending::Detached,
        EndKind::Unsupported => Ending::Unsupported(String::from_utf8_lossy(message).into_owned()),
    }
}
