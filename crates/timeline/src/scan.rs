//! The events of one thread that a front end may ask for, and its segments.

use crate::Kind;
use crate::{Direction, Ending, Error, Result, Segment, ThreadId};
use hindsight_events::event::{EndKind, tag};
use hindsight_events::{Decoder, Event};
use hindsight_trace::Trace;
use std::ops::Range;

/// What a stream says besides the values that were read.
#[derive(Default, Debug)]
pub struct Scan {
    /// Sequence numbers and the positions at which they stand, both ascending.
    pub numbers: Vec<(u64, u64)>,
    /// System calls and signals, with their positions.
    pub events: Vec<(u64, Raw)>,
    /// What a front end is shown besides, with positions: gaps, marks, regimes.
    pub notes: Vec<(u64, Kind)>,
    /// Cells that become zero: position, address, length.
    pub zeros: Vec<(u64, u64, u64)>,
    /// Memory that the recording gives at positions, by address and length.
    pub given: Vec<(u64, u64, u64)>,
    /// What the kernel wrote in system calls and with signals: the instructions completed before, address,
    /// length.
    pub written: Vec<(u64, u64, u64)>,
    /// What made memory what it is, other than instructions of the thread and what the kernel wrote.
    pub sources: Vec<Source>,
    /// Up to here memory is what instructions, `sources` and `given` made of it, and nothing else changes it;
    /// 0: never.
    pub quiet_until: u64,
    /// Where the thread ran unrecorded, ascending: what was known before is not known to hold behind.
    pub gaps: Vec<Range<u64>>,
    /// When stretches of the thread happened, ascending.
    pub times: Vec<Stretch>,
    /// First and last position.
    pub from: u64,
    pub to: u64,
    pub ending: Option<Ending>,
}

/// A stretch of a thread, from its first to its last event, and microseconds between which it happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    pub first: u64,
    pub last: u64,
    pub since: u64,
    pub until: u64,
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
    /// It is empty: fresh, or not there any more.
    Zero,
    /// A module, by its number, from this offset on, with zeros behind its end.
    File { module: u32, offset: u64 },
    /// The memory that was at this address.
    Moved(u64),
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

impl Scan {
    /// Reads all events of a thread.
    pub fn read(trace: &Trace, thread: ThreadId) -> Result<Scan> {
        let chunks = trace.chunks(thread.0);
        let mut scan = Scan {
            from: chunks.first().map_or(0, |c| c.first_pos),
            to: chunks.last().map_or(0, |c| c.last_pos),
            ..Scan::default()
        };
        let mut first = None;
        for c in chunks {
            scan.chunk(&trace.load(c)?, c.offset, &mut first)?;
        }
        Ok(scan)
    }

