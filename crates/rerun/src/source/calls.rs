//! The system calls of a thread, one after the other, with the bytes that they took in and gave out.
//!
//! What calls took in stands in the stream, where the recording is quiet. All else is looked up in the recorded memory.

use super::Error;
use super::clocks::Counter;
use crate::plan::class::{Class, class};
use crate::wire::{Blob, Call, LARGEST, Signal, Written};
use hindsight_events::{Decoder, Event};
use hindsight_syscalls::{Arg, Memory, Range, outputs, signature};
use hindsight_timeline::{Cursor, Kind, ThreadId, Timeline, syscall_name};
use libc::*;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};

/// The longest text that is read.
const TEXT: usize = 4096;
/// Bytes that are looked up at a time. An answer takes far more memory.
const PART: usize = 1 << 16;
/// The most buffers of a list.
const BUFFERS: u64 = 1024;

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

/// The kernel moves no more bytes in a call.
const MOVED: u64 = 0x7fff_f000;
/// Results from here on are errors.
const ERRORS: u64 = -4095i64 as u64;

/// So many holes are told at most. What follows the last of them counts as not known.
const HOLES: usize = 1 << 12;

/// Bytes, with zeros for those that are not known, and where these are.
fn known(bytes: Vec<Option<u8>>) -> (Blob, Vec<(u64, u64)>) {
    let (mut at, mut unknown) = (0, Vec::new());
    for part in bytes.chunk_by(|a, b| a.is_some() == b.is_some()) {
        if part[0].is_none() {
            if unknown.len() == HOLES {
                unknown.push((at, bytes.len() as u64 - at));
                break;
            }
            unknown.push((at, part.len() as u64));
        }
        at += part.len() as u64;
    }
    let bytes = bytes.into_iter().map(|b| b.unwrap_or(0)).collect();
    (Blob(bytes), unknown)
}

/// Bytes of a call that moved `n`, of which the last ones may not be known.
fn filled(mut bytes: Vec<Option<u8>>, n: usize) -> Vec<Option<u8>> {
    bytes.resize(n.min(LARGEST).max(bytes.len()), None);
    bytes
}

/// A text that ends with a zero byte, if `bytes` knows all of it. What it does not know may be empty.
fn text(addr: u64, bytes: impl Fn(u64, usize) -> Vec<Option<u8>>) -> Option<Vec<u8>> {
    const STEP: usize = 64;
    let mut out = Vec::new();
    while addr != 0 && out.len() < TEXT {
        let from = addr.wrapping_add(out.len() as u64);
        // It must not reach into the next page before that is needed.
        let part = bytes(from, STEP - from as usize % STEP);
        if part.is_empty() {
            return None;
        }
        for b in part {
            match b? {
                0 => return Some(out),
                b => out.push(b),
            }
        }
    }
    None
}

/// Memory around a call.
struct Around<'a> {
    at: (ThreadId, u64),
    cursor: RefCell<&'a mut Cursor>,
    /// What the stream says of it.
    told: Vec<(u64, Vec<u8>)>,
    /// What went wrong first. Nothing more is looked up then.
    failed: RefCell<Option<Error>>,
    /// So many bytes may still be looked up.
    left: Cell<usize>,
    behind: bool,
}

impl Memory for Around<'_> {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        let bytes = self.bytes(addr, buf.len());
        for (b, known) in buf.iter_mut().zip(&bytes) {
            match known {
                Some(k) => *b = *k,
                None => return false,
            }
        }
        bytes.len() == buf.len()
    }
}

