//! Why two recordings part: the value that decides, and where it came from.
//!
//! It goes back from an instruction that both executed. Of all that the instruction took in, only what differs between the
//! recordings matters. The instruction that wrote that is the next one to look at, until something comes from outside.

mod inputs;
mod reasons;

use crate::align::{Alignment, Like};
use crate::code::Code;
use crate::course::Shifts;
use crate::model::{Cause, Datum, Hop, Reason};
use crate::side::Side;
use crate::{Both, Result};
use hindsight_origin::{Past, Source, Step, Wrote, stored, tell, wrote_register};
use hindsight_timeline::{Cancel, ThreadId, regs};
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic};
use inputs::{Pair, Place, Taken};
use std::collections::HashMap;

/// The most instructions on the way back.
const MOST: usize = 256;
/// Of a way, so many are shown at its beginning, and as many at its end.
const SHOWN: usize = 8;

/// An instant of a thread in each recording.
pub type At = Both<(ThreadId, u64)>;

/// Where to go on to find where a value came from.
enum Later {
    /// At these instructions.
    Both(At),
    /// Nowhere: the value was written where the threads did different things, for this reason.
    Apart(Reason),
    /// That is not known.
    Unknown,
}

/// What is known of all threads.
#[derive(Default)]
pub struct Family {
    /// Which thread of the second recording belongs to one of the first.
    pub threads: HashMap<ThreadId, ThreadId>,
    /// Which instant is which, by the thread of the first recording.
    pub aligned: HashMap<ThreadId, Alignment>,
}

impl Family {
    /// The thread of the other recording that belongs to one of a side, and which instant is which.
    fn aligned(&self, side: usize, thread: ThreadId) -> Option<(ThreadId, &Alignment)> {
        let (a, b) = match side {
            0 => self.threads.get_key_value(&thread)?,
            _ => self.threads.iter().find(|(_, b)| **b == thread)?,
        };
        let other = if side == 0 { b } else { a };
        Some((*other, self.aligned.get(a)?))
    }
}

/// Finds causes.
pub struct Causes {
    past: Both<Past>,
    code: Both<Code>,
    /// Which values are the same.
    pub shifts: Shifts,
    /// What is known of all threads.
    pub family: Family,
    info: InstructionInfoFactory,
}

/// What was found, before it is put into words.
pub struct Trail {
    /// Each instruction, and what it took in that differs.
    pub hops: Vec<(At, Datum)>,
    /// Where the value came from.
    pub ends: Both<Source>,
    /// Why it differs.
    pub reason: Reason,
}

impl Causes {
    /// For two program images.
    pub fn new(sides: &Both<Side>, code: Both<Code>, shifts: Shifts, family: Family) -> Causes {
        Causes {
            past: [0, 1].map(|s| Past::new(&sides[s].timeline, Cancel::new()).near()),
            code,
            shifts,
            family,
            info: InstructionInfoFactory::new(),
        }
    }

    /// Why two threads part behind this instruction, which both executed. `None`: it takes in nothing that differs.
    pub fn of_branch(&mut self, sides: &mut Both<Side>, at: At) -> Result<Option<Trail>> {
        let mut trail = Trail {
            hops: Vec::new(),
            ends: [Source::Unknown, Source::Unknown],
            reason: Reason::Unknown,
        };
        self.follow(sides, at, &mut trail)?;
        Ok((!trail.hops.is_empty() || trail.reason != Reason::Unknown).then_some(trail))
    }

    /// The instruction that a thread of a recording executes at an instant.
    pub fn instruction(
        &mut self,
        side: usize,
        (thread, count): (ThreadId, u64),
    ) -> Result<Option<iced_x86::Instruction>> {
        Ok(self.past[side].step(thread, count)?.map(|s| s.instruction))
    }

    /// Why these bytes in memory differ at these instants.
    pub fn of_memory(
        &mut self,
        sides: &mut Both<Side>,
        at: At,
        address: Both<u64>,
        datum: Datum,
    ) -> Result<Trail> {
        let place = Place::Memory {
            at: address,
            len: 1,
        };
        self.of_place(sides, at, place, datum)
    }

    /// Why a register differs at these instants.
    pub fn of_register(
        &mut self,
        sides: &mut Both<Side>,
        at: At,
        register: iced_x86::Register,
        datum: Datum,
    ) -> Result<Trail> {
        self.of_place(sides, at, Place::Register(register), datum)
    }

