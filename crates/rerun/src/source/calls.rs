//! The system calls of a thread, one after the other, with the bytes that they took in and gave out.
//!
//! What calls took in stands in the stream, where the recording is quiet. All else is looked up in the recorded memory.

mod around;

use super::Error;
use super::clocks::Counter;
use crate::wire::{Call, LARGEST, Signal};
use around::Around;
use hindsight_events::{Decoder, Event};
use hindsight_timeline::{Cursor, Kind, ThreadId, Timeline};
use libc::*;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};

/// A call as the stream has it.
#[derive(Debug, Default)]
pub struct RawCall {
    pub count: u64,
    /// Its place in the order of all threads, and that of what its thread did first behind the call before.
    pub order: u64,
    from: u64,
    number: u64,
    args: [u64; 6],
    result: Option<u64>,
    memory: Vec<(u64, Vec<u8>)>,
    signals: Vec<Signal>,
}

/// What comes next.
pub enum Next {
    Call(RawCall),
    /// The processor's counter was read.
    Counter(Counter),
}

impl Next {
    /// Its place in the order of all threads.
    pub fn order(&self) -> u64 {
        match self {
            Next::Call(c) => c.order,
            Next::Counter(c) => c.order,
        }
    }
}

/// Results from here on are errors.
const ERRORS: u64 = -4095i64 as u64;

/// Registers that change where the counter is read: rax and rdx, and perhaps rcx; and the lengths of the instructions.
const COUNTER: [(u32, u8); 2] = [(0b101, 2), (0b111, 3)];

/// Reads the calls of a thread.
pub struct Calls {
    thread: ThreadId,
    /// The next chunk.
    chunk: usize,
    ready: VecDeque<Next>,
    open: Option<RawCall>,
    /// Signals that interrupted a call, which is made again.
    carried: Vec<Signal>,
    /// The call that was interrupted. If it is not made again, the process has ended in it.
    interrupted: Option<RawCall>,
    restating: bool,
    /// The last place in the order of all threads that the stream has told.
    order: u64,
    /// The first one behind the call before.
    first: Option<u64>,
    /// Numbers of the calls that opened files that were mapped as code.
    libraries: Option<HashSet<u64>>,
}

impl Calls {
    pub fn new(thread: ThreadId) -> Calls {
        Calls {
            thread,
            chunk: 0,
            ready: VecDeque::new(),
            open: None,
            carried: Vec::new(),
            interrupted: None,
            restating: false,
            order: 0,
            first: None,
            libraries: None,
        }
    }

    /// How many there are, and the number of the last one. Nothing is left to read then.
    pub fn count(mut self, timeline: &Timeline) -> Result<(u64, Option<u64>), Error> {
        let (mut n, mut last) = (0, None);
        while let Some(next) = self.advance(timeline)? {
            if let Next::Call(c) = next {
                n += 1;
                last = Some(c.number);
            }
        }
        Ok((n, last))
    }

    pub fn next(&mut self, timeline: &Timeline) -> Result<Option<Next>, Error> {
        if self.libraries.is_none() {
            self.libraries = Some(libraries(timeline, self.thread)?);
        }
        self.advance(timeline)
    }

    fn advance(&mut self, timeline: &Timeline) -> Result<Option<Next>, Error> {
        loop {
            if let Some(call) = self.ready.pop_front() {
                return Ok(Some(call));
            }
            let trace = timeline.trace();
            let Some(chunk) = trace.chunks(self.thread.0).get(self.chunk) else {
                let last = self.open.take().or(self.interrupted.take());
                return Ok(last.map(Next::Call));
            };
            self.chunk += 1;
            self.read(&trace.load(chunk)?, chunk.offset)?;
        }
    }

