//! Replays one thread, and logs its atomic operations and its stores to watched words.

use hindsight_events::event::tag;
use hindsight_events::{Decoder, Event};
use hindsight_isa::string::StringOp;
use hindsight_isa::{Predictor, VecState};
use hindsight_replay::access::{Access, Finder, decode};
use hindsight_replay::{Choice, Code, Error, Machine, Model, Stop};
use hindsight_trace::{ChunkMeta, StreamId, Trace};
use hindsight_translate::{WATCH_TABLE, is_atomic, watch_indices};
use iced_x86::Mnemonic;
use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

/// What one atomic operation did to the bytes of one 8-byte word.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Its order number. An operation without one has the number of the segment in which it stands.
    pub number: u64,
    /// The thread's next order number.
    pub next: u64,
    pub stream: StreamId,
    pub pos: u64,
    pub pc: u64,
    /// Address of the word.
    pub word: u64,
    /// A bit for each byte of the word that it accessed.
    pub mask: u8,
    /// The word before the operation. Bytes that are not in `mask` are zero.
    pub before: u64,
    /// The word after the operation.
    pub after: u64,
}

/// A plain store to bytes of one word.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    pub stream: StreamId,
    pub pos: u64,
    /// The order numbers between which it took place.
    pub open: u64,
    pub close: u64,
    pub word: u64,
    pub mask: u8,
    /// The bytes after the store. `None`: they may be anything.
    pub value: Option<u64>,
}

/// Something that may have changed memory to unknown values.
#[derive(Clone, Debug)]
pub struct Unknown {
    pub open: u64,
    pub close: u64,
    /// The memory that it may have changed. `None`: any memory.
    pub ranges: Option<Vec<Range<u64>>>,
}

impl Unknown {
    /// Whether it may have changed one of `words`, which are sorted.
    pub fn touches(&self, words: &[u64]) -> bool {
        self.ranges.as_ref().is_none_or(|list| {
            list.iter().any(|r| {
                let i = words.partition_point(|w| w.saturating_add(7) < r.start);
                words.get(i).is_some_and(|w| *w < r.end)
            })
        })
    }
}

/// The log of one thread's replay.
#[derive(Default)]
pub struct Log {
    pub ops: Vec<Op>,
    pub stores: Vec<Store>,
    /// System calls that may have written memory, and signals.
    pub kernel: Vec<Unknown>,
    /// Stretches that were not recorded. If the thread was killed, this includes the time after its end.
    pub missing: Vec<Unknown>,
}

impl Log {
    /// Appends another log.
    pub fn append(&mut self, mut other: Log) {
        self.ops.append(&mut other.ops);
        self.stores.append(&mut other.stores);
        self.kernel.append(&mut other.kernel);
        self.missing.append(&mut other.missing);
    }
}

/// The table of watched words.
pub struct Table {
    at: *mut u8,
    pub words: HashSet<u64>,
}

// SAFETY: the table is written only in `new`.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    pub fn new(words: HashSet<u64>) -> std::io::Result<Table> {
        // SAFETY: new memory, whose pages are allocated when they are accessed.
        let at = unsafe {
            libc::mmap(
                null_mut(),
                WATCH_TABLE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let at = at.cast::<u8>();
        for w in &words {
            for index in watch_indices(*w) {
                // SAFETY: the index lies within the table.
                unsafe { at.add(index).write(1) }
            }
        }
        Ok(Table { at, words })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no machine uses it any more.
        unsafe {
            libc::munmap(self.at.cast(), WATCH_TABLE as usize);
        }
    }
}

/// The order numbers of a stream, and the kernel's writes. They are read beside the replay.
struct Numbers<'a> {
    trace: &'a Trace,
    chunks: std::slice::Iter<'a, ChunkMeta>,
    /// Positions and order numbers of the current chunk.
    list: Vec<(u64, u64)>,
    at: usize,
    /// The last order number that was passed.
    last: u64,
    /// System calls that may have written memory, and signals: their position and the memory.
    calls: Vec<(u64, Written)>,
    /// A call that has not returned yet.
    call: Option<(u64, u64, [u64; 6])>,
    gaps: Vec<(u64, bool)>,
    ended: bool,
}

