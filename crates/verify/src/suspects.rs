//! Which system call wrote memory that the recording does not tell, where a replay of a quiet stretch
//! differs from it.
//!
//! What the kernel wrote is not known to the replay, so it shows only when it is read: the call is one
//! with a pointer to bytes that were read after it, not written in between, and not said to have been
//! written by a later call. The stretch is replayed once more, observed, to see which those are.

use crate::part::{self, Part};
use hindsight_events::{Decoder, Event};
use hindsight_replay::{Code, Error, Machine, Marks, Stop};
use hindsight_syscalls as syscalls;
use hindsight_trace::Trace;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Latest calls that are looked at.
const CALLS: usize = 1000;
/// Latest of these behind which is looked closely, first after this many instructions.
const CLOSELY: usize = 100;
const STEP: u64 = 16;
/// Bytes behind a pointer that are looked at.
const REACH: usize = 256;
/// Calls that are named.
const NAMED: usize = 3;
/// Words behind a pointer that may be pointers themselves: of a `msghdr`, or of seven buffers in a list.
const WORDS: usize = 14;
/// No program has memory below.
const LOWEST: u64 = 0x10000;
/// Nor from here on.
const HIGHEST: u64 = 1 << 47;

/// A system call that may have written memory that is not in the recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspect {
    pub nr: u64,
    /// Instructions completed before it.
    pub position: u64,
    /// The argument that points to what was read, from 0, and its value; `None` if nothing that it could
    /// have written was read.
    pub pointer: Option<(usize, u64)>,
    /// The address is not the argument's, but stands in what that points to.
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
                ", where argument {} {} to ({addr:#x}), which was read behind it",
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
    /// What the recording says it wrote: addresses and lengths.
    told: Vec<(u64, u64)>,
}

/// The last calls of a part before `until`; none if its reads are checked there.
fn calls(trace: &Trace, part: &Part, until: u64) -> Result<Vec<Call>, Error> {
    let mut out = VecDeque::new();
    // A part that begins behind the first is quiet if memory is restated there.
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
                Event::Restate { ends } => (quiet, restating) = (true, !ends),
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

/// A place in memory that a call was told.
#[derive(Clone, Copy)]
struct Pointer {
    argument: usize,
    addr: u64,
    indirect: bool,
}

fn is_address(value: u64) -> bool {
    (LOWEST..HIGHEST).contains(&value)
}

/// What may be written by the call before which the machine stands.
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

/// Memory behind a pointer that a call was given.
struct Candidate {
    call: usize,
    argument: usize,
    indirect: bool,
    addr: u64,
    /// Bytes that still are what the call left.
    open: [bool; REACH],
    /// The recording says that the call wrote there.
    told: bool,
    /// The first and the last call behind which any were read.
    read: Option<(usize, usize)>,
}

impl Candidate {
    fn close(&mut self, addr: u64, len: u64) {
        for (i, open) in self.open.iter_mut().enumerate() {
            let at = self.addr.wrapping_add(i as u64);
            *open &= at.wrapping_sub(addr) >= len;
        }
    }

    /// Looks at what was accessed behind call `k`.
    fn look(&mut self, m: &Machine, k: usize) {
        let (mut reads, mut writes) = ([0; REACH], [0; REACH]);
        m.read_marks(Marks::Reads, self.addr, &mut reads);
        m.read_marks(Marks::Writes, self.addr, &mut writes);
        for (i, open) in self.open.iter_mut().enumerate() {
            if *open && reads[i] != 0 && writes[i] == 0 {
                self.read = Some((self.read.map_or(k, |r| r.0), k));
            }
            *open &= writes[i] == 0;
        }
    }
}

/// The calls that most likely wrote what was not recorded before a difference at `until`, the
/// likeliest first. None if the reads are checked there.
pub fn find(
    trace: &Trace,
    code: Arc<Code>,
    part: &Part,
    until: u64,
) -> Result<Vec<Suspect>, Error> {
    let calls = calls(trace, part, until)?;
    let Some(first) = calls.first() else {
        return Ok(Vec::new());
    };
    let mut m = Machine::observing(code)?;
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
        // Marks do not say whether a byte was read before it was written: in short steps at first, since
        // what a call wrote is soon read.
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
            // It differs somewhere, before or at the end.
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
        // What was often read without harm is right; what was said to have been written is, as far as it goes.
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
