//! What a debugger could stop at on the way to a position. It gives the steps of a thread to [`crate::breakpath`].
//!
//! The replay tells the runs of instructions of the whole way (`code`). Only the last steps are looked at one by one, with
//! the data that they access (`fine`). All of them go backwards through the search, which does not keep them (`plan`).

mod code;
mod fine;
mod plan;
mod spans;

use crate::breakpath::{MOST_LEGS, NoWay};
use crate::{Cancel, Error, Filter, KindOf, Position, Result, Timeline};
use crate::{ThreadId, ThreadInstant};
use hindsight_isa::string::StringOp;
use plan::{Found, Plan};
use spans::Spans;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What to set in the live program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Path of the module. Offsets count from its first mapping.
    pub module: Arc<str>,
    /// The offset in bytes from the first mapping's address.
    pub offset: u64,
    /// It is a word of eight bytes that is read or written. Otherwise it is an instruction.
    pub data: bool,
}

/// One part of the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Halt {
    /// What to stop at.
    pub setting: Setting,
    /// How many times it stops. Only the last time counts.
    pub hits: u64,
    /// The position of the recording at the last one.
    pub position: Position,
    /// The number of instructions from the program's start up to there.
    pub step: u64,
    /// The address of the next instruction, in the recording.
    pub pc: u64,
    /// The file that has this instruction, by its path, and the offset as in [`Setting`]. `None`: it is in no file.
    pub at: Option<(Arc<str>, u64)>,
}

/// How to reach a position of a live program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The thread whose steps these are.
    pub thread: ThreadId,
    /// The number of instructions from the program's start.
    pub steps: u64,
    /// The parts of the way. The last one is at the position.
    pub halts: Vec<Halt>,
    /// The number of stops of all parts.
    pub stops: u64,
    /// The step from which on data counts. Before it, only instructions do. It is later than was asked for if there is too much
    /// data. 0: this is the way with the fewest stops.
    pub data_from: u64,
    /// The fewest stops if everything may be set that [`Timeline::route`] knows. `None`: that is not known, since data does not
    /// count everywhere, or this way has too many parts.
    pub fewest: Option<u64>,
}

/// How much is looked at, and kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteLimits {
    /// The last steps whose data counts, at least one. Each takes about 16 bytes of memory.
    pub data: u64,
    /// Runs of instructions that are kept at a time, four bytes each. If there are more before data counts, parts are played
    /// again.
    pub runs: usize,
}

impl RouteLimits {
    /// The last `data` steps, and half a gibibyte of runs.
    pub fn new(data: u64) -> RouteLimits {
        RouteLimits {
            data,
            runs: 1 << 27,
        }
    }
}

/// What may be set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Candidates {
    /// All instructions in files, and all data in files.
    #[default]
    All,
    /// Only instructions.
    Instructions,
    /// Only data.
    Data,
    /// Only these, by their addresses in the recording.
    Listed {
        /// Instructions.
        code: BTreeSet<u64>,
        /// Data: words of eight bytes, each by the address of its first byte.
        words: BTreeSet<u64>,
    },
}

impl Timeline {
    /// The way with the fewest stops to a position in a live run of the recorded program. Only one breakpoint or hardware
    /// watchpoint is set at a time. Only settings in files count, because all else lies elsewhere in each run.
    ///
    /// Data counts at the last steps, and instructions everywhere. Accesses of system calls do not count: they do not stop
    /// at a watchpoint.
    ///
    /// # Errors
    /// The position has threads, signals, gaps or other program images before it; nothing that may be set stops there; or the
    /// recording cannot be replayed.
    pub fn route(
        &self,
        to: Position,
        limits: RouteLimits,
        candidates: &Candidates,
        cancel: &Cancel,
    ) -> Result<Route> {
        let (thread, steps, image) = self.alone_before(to)?;
        let data_from = steps.saturating_sub(limits.data.max(1));
        let mut route = Route {
            thread,
            steps,
            halts: Vec::new(),
            stops: 0,
            data_from,
            fewest: (data_from == 0).then_some(0),
        };
        if steps == 0 {
            return Ok(route);
        }
        let spans = Spans::new(self, image, to, cancel)?;
        let mut cursor = self.cursor()?;
        cursor.seek_count(thread, steps)?;
        let goal = cursor.registers()?.rip;
        let repeats = StringOp::decode(&cursor.code(goal, 15)?).is_some();
        let mut plan = Plan::new(spans, candidates, (thread, steps, data_from), limits.runs);
        if !repeats {
            plan.goal = Some(goal);
        }
        let found = plan.find(self, cancel)?;
        route.data_from = plan.data_from;
        route.fewest = found.all.filter(|_| plan.data_from == 0);
        self.halts(&mut plan, found, &mut route, cancel)?;
        Ok(route)
    }