impl<'a> Numbers<'a> {
    fn new(trace: &'a Trace, stream: StreamId) -> Numbers<'a> {
        Numbers {
            trace,
            chunks: trace.chunks(stream).iter(),
            list: Vec::new(),
            at: 0,
            last: 0,
            calls: Vec::new(),
            call: None,
            gaps: Vec::new(),
            ended: false,
        }
    }

    /// The next position and order number, without passing it.
    fn peek(&mut self) -> Result<Option<(u64, u64)>, Error> {
        while self.at >= self.list.len() {
            let Some(c) = self.chunks.next() else {
                self.returned(None);
                return Ok(None);
            };
            self.list.clear();
            self.at = 0;
            let wire = self.trace.load(c)?;
            let (mut decoder, mut at) = (Decoder::default(), 0);
            while let Some(t) = wire.get(at) {
                let Some((pos, event, n)) = decoder.decode(&wire[at..]) else {
                    return Err(Error::Corrupt {
                        position: c.first_pos,
                        what: "an event does not decode",
                    });
                };
                at += n;
                if matches!(*t, tag::PATCH | tag::LINES) {
                    continue;
                }
                match event {
                    Event::Seq { number } => self.list.push((pos, number)),
                    Event::Syscall { nr, args } => {
                        self.returned(None);
                        self.call = Some((pos, nr, args));
                    }
                    Event::SyscallRet { ret } => self.returned(Some(ret)),
                    Event::Signal { .. } => self.calls.push((pos, None)),
                    Event::GapBegin { .. } => self.gaps.push((pos, true)),
                    Event::GapEnd { .. } => self.gaps.push((pos, false)),
                    Event::End { .. } => self.ended = true,
                    _ => {}
                }
            }
        }
        Ok(self.list.get(self.at).copied())
    }

    /// Ends the current call. `ret` is its result, or `None` if the recording does not have it.
    fn returned(&mut self, ret: Option<u64>) {
        if let Some((pos, nr, args)) = self.call.take() {
            if nr == EXIT_GROUP {
                // The kernel changes only locks of dead threads here: see `judge::released`.
                return;
            }
            let written = ret.and_then(|ret| written(nr, &args, ret));
            if written.as_ref().is_none_or(|w| !w.is_empty()) {
                self.calls.push((pos, written));
            }
        }
    }

    /// Passes all order numbers before position `pos`, and with `with` also those at `pos`. Returns the last
    /// one passed and the one that follows.
    fn pass(&mut self, pos: u64, with: bool) -> Result<(u64, u64), Error> {
        while let Some((p, number)) = self.peek()? {
            if p > pos || p == pos && !with {
                return Ok((self.last, number));
            }
            self.last = number;
            self.at += 1;
        }
        Ok((self.last, u64::MAX))
    }
}

const EXIT_GROUP: u64 = 231;

/// Memory that something may have written. `None`: any memory.
type Written = Option<Vec<Range<u64>>>;

/// The memory that a system call may have written, by its number, arguments and result.
fn written(nr: u64, args: &[u64; 6], ret: u64) -> Written {
    /// Stands for the program's memory, which is not known here. Remembers whether it was asked for.
    struct Nothing(Cell<bool>);
    impl hindsight_syscalls::Memory for Nothing {
        fn read(&self, _: u64, _: &mut [u8]) -> bool {
            self.0.set(true);
            false
        }
    }
    let memory = Nothing(Cell::new(false));
    let mut out = Vec::new();
    let mut push = |r: hindsight_syscalls::Range| out.push(r.addr..r.addr.saturating_add(r.len));
    let class = hindsight_syscalls::outputs(nr as u32, args, ret as i64, &memory, &mut push);
    let known = class == hindsight_syscalls::Class::Known && !memory.0.get();
    known.then_some(out)
}

/// Number of order events in a stream.
pub fn count(trace: &Trace, stream: StreamId) -> Result<u64, Error> {
    let mut numbers = Numbers::new(trace, stream);
    let mut n = 0;
    while numbers.peek()?.is_some() {
        n += (numbers.list.len() - numbers.at) as u64;
        numbers.at = numbers.list.len();
    }
    Ok(n)
}

/// Logs the stretches in which the kernel or unrecorded code of a stream may have changed memory.
pub fn unknown(trace: &Trace, stream: StreamId, log: &mut Log) -> Result<(), Error> {
    let mut all = Vec::new();
    let mut numbers = Numbers::new(trace, stream);
    while let Some(n) = numbers.peek()? {
        all.push(n);
        numbers.at += 1;
    }
    let before = |pos: u64| {
        let i = all.partition_point(|(p, _)| *p < pos);
        i.checked_sub(1).map_or(0, |i| all[i].1)
    };
    let behind = |pos: u64| {
        let i = all.partition_point(|(p, _)| *p <= pos);
        all.get(i).map_or(u64::MAX, |n| n.1)
    };
    log.kernel
        .extend(numbers.calls.into_iter().map(|(p, ranges)| Unknown {
            open: before(p),
            close: behind(p),
            ranges,
        }));
    let mut from = None;
    for (pos, begins) in &numbers.gaps {
        if *begins {
            from.get_or_insert(*pos);
        } else if let Some(from) = from.take() {
            log.missing.push(Unknown {
                open: before(from),
                close: behind(*pos),
                ranges: None,
            });
        }
    }
    if let Some(pos) = from {
        log.missing.push(Unknown {
            open: before(pos),
            close: u64::MAX,
            ranges: None,
        });
    }
    if !numbers.ended {
        log.missing.push(Unknown {
            open: all.last().map_or(0, |n| n.1),
            close: u64::MAX,
            ranges: None,
        });
    }
    Ok(())
}

/// Says whether atomic operations on a word matter, given the word and two order numbers: the operation's and
/// the thread's next one.
pub type OpFilter<'a> = dyn Fn(u64, (u64, u64)) -> bool + Sync + 'a;

/// Replays `stream`. Logs atomic operations on words for which `wanted` is true. With a table, also logs all
/// plain stores to its words.
pub fn play(
    trace: &Trace,
    stream: StreamId,
    code: Arc<Code>,
    table: Option<&Table>,
    wanted: &OpFilter,
    log: &mut Log,
) -> Result<(), Error> {
    let bits = trace.header().predictor_bits;
    let model = Model::of(Choice::default(), trace.header());
    let mut machine = Machine::with(model.clone(), code, Predictor { bits })?;
    machine.watch(table.map(|t| t.at as u64));
    let mut numbers = Numbers::new(trace, stream);
    let mut finder = Finder::new(model.saves);
    let none = VecState::default();
    let (mut accesses, mut old) = (Vec::new(), Vec::new());
    machine.from_keyframe(hindsight_replay::stream(trace, stream))?;
    while machine.run_to(u64::MAX)? == Stop::Break {
        let (rip, pos) = (machine.registers().rip, machine.position());
        machine.settle()?;
        let cpu = machine.registers();
        if cpu.rip != rip || machine.position() != pos || machine.in_gap() {
            continue;
        }
        let mut bytes = [0; 15];
        let n = machine.code(rip, &mut bytes);
        let Some(i) = decode(&bytes[..n], rip) else {
            continue;
        };
        let atomic = is_atomic(&i);
        let string = StringOp::decode(&bytes[..n]).is_some();
        // The address of an atomic operation does not depend on vector registers.
        let vec = match atomic {
            true => None,
            false => Some(machine.vectors()),
        };
        let vec = vec.as_ref().unwrap_or(&none);
        if !string {
            finder.find(&bytes[..n], (&cpu, vec), &cpu, &mut accesses);
            parts(&machine, &accesses, &mut old);
        }
        // If something interrupted a string instruction, its work before that is all that it did here.
        if !(string && machine.begin_string()?) && machine.run_to(pos + 1)? != Stop::Position {
            continue;
        }
        if string {
            let after = machine.registers();
            finder.find(&bytes[..n], (&cpu, vec), &after, &mut accesses);
        }
        let mut new = Vec::new();
        parts(&machine, &accesses, &mut new);
        if atomic {
            let (number, next) = numbers.pass(pos, true)?;
            for ((word, mask, before), (.., after)) in old.iter().zip(&new) {
                if wanted(*word, (number, next)) {
                    log.ops.push(Op {
                        number,
                        next,
                        stream,
                        pos,
                        pc: rip,
                        word: *word,
                        mask: *mask,
                        before: *before,
                        after: *after,
                    });
                }
            }
        } else if let Some(table) = table {
            let (open, close) = numbers.pass(pos, true)?;
            use Mnemonic::*;
            let blind = matches!(
                i.mnemonic(),
                Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Fxsave | Fxsave64
            );
            let watched = new.iter().filter(|(word, ..)| table.words.contains(word));
            log.stores.extend(watched.map(|(word, mask, value)| Store {
                stream,
                pos,
                open,
                close,
                word: *word,
                mask: *mask,
                value: (!blind).then_some(*value),
            }));
        }
    }
    Ok(())
}

/// The words that the accesses write, with their content in the window.
fn parts(machine: &Machine, accesses: &[Access], out: &mut Vec<(u64, u8, u64)>) {
    out.clear();
    for a in accesses.iter().filter(|a| a.write) {
        // A string instruction may process much memory. Nobody shares that much.
        let end = a.address.saturating_add(a.len.min(1 << 24));
        let mut at = a.address;
        while at < end {
            let word = at & !7;
            let n = (word + 8).min(end) - at;
            let mut b = [0; 8];
            let from = (at - word) as usize;
            machine.read_window(at, &mut b[from..from + n as usize]);
            let mask = ((1u16 << n) - 1) << from;
            out.push((word, mask as u8, u64::from_le_bytes(b)));
            at += n;
        }
    }
}