impl Around<'_> {
    fn bytes(&self, addr: u64, len: usize) -> Vec<Option<u8>> {
        if len == 0 || addr == 0 || self.failed.borrow().is_some() {
            return Vec::new();
        }
        let Some(left) = self.left.get().checked_sub(len) else {
            return self.fail(Error::TooLarge);
        };
        self.left.set(left);
        if self.behind
            && let Some(told) = self.told(addr, len)
        {
            return told;
        }
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            let part = (len - out.len()).min(PART);
            let from = addr.wrapping_add(out.len() as u64);
            let found = (self.cursor.borrow_mut()).around_call(self.at, (from, part), self.behind);
            match found {
                Ok(bytes) if bytes.len() == part => out.extend(bytes),
                Ok(_) => return Vec::new(),
                Err(e) => return self.fail(e.into()),
            }
        }
        out
    }

    fn fail(&self, e: Error) -> Vec<Option<u8>> {
        self.failed.borrow_mut().get_or_insert(e);
        Vec::new()
    }

    /// Bytes of which the stream says all.
    fn told(&self, addr: u64, len: usize) -> Option<Vec<Option<u8>>> {
        let mut out = Vec::with_capacity(len);
        let mut first = 0;
        while out.len() < len {
            let at = addr.wrapping_add(out.len() as u64);
            let within = |(a, b): &&(u64, Vec<u8>)| at.wrapping_sub(*a) < b.len() as u64;
            // They come in ascending order.
            let next = self.told[first..].iter().position(|t| within(&t));
            first = match next {
                Some(n) => first + n,
                None => self.told.iter().rposition(|t| within(&t))?,
            };
            let (a, bytes) = &self.told[first];
            let rest = &bytes[at.wrapping_sub(*a) as usize..];
            let n = rest.len().min(len - out.len());
            out.extend(rest[..n].iter().map(|b| Some(*b)));
        }
        Some(out)
    }

    fn word(&self, addr: u64) -> Option<u64> {
        let mut b = [0; 8];
        self.read(addr, &mut b).then(|| u64::from_le_bytes(b))
    }

    fn text(&self, addr: u64) -> Option<Vec<u8>> {
        text(addr, |at, len| self.bytes(at, len))
    }

    fn texts(&self, call: &mut Call) {
        let Some(s) = signature(&syscall_name(call.number)) else {
            return;
        };
        for (arg, value) in s.args.iter().zip(call.args) {
            if *arg == Arg::Text {
                call.texts.push(self.text(value));
            }
        }
    }

    /// The bytes that a call sent.
    fn sent(&self, call: &mut Call) {
        let a = call.args;
        let n = match call.result {
            Some(r) if r < ERRORS => r.min(MOVED),
            _ => return,
        };
        let list = match call.number as i64 {
            SYS_write | SYS_pwrite64 | SYS_sendto => {
                let n = n.min(a[2]) as usize;
                (call.sent, call.unsure) = known(filled(self.bytes(a[1], n), n));
                return;
            }
            SYS_writev | SYS_pwritev | SYS_pwritev2 => Some((a[1], a[2])),
            SYS_sendmsg => (self.word(a[1].wrapping_add(16))).zip(self.word(a[1].wrapping_add(24))),
            _ => return,
        };
        let Some((list, count)) = list else { return };
        (call.sent, call.unsure) = known(filled(self.buffers(list, count, n as usize), n as usize));
    }

    /// The first bytes of a list of buffers.
    fn buffers(&self, list: u64, count: u64, n: usize) -> Vec<Option<u8>> {
        let mut out = Vec::new();
        for i in 0..count.min(BUFFERS) {
            let at = list.wrapping_add(16 * i);
            let (Some(base), Some(len)) = (self.word(at), self.word(at.wrapping_add(8))) else {
                break;
            };
            let left = n - out.len();
            out.extend(self.bytes(base, len.min(left as u64) as usize));
            if out.len() >= n {
                break;
            }
        }
        out
    }

    /// Structures by which results are translated.
    fn given(&self, call: &mut Call) {
        let a = call.args;
        let (at, len) = match call.number as i64 {
            SYS_epoll_ctl => (a[3], 12),
            SYS_poll | SYS_ppoll => (a[0], 8 * a[1].min(1 << 16) as usize),
            SYS_clone3 => return self.older(call),
            _ => return,
        };
        let bytes = self.bytes(at, len);
        call.given = bytes.into_iter().map_while(|b| b).collect();
    }

    /// What `clone3` makes stands in memory. The call becomes the older one that makes the same.
    fn older(&self, call: &mut Call) {
        let field = |n: u64| self.word(call.args[0].wrapping_add(8 * n));
        let all = (0..8).map(field).collect::<Option<Vec<u64>>>();
        let Some(&[flags, _, child, parent, signal, stack, size, tls]) = all.as_deref() else {
            return;
        };
        call.number = SYS_clone as u64;
        call.args = [
            flags | signal,
            stack.wrapping_add(size),
            parent,
            child,
            tls,
            0,
        ];
    }

    /// What a call received, and what else it wrote.
    fn results(&self, call: &mut Call, ret: i64) {
        let (nr, a) = (call.number, call.args);
        let n = if ret < 0 {
            0
        } else {
            ret.min(MOVED as i64) as usize
        };
        let is_stream = class(nr, &a) == Class::Read;
        let received = match nr as i64 {
            _ if !is_stream => None,
            SYS_read | SYS_pread64 | SYS_recvfrom => Some(self.bytes(a[1], n.min(a[2] as usize))),
            SYS_getrandom => Some(self.bytes(a[0], n)),
            SYS_readv | SYS_preadv | SYS_preadv2 => Some(self.buffers(a[1], a[2], n)),
            SYS_recvmsg => (self.word(a[1].wrapping_add(16)))
                .zip(self.word(a[1].wrapping_add(24)))
                .map(|(list, count)| self.buffers(list, count, n)),
            _ => None,
        };
        if let Some(received) = received {
            let (bytes, unknown) = known(received);
            call.unknown = unknown.iter().map(|u| u.1).sum();
            call.received = bytes;
        }
        let mut ranges = Vec::new();
        outputs(nr as u32, &a, ret, self, &mut |r: Range| ranges.push(r));
        let skipped = match nr as i64 {
            _ if !is_stream => 0,
            // The first one has the bytes.
            SYS_recvfrom => usize::from(n > 0),
            SYS_recvmsg => 0,
            _ => usize::MAX,
        };
        for r in ranges.into_iter().skip(skipped) {
            let len = r.len.min(MOVED) as usize;
            call.written.push(Written {
                address: r.addr,
                bytes: self.bytes(r.addr, len),
            });
            if nr as i64 == SYS_recvmsg && call.written.len() == 1 {
                // The header; the rest is told by what it names.
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