    fn of_place(
        &mut self,
        sides: &mut Both<Side>,
        at: At,
        place: Place,
        datum: Datum,
    ) -> Result<Trail> {
        let mut trail = Trail {
            hops: vec![(at, datum)],
            ends: [Source::Unknown, Source::Unknown],
            reason: Reason::Unknown,
        };
        // Only where they were kept instructions before can be looked through.
        for (past, (thread, count)) in self.past.iter_mut().zip(at) {
            past.step(thread, count)?;
        }
        if let Some(next) = self.written(sides, at, place, &mut trail)? {
            self.follow(sides, next, &mut trail)?;
        }
        Ok(trail)
    }

    /// Follows what differs back from an instruction.
    fn follow(&mut self, sides: &mut Both<Side>, mut at: At, trail: &mut Trail) -> Result<()> {
        for _ in 0..MOST {
            let [a, b] = &mut self.past;
            let (Some(a), Some(b)) = (a.step(at[0].0, at[0].1)?, b.step(at[1].0, at[1].1)?) else {
                return Ok(());
            };
            if !self.alike(&a, &b) {
                trail.ends = at.map(Source::Written);
                return Ok(());
            }
            if let Some(source) = asks_processor(&a) {
                trail.ends = at.map(Source::Processor);
                trail.reason = source;
                return Ok(());
            }
            let mut shifts = self.shifts.clone();
            let sp = regs::RSP;
            shifts.0.push(a.cpu.gpr[sp].wrapping_sub(b.cpu.gpr[sp]));
            let pair = Pair {
                steps: [&a, &b],
                threads: at.map(|(t, _)| t),
            };
            let (place, datum) = match pair.taken(sides, &shifts, &mut self.info)? {
                Taken::Differs(place, datum) => (place, datum),
                Taken::Addresses => {
                    trail.ends = [Source::Address, Source::Address];
                    trail.reason = Reason::Address;
                    return Ok(());
                }
                Taken::Nothing => {
                    if is_atomic(&a) {
                        trail.reason = Reason::Schedule;
                    }
                    return Ok(());
                }
            };
            // Flags are what the instruction before made of its values, which say more.
            if !matches!(place, Place::Flags(_)) {
                trail.hops.push((at, datum));
            }
            match self.written(sides, at, place, trail)? {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Whether two instructions are the same one, or do the same in two builds.
    fn alike(&mut self, a: &Step, b: &Step) -> bool {
        let [x, y] = &mut self.code;
        let keys = [
            x.exact(a.cpu.rip, &mut || None),
            y.exact(b.cpu.rip, &mut || None),
        ];
        let kinds = |s: &Step| s.instruction.op_kinds().collect::<Vec<_>>();
        keys[0] == keys[1] && a.instruction.mnemonic() == b.instruction.mnemonic()
            || keys[0] != keys[1]
                && a.instruction.code() == b.instruction.code()
                && kinds(a) == kinds(b)
                && x.is_rebuilt(a.cpu.rip)
                && y.is_rebuilt(b.cpu.rip)
    }

    /// The instructions that wrote a value. `None`: it came from elsewhere, which the trail then says.
    fn written(
        &mut self,
        sides: &mut Both<Side>,
        at: At,
        place: Place,
        trail: &mut Trail,
    ) -> Result<Option<At>> {
        let mut sources = [Source::Unknown, Source::Unknown];
        for s in 0..2 {
            let (thread, count) = at[s];
            sources[s] = match place {
                Place::Flags(flags) => match self.past[s].wrote_flags(thread, count, flags) {
                    Some(count) => Source::Written((thread, count)),
                    None => Source::Unknown,
                },
                Place::Register(r) => match self.wrote(sides, s, (thread, count), r)? {
                    Wrote::At(count) => Source::Written((thread, count)),
                    _ => Source::Unknown,
                },
                Place::Memory { at, len } => {
                    let what = (at[s], len);
                    let past = &self.past[s];
                    stored(&mut sides[s], past, (thread, count), what, &Cancel::new())?.source
                }
            };
        }
        match self.later(&sources) {
            Later::Both(at) if self.are_calls(at)? => sources = at.map(Source::Result),
            Later::Both(at) => return Ok(Some(at)),
            Later::Apart(reason) => {
                trail.reason = reason;
                trail.ends = sources;
                return Ok(None);
            }
            Later::Unknown => {}
        }
        trail.reason = reasons::reason(sides, &sources)?;
        trail.ends = sources;
        Ok(None)
    }

    /// What gave a register its value.
    fn wrote(
        &mut self,
        sides: &mut Both<Side>,
        s: usize,
        at: (ThreadId, u64),
        register: iced_x86::Register,
    ) -> Result<Wrote> {
        let past = &mut self.past[s];
        Ok(wrote_register(&mut sides[s], past, at, register)?.1)
    }

    /// Whether both instructions are system calls.
    fn are_calls(&mut self, at: At) -> Result<bool> {
        for (s, at) in at.into_iter().enumerate() {
            let i = self.instruction(s, at)?;
            if i.is_none_or(|i| i.mnemonic() != Mnemonic::Syscall) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where to go on if values have these sources.
    ///
    /// Both recordings may have been written to by the same instruction at the same instant. Otherwise one was written to later,
    /// and the other one was not then. Either the threads did different things there, or the instruction wrote elsewhere.
    fn later(&mut self, sources: &Both<Source>) -> Later {
        let written = |s: usize| match sources[s] {
            Source::Written(at) => Some(at),
            _ => None,
        };
        if (0..2).any(|s| self.is_handler(s, &sources[s])) {
            return Later::Apart(Reason::Schedule);
        }
        let mut likes = [None, None];
        for (s, like) in likes.iter_mut().enumerate() {
            let Some((thread, count)) = written(s) else {
                continue;
            };
            let Some((other, aligned)) = self.family.aligned(s, thread) else {
                continue;
            };
            *like = match aligned.like(s, count) {
                Like::At(count) => Some(Ok((other, count))),
                Like::Apart(reason) => Some(Err(reason)),
            };
        }
        match (written(0), written(1), likes) {
            (Some(a), Some(b), [Some(Ok(like)), _]) if like == b => Later::Both([a, b]),
            (Some(a), Some(b), [Some(Ok((thread, count))), _]) if thread == b.0 && count > b.1 => {
                Later::Both([a, (thread, count)])
            }
            (Some(a), Some(b), [_, Some(Ok((thread, count)))]) if thread == a.0 && count > a.1 => {
                Later::Both([(thread, count), b])
            }
            (Some(a), None, [Some(Ok(b)), _]) | (None, Some(b), [_, Some(Ok(a))]) => {
                Later::Both([a, b])
            }
            (_, _, [Some(Err(reason)), _] | [_, Some(Err(reason))]) => Later::Apart(reason),
            (Some(a), Some(b), _) if self.family.threads.get(&a.0) == Some(&b.0) => {
                Later::Both([a, b])
            }
            (Some(_), Some(_), _) => Later::Apart(Reason::Schedule),
            _ => Later::Unknown,
        }
    }

    /// Whether a handler of a signal wrote it that came when it came.
    fn is_handler(&self, s: usize, source: &Source) -> bool {
        let (Source::Written((thread, count))
        | Source::Kernel {
            at: (thread, count),
            ..
        }) = source
        else {
            return false;
        };
        let aligned = self.family.aligned(s, *thread);
        aligned.is_some_and(|(_, a)| a.is_handler(s, *count))
    }

    /// Puts a trail into words.
    pub fn tell(&mut self, sides: &mut Both<Side>, trail: &Trail) -> Result<Cause> {
        let mut hops = Vec::new();
        let n = trail.hops.len();
        for (i, (at, datum)) in trail.hops.iter().enumerate() {
            if i >= SHOWN && i + SHOWN < n {
                continue;
            }
            let [a, b] = &mut *sides;
            hops.push(Hop {
                points: [a.point(at[0].0, at[0].1)?, b.point(at[1].0, at[1].1)?],
                datum: datum.clone(),
            });
        }
        let [a, b] = sides;
        let origins = [tell(a, &trail.ends[0])?, tell(b, &trail.ends[1])?];
        Ok(Cause {
            hops,
            origins,
            left_out: n.saturating_sub(2 * SHOWN),
            reason: trail.reason,
        })
    }
}

impl Trail {
    /// Whether the value is an argument or in the environment of the programs, as they were started.
    pub fn is_given(&self) -> bool {
        let beginning = |s: &Source| matches!(s, Source::Beginning { .. });
        self.reason == Reason::Data && self.ends.iter().all(beginning)
    }
}

/// Whether an instruction asks the processor for something that no program decides.
fn asks_processor(s: &Step) -> Option<Reason> {
    match s.instruction.mnemonic() {
        Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Rdpmc => Some(Reason::Time),
        Mnemonic::Rdrand | Mnemonic::Rdseed => Some(Reason::Random),
        Mnemonic::Cpuid | Mnemonic::Rdpid | Mnemonic::Xgetbv => Some(Reason::Id),
        _ => None,
    }
}

fn is_atomic(s: &Step) -> bool {
    let i = &s.instruction;
    i.has_lock_prefix() || i.mnemonic() == Mnemonic::Xchg && i.flow_control() == FlowControl::Next
}
