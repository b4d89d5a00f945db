//! Finds the system call that wrote memory without the recording having it, when the replay of a quiet
//! stretch differs.
//!
//! The replay does not know such a write, so it shows only when somebody reads the memory. The call that did
//! it has a pointer to bytes that were read afterwards. The program did not write these bytes in between, and
//! no later call is recorded to have written them. To find these bytes, the stretch is replayed once more by
//! an observing machine.

use crate::part::{self, StreamPart};
use hindsight_events::{Decoder, Event};
use hindsight_replay::{AccessKind, Code, Error, Machine, Model, Stop};
use hindsight_syscalls as syscalls;
use hindsight_trace::Trace;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// How many of the last calls are looked at.
const CALLS: usize = 1000;
/// How many of these are looked at closely: in steps that grow from [`STEP`] instructions.
const CLOSELY: usize = 100;
const STEP: u64 = 16;
/// Bytes behind a pointer that are looked at.
const REACH: usize = 256;
/// How many calls are named.
const NAMED: usize = 3;
/// Words behind a pointer that may be pointers themselves: those of a `msghdr`, or of seven buffers in a
/// list.
const WORDS: usize = 14;
/// Programs have no memory below this address.
const LOWEST: u64 = 0x10000;
/// Programs have no memory at this address or above.
const HIGHEST: u64 = 1 << 47;

/// A system call that may have written memory without the recording having it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspect {
    pub nr: u64,
    /// Instructions completed before it.
    pub position: u64,
    /// The number of the argument, from 0, that points to bytes that were read, and its value. `None` if
    /// nothing was read that the call could have written.
    pub pointer: Option<(usize, u64)>,
    /// The argument points to memory that holds the address.
    pub indirect: bool,
}

impl Suspect {
    /// The call's name.
    pub fn name(&self) -> &'static str {
        syscalls::name(self.nr).unwrap_or("unknown")
    }
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (nr, name, position) = (self.nr, self.name(), self.position);
        write!(f, "system call {nr} ({name}) at position {position}")?;
        match self.pointer {
            Some((i, addr)) => write!(
                f,
                "; its argument {} {} to {addr:#x}, which was read afterwards",
                i + 1,
                if self.indirect { "leads" } else { "points" },
            ),
            None => Ok(()),
        }
    }
}

struct Call {
    pos: u64,
    nr: u64,
    args: [u64; 6],
    failed: bool,
    /// What the recording says that it wrote: addresses and lengths.
    told: Vec<(u64, u64)>,
}