    /// `first`: the first position behind what is said of times.
    fn chunk(&mut self, wire: &[u8], offset: u64, first: &mut Option<u64>) -> Result<()> {
        let mut decoder = Decoder::default();
        let mut at = 0;
        // What memory was said to be by the event before.
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
            if t == tag::PATCH || t == tag::PATCH_BYTES {
                continue;
            }
            let frame = last.take();
            match event {
                Event::Seq { number } => self.numbers.push((number, pos)),
                Event::Syscall { nr, args } => self.events.push((
                    pos,
                    Raw::Syscall {
                        number: nr,
                        args,
                        result: None,
                    },
                )),
                Event::SyscallRet { ret } => {
                    if let Some((p, Raw::Syscall { result, .. })) = self.events.last_mut()
                        && *p == pos
                    {
                        *result = Some(ret);
                    }
                }
                Event::Signal { signo, code, addr } => {
                    self.frame_of(pos, frame);
                    self.events.push((
                        pos,
                        Raw::Signal {
                            number: signo,
                            code,
                            address: addr,
                        },
                    ))
                }
                Event::GapBegin { reason } => {
                    // A second one within a gap only says more about it.
                    if self.gaps.last().is_none_or(|g| g.end <= pos) {
                        self.gaps.push(pos..u64::MAX);
                    }
                    self.notes.push((pos, Kind::GapBegin { reason }));
                }
                Event::GapEnd { .. } => {
                    if let Some(g) = self.gaps.last_mut() {
                        g.end = pos;
                    }
                    self.notes.push((pos, Kind::GapEnd));
                }
                Event::Mark { name, bytes } => {
                    let (name, payload) = bytes.split_at(name.min(bytes.len()));
                    let kind = Kind::Mark {
                        name: String::from_utf8_lossy(name).into_owned(),
                        payload: payload.to_vec(),
                    };
                    self.notes.push((pos, kind));
                }
                Event::Regime { quiet, reason } => {
                    self.quiet_until = match quiet {
                        true => u64::MAX,
                        false => pos,
                    };
                    let reason = String::from_utf8_lossy(reason).into_owned();
                    self.notes.push((pos, Kind::Regime { quiet, reason }));
                }
                Event::Zero { addr, len } => {
                    self.zeros.push((pos, addr, len));
                    self.source(pos, addr, len, Origin::Zero);
                }
                Event::Memory { addr, bytes } => {
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
                } => {
                    self.ending = Some(match kind {
                        EndKind::Exit => Ending::Exit(code),
                        EndKind::Signal => Ending::Signal(code),
                        EndKind::Exec => Ending::Exec,
                        EndKind::Detached => Ending::Detached,
                        EndKind::Unsupported => {
                            Ending::Unsupported(String::from_utf8_lossy(message).into_owned())
                        }
                    })
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps times ascending, whatever a trace says.
    fn time(&mut self, first: u64, last: u64, since: u64, until: u64) {
        let before = self.times.last().map_or(0, |s| s.until);
        let since = since.max(before);
        self.times.push(Stretch {
            first,
            last,
            since,
            until: until.max(since),
        });
    }

    /// Memory is given. It was written by the system call at hand, or by the one that is just done; if
    /// there is none it had that content before.
    fn write(&mut self, pos: u64, addr: u64, len: u64) {
        self.given.push((pos, addr, len));
        if let Some((p, Raw::Syscall { .. })) = self.events.last()
            && (*p == pos || p + 1 == pos)
        {
            self.written.push((*p, addr, len));
        }
    }

    /// A signal is delivered: `frame` is what was given just before, the signal's frame if it looks like
    /// one (`struct rt_sigframe`), and not an output of the system call before.
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

    fn source(&mut self, at: u64, address: u64, len: u64, origin: Origin) {
        self.sources.push(Source {
            at,
            address,
            len,
            origin,
        });
    }

    /// Of each byte what made it what it was before anything else happened to it, the last one before
    /// `count` instructions were completed.
    pub fn sources_of(&self, address: u64, len: usize, count: u64) -> Vec<Option<Source>> {
        let mut out = vec![None; len];
        let mut left = len;
        let before = self.sources.partition_point(|s| s.at < count);
        for s in self.sources[..before].iter().rev() {
            let first = s.address.max(address);
            let end = (s.address.saturating_add(s.len)).min(address.saturating_add(len as u64));
            for o in (first..end).map(|a| (a - address) as usize) {
                if out[o].is_none() {
                    out[o] = Some(*s);
                    left -= 1;
                }
            }
            if left == 0 {
                break;
            }
        }
        out
    }

    /// Where something else than the thread's instructions changed memory, or may have, between two
    /// positions, by address and length.
    pub fn changed(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let within = |z: &&(u64, u64, u64)| from <= z.0 && z.0 < to;
        let said = self.zeros.iter().chain(&self.given).filter(within);
        let gap = self.gaps.iter().any(|g| g.start < to && from < g.end);
        said.map(|z| (z.1, z.2))
            .chain(gap.then_some((0, u64::MAX)))
            .collect()
    }

    /// `count`, or if the thread runs unrecorded there, the end or begin of that gap.
    pub fn outside_gap(&self, count: u64, direction: Direction) -> u64 {
        let i = self.gaps.partition_point(|g| g.end <= count);
        match (self.gaps.get(i).filter(|g| g.start < count), direction) {
            (Some(g), Direction::Forward) => g.end.min(self.to),
            (Some(g), Direction::Backward) => g.start,
            (None, _) => count,
        }
    }

    /// The segment in which the thread has completed `count` instructions; of several the last.
    pub fn segment(&self, thread: ThreadId, count: u64) -> Segment {
        let i = self.numbers.partition_point(|n| n.1 <= count);
        self.nth(thread, i)
    }

    /// The segments in order, by number: the first is opened by nothing.
    pub fn nth(&self, thread: ThreadId, i: usize) -> Segment {
        let opens = i.checked_sub(1).map(|i| self.numbers[i]);
        let closes = self.numbers.get(i);
        Segment {
            thread,
            opens: opens.map_or(0, |n| n.0),
            closes: closes.map(|n| n.0),
            from: opens.map_or(self.from, |n| n.1),
            to: closes.map_or(self.to, |n| n.1),
        }
    }

    /// The segment that this number opens, which must be this thread's; 0: the one before any number.
    pub fn opened_by(&self, thread: ThreadId, number: u64) -> Option<Segment> {
        if number == 0 {
            let first = self.nth(thread, 0);
            return (self.begins_without_number()).then_some(first);
        }
        let i = self.numbers.binary_search_by_key(&number, |n| n.0).ok()?;
        Some(self.nth(thread, i + 1))
    }

    /// Whether the thread ran before its first number, as the first thread of a recording does.
    pub fn begins_without_number(&self) -> bool {
        self.numbers.first().is_none_or(|n| n.1 > self.from)
    }
}