    /// The thread of a position, how many steps it is from the start, and its program image. An error unless all that the
    /// program did before is certain.
    fn alone_before(&self, to: Position) -> Result<(ThreadId, u64, u32)> {
        let ThreadInstant { thread, count } = self.locate(to)?;
        let t = self.thread(thread)?;
        let first = self.processes()?.into_iter().next().ok_or(Error::Empty)?;
        let no = |why: String| Err(Error::Unsupported(why));
        if t.image != first.image {
            return no(format!(
                "position {to} is in program image {}; only the first one of a recording is started by gdb",
                t.image
            ));
        }
        if first.threads.first() != Some(&thread) || self.begun(&first.threads, to)? > 1 {
            return no(format!(
                "other threads run before position {to}; where they stop a live program is not determined"
            ));
        }
        if t.from > 0 {
            return no("the recording does not begin at the program's start".into());
        }
        let signals = self.events(&Filter {
            thread: Some(thread),
            until: Some(to),
            kinds: vec![KindOf::Signal],
            ..Filter::default()
        })?;
        if let Some(s) = signals.first() {
            return no(format!(
                "a signal arrives at {}, before position {to}; in a live program it arrives elsewhere",
                s.position
            ));
        }
        Ok((thread, count, t.image))
    }

    /// How many of these threads have begun at a position.
    fn begun(&self, threads: &[ThreadId], at: Position) -> Result<usize> {
        let mut n = 0;
        for t in threads {
            n += (self.thread(*t)?.first < at) as usize;
        }
        Ok(n)
    }

    /// Puts the parts of the way that was found into words.
    fn halts(
        &self,
        plan: &mut Plan,
        found: Found,
        route: &mut Route,
        cancel: &Cancel,
    ) -> Result<()> {
        let (thread, steps) = (route.thread, route.steps);
        let to = self.position(thread, steps)?;
        let legs = match found.way {
            Ok(legs) => legs,
            Err(NoWay::TooLong) => {
                return Err(Error::Unsupported(format!(
                    "the way to position {to} has more than {MOST_LEGS} parts"
                )));
            }
            Err(NoWay::Unreachable) => {
                let mut why = format!(
                    "of what may be set in files of the program something stops at position {to}, but nothing leads there from the start"
                );
                if plan.data_from > 0 {
                    let from = self.position(thread, plan.data_from)?;
                    why += &format!("; data counts only from position {from} on (--limit)");
                }
                return Err(Error::Unsupported(why));
            }
            Err(NoWay::Nothing) => {
                let mut why = format!(
                    "nothing that may be set in a file of the program stops at position {to}"
                );
                if let Some(near) = found.nearest {
                    let near = self.position(thread, near)?;
                    why += &format!("; the last position before at which something does is {near}");
                }
                return Err(Error::Unsupported(why));
            }
        };
        for leg in &legs {
            let (setting, address) = plan.setting(leg.setting);
            route.stops += leg.hits;
            route.halts.push(Halt {
                hits: leg.hits,
                position: self.position(thread, leg.step)?,
                step: leg.step,
                at: Some((Arc::clone(&setting.module), setting.offset)),
                setting,
                pc: address,
            });
        }
        // Where an access leads is only known at that step.
        let mut accesses = (route.halts.iter_mut().filter(|h| h.setting.data)).peekable();
        if let Some(first) = accesses.peek() {
            let last = legs.iter().rev().find(|l| plan.is_data(l.setting));
            let range = (first.step, last.map_or(steps, |l| l.step));
            fine::each(self, thread, range, cancel, |step, m| {
                if let Some(h) = accesses.next_if(|h| h.step == step) {
                    h.pc = m.registers().rip;
                    h.at = plan.in_file(h.pc, step);
                }
                true
            })?;
        }
        Ok(())
    }
}