/// The last calls of a part before `until`. Empty if reads are checked there.
fn calls(trace: &Trace, part: &StreamPart, until: u64) -> Result<Vec<Call>, Error> {
    let mut out = VecDeque::new();
    // A part that does not begin with the stream is quiet if memory is restated there.
    let (mut quiet, mut restating) = (false, false);
    for c in part.chunks(trace) {
        let wire = trace.load(c)?;
        let (mut rest, mut decoder) = (&wire[..], Decoder::default());
        while let Some((pos, event, n)) = decoder.decode(rest)
            && pos <= until
        {
            rest = &rest[n..];
            match event {
                Event::Regime { quiet: q, .. } => quiet = q,
                Event::Restate { ends, .. } => (quiet, restating) = (true, !ends),
                Event::Syscall { nr, args } if pos < until => {
                    if out.len() == CALLS {
                        out.pop_front();
                    }
                    out.push_back(Call {
                        pos,
                        nr,
                        args,
                        failed: false,
                        told: Vec::new(),
                    });
                }
                Event::SyscallRet { ret } => {
                    if let Some(call) = out.back_mut() {
                        call.failed = (ret as i64) < 0;
                    }
                }
                Event::Memory { addr, bytes } if !restating => {
                    if let Some(call) = out.back_mut() {
                        call.told.push((addr, bytes.len() as u64));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(if quiet { out.into() } else { Vec::new() })
}

/// An address that a call was given.
#[derive(Clone, Copy)]
struct Pointer {
    argument: usize,
    addr: u64,
    indirect: bool,
}

fn is_address(value: u64) -> bool {
    (LOWEST..HIGHEST).contains(&value)
}

/// The memory that the next call may write, as far as pointers lead to it.
fn pointers(m: &Machine, call: &Call) -> Vec<Pointer> {
    let given = syscalls::arguments(call.nr);
    let arguments = call.args.into_iter().enumerate().take(given);
    let mut level: Vec<Pointer> = arguments
        .filter(|(_, addr)| is_address(*addr))
        .map(|(argument, addr)| Pointer {
            argument,
            addr,
            indirect: false,
        })
        .collect();
    let mut all = level.clone();
    for _ in 0..syscalls::indirections(call.nr as u32) {
        let behind = |p: &Pointer| {
            let mut bytes = [0; 8 * WORDS];
            m.read_window(p.addr, &mut bytes);
            let words: [_; WORDS] = bytes.as_chunks().0.try_into().unwrap_or([[0; 8]; WORDS]);
            let argument = p.argument;
            words.map(|w| Pointer {
                argument,
                addr: u64::from_le_bytes(w),
                indirect: true,
            })
        };
        let next = level.iter().flat_map(behind);
        level = next.filter(|p| is_address(p.addr)).collect();
        all.extend(&level);
    }
    all
}

/// Memory at an address that a call was given.
struct Candidate {
    call: usize,
    argument: usize,
    indirect: bool,
    addr: u64,
    /// For each byte: nobody has written it since the call.
    open: [bool; REACH],
    /// The recording says that the call wrote there.
    told: bool,
    /// The first and the last call after which any of the bytes were read.
    read: Option<(usize, usize)>,
}

impl Candidate {
    fn close(&mut self, addr: u64, len: u64) {
        for (i, open) in self.open.iter_mut().enumerate() {
            let at = self.addr.wrapping_add(i as u64);
            *open &= at.wrapping_sub(addr) >= len;
        }
    }

    /// Notes which of the bytes were accessed after call `k`.
    fn look(&mut self, m: &Machine, k: usize) {
        let (mut reads, mut writes) = ([0; REACH], [0; REACH]);
        m.read_marks(AccessKind::Reads, self.addr, &mut reads);
        m.read_marks(AccessKind::Writes, self.addr, &mut writes);
        for (i, open) in self.open.iter_mut().enumerate() {
            if *open && reads[i] != 0 && writes[i] == 0 {
                self.read = Some((self.read.map_or(k, |r| r.0), k));
            }
            *open &= writes[i] == 0;
        }
    }
}

/// The calls that most likely wrote unrecorded memory before a difference at `until`, the likeliest first.
/// Empty if reads are checked there.
pub fn find(
    model: Model,
    trace: &Trace,
    code: Arc<Code>,
    part: &StreamPart,
    until: u64,
) -> Result<Vec<Suspect>, Error> {
    let calls = calls(trace, part, until)?;
    let Some(first) = calls.first() else {
        return Ok(Vec::new());
    };
    let mut m = Machine::observing(model, code)?;
    m.from_keyframe(part::source(trace, part))?;
    m.run_to(first.pos)?;
    let mut candidates: Vec<Candidate> = Vec::new();
    for (k, call) in calls.iter().enumerate() {
        for c in &mut candidates {
            call.told
                .iter()
                .for_each(|(addr, len)| c.close(*addr, *len));
        }
        for p in pointers(&m, call) {
            let addr = p.addr;
            let mut new = Candidate {
                call: k,
                argument: p.argument,
                indirect: p.indirect,
                addr,
                open: [true; REACH],
                told: call.told.iter().any(|(a, n)| addr.wrapping_sub(*a) < *n),
                read: None,
            };
            call.told.iter().for_each(|(a, n)| new.close(*a, *n));
            candidates.retain(|c| c.addr != addr);
            candidates.push(new);
        }
        let next = calls.get(k + 1).map_or(until, |c| c.pos);
        // Marks do not say whether a byte was read before it was written. So the first steps are short:
        // programs soon read what a call wrote.
        let mut step = if k + CLOSELY < calls.len() {
            u64::MAX
        } else {
            STEP
        };
        let mut to = call.pos;
        let mut end = Ok(Stop::Position);
        while to < next && end.is_ok() {
            to = to.saturating_add(step).min(next);
            step = step.saturating_mul(2);
            m.clear_marks()?;
            // It differs somewhere before the end, or at the end.
            end = m.run_to(to);
            candidates.iter_mut().for_each(|c| c.look(&m, k));
        }
        if end.is_err() {
            break;
        }
    }
    candidates.retain(|c| c.read.is_some());
    candidates.sort_by_key(|c| {
        let call = &calls[c.call];
        let writes = syscalls::may_write(call.nr as u32);
        // Memory that was often read without harm is right. So is memory that is recorded as written, as far
        // as it goes.
        let (first_read, last_read) = c.read.unwrap_or_default();
        let untold = writes && !c.told;
        Reverse((untold, first_read, !call.failed, last_read, writes, c.call))
    });
    let mut out: Vec<Suspect> = Vec::new();
    for c in candidates {
        let (call, pointer) = (&calls[c.call], Some((c.argument, c.addr)));
        let indirect = c.indirect;
        if out.iter().all(|s| s.position != call.pos) && out.len() < NAMED {
            out.push(Suspect {
                nr: call.nr,
                position: call.pos,
                pointer,
                indirect,
            });
        }
    }
    if out.is_empty() {
        out.extend(calls.iter().rev().take(NAMED).map(|c| Suspect {
            nr: c.nr,
            position: c.pos,
            pointer: None,
            indirect: false,
        }));
    }
    Ok(out)
}