    fn read(&mut self, wire: &[u8], offset: u64) -> Result<(), Error> {
        let mut decoder = Decoder::default();
        let mut at = 0;
        // The last event gave memory to the call that is open.
        let mut gave = false;
        while at < wire.len() {
            let Some((pos, event, n)) = decoder.decode(&wire[at..]) else {
                return Err(Error::Trace(hindsight_trace::Error::Damaged {
                    offset,
                    what: "an event does not decode",
                }));
            };
            at += n;
            if let Event::Restate { ends, .. } = event {
                self.restating = !ends;
                continue;
            }
            if self.restating {
                continue;
            }
            let before = std::mem::replace(&mut gave, false);
            match event {
                Event::Syscall { nr, args } => {
                    self.close();
                    self.interrupted = None;
                    self.open = Some(RawCall {
                        count: pos,
                        order: self.order,
                        from: self.first.take().unwrap_or(self.order),
                        number: nr,
                        args,
                        signals: std::mem::take(&mut self.carried),
                        ..RawCall::default()
                    });
                }
                Event::Seq { number } => {
                    self.order = number;
                    // It belongs to the open call, or to what follows.
                    if self.open.as_ref().is_none_or(|c| c.count != pos) {
                        self.first.get_or_insert(number);
                    }
                }
                Event::SyscallRet { ret } => {
                    if let Some(c) = self.open.as_mut().filter(|c| c.count == pos) {
                        c.result = Some(ret);
                    }
                }
                Event::Memory { addr, bytes } => {
                    let here = |c: &&mut RawCall| pos.checked_sub(c.count).is_some_and(|n| n <= 1);
                    if let Some(c) = self.open.as_mut().filter(here) {
                        c.memory.push((addr, bytes.to_vec()));
                        gave = true;
                    }
                }
                Event::Regs { mask, ilen, .. } if COUNTER.contains(&(mask, ilen)) => {
                    self.close();
                    let from = self.first.take().unwrap_or(self.order);
                    self.ready.push_back(Next::Counter(Counter {
                        count: pos,
                        order: self.order,
                        from,
                    }));
                }
                Event::Signal { signo, code, addr } => {
                    self.signal(pos, (signo, code, addr), before)
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        self.ready.extend(self.open.take().map(Next::Call));
    }

    fn signal(&mut self, pos: u64, (number, code, address): (u8, i32, u64), framed: bool) {
        let kind = Kind::Signal {
            number,
            code,
            address,
        };
        let Some(call) = &mut self.open else {
            // It came after the counter was read.
            if !kind.is_exception() {
                let signal = Signal {
                    number: number as i32,
                    code,
                    during: false,
                };
                let last = self.ready.iter_mut().rev().find_map(|n| match n {
                    Next::Call(c) => Some(c),
                    Next::Counter(_) => None,
                });
                match last {
                    Some(call) => call.signals.push(signal),
                    None => self.carried.push(signal),
                }
            }
            return;
        };
        if framed {
            // What stands before the event is the frame.
            call.memory.pop();
        }
        if kind.is_exception() {
            return;
        }
        let interrupted = call.result.is_none() && call.count == pos;
        let failed =
            call.result == Some(-EINTR as i64 as u64) && pos <= call.count.saturating_add(1);
        let signal = Signal {
            number: number as i32,
            code,
            during: interrupted || failed,
        };
        if interrupted {
            // The call is made again.
            self.carried = std::mem::take(&mut call.signals);
            self.carried.push(signal);
            self.interrupted = self.open.take();
        } else {
            call.signals.push(signal);
        }
    }

    /// A call with everything that belongs to it.
    pub fn whole(&self, cursor: &mut Cursor, raw: RawCall) -> Result<Call, Error> {
        let libraries = self.libraries.as_ref();
        let mut call = Call {
            order: raw.order,
            from: raw.from,
            count: raw.count,
            number: raw.number,
            args: raw.args,
            result: raw.result,
            library: libraries.is_some_and(|l| l.contains(&raw.count)),
            signals: raw.signals,
            ..Call::default()
        };
        let around = Around {
            at: (self.thread, raw.count),
            cursor: RefCell::new(cursor),
            told: raw.memory,
            failed: RefCell::new(None),
            left: Cell::new(LARGEST),
            behind: false,
        };
        around.texts(&mut call);
        around.sent(&mut call);
        around.given(&mut call);
        let behind = Around {
            behind: true,
            ..around
        };
        if let Some(ret) = raw.result
            && !is_performed(raw.number)
        {
            behind.results(&mut call, ret as i64);
        }
        match behind.failed.into_inner() {
            Some(e) => Err(e),
            None => Ok(call),
        }
    }
}

/// Whether calls with this number are made again, so that what they wrote does not matter.
fn is_performed(number: u64) -> bool {
    let mapping = [SYS_mmap, SYS_munmap, SYS_mprotect, SYS_brk, SYS_mremap];
    mapping.contains(&(number as i64)) || number as i64 == SYS_rt_sigreturn
}

/// The calls of a thread, by their instants, that opened files which it then mapped as code.
fn libraries(timeline: &Timeline, thread: ThreadId) -> Result<HashSet<u64>, Error> {
    let mut all = Calls::new(thread);
    let (mut open, mut found) = (HashMap::new(), HashSet::new());
    while let Some(next) = all.advance(timeline)? {
        let Next::Call(c) = next else { continue };
        let Some(result) = c.result.filter(|r| *r < ERRORS) else {
            continue;
        };
        match c.number as i64 {
            SYS_open | SYS_openat => {
                open.insert(result, c.count);
            }
            SYS_close => {
                open.remove(&c.args[0]);
            }
            SYS_mmap if c.args[2] as i32 & PROT_EXEC != 0 => {
                found.extend(open.get(&c.args[4]));
            }
            _ => {}
        }
    }
    Ok(found)
}
