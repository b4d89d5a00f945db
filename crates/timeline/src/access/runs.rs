//! Tells which instructions a thread executed, many at once.

use crate::engine::Engine;
use crate::model::error::replay;
use crate::play::begins;
use crate::{Cancel, Error, Result, ThreadId};
use hindsight_replay::{Machine, Run, Stop, Taken};
use std::sync::Arc;

/// What is known of instructions that a thread executed one after the other.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Executed<'a> {
    /// The number of instructions that the thread had completed before.
    pub count: u64,
    /// Where the kernel let the thread go on before the first one, in this order: the instruction before did not lead there. The
    /// first one stands at the last of these.
    pub entries: &'a [Entry],
    /// A signal came while the only instruction, which is a string instruction, had done a part of its work. What comes next has
    /// the same count.
    pub interrupted: bool,
    machine: &'a Machine<'static>,
    epoch: u64,
}

/// A place at which the kernel lets a thread go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its address.
    pub pc: u64,
    /// A signal's handler begins there.
    pub handler: bool,
}

impl std::fmt::Debug for Executed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "from {} on, in epoch {}", self.count, self.epoch)
    }
}

impl Executed<'_> {
    /// Copies the code at an address as it was executed. Returns how many bytes are known.
    pub fn code(&self, pc: u64, buf: &mut [u8]) -> usize {
        self.machine.code_in(self.epoch, pc, buf)
    }

    /// Tells of which code this is. Numbers differ where the program has changed code in between.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The pages (their addresses) on which code differs from that of another epoch.
    pub fn changed_since(&self, epoch: u64) -> Vec<u64> {
        self.machine.changed_code(epoch, self.epoch)
    }
}

/// Plays one thread forwards, and tells which instructions it executes. Translated code takes about twice as long as without. The
/// interpreter tells one instruction at a time.
/// Instructions in gaps are not told.
pub struct Runs {
    engine: Arc<Engine>,
    thread: ThreadId,
    machine: Option<Machine<'static>>,
    cancel: Cancel,
    /// First and last instruction count of the thread.
    from: u64,
    to: u64,
}

impl Runs {
    pub(crate) fn new(engine: &Arc<Engine>, thread: ThreadId, cancel: Cancel) -> Result<Runs> {
        let ranges = engine.part_ranges_of(thread);
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Err(Error::NoThread(thread));
        };
        Ok(Runs {
            engine: Arc::clone(engine),
            thread,
            machine: None,
            cancel,
            from: first.from,
            to: last.to,
        })
    }

    /// Shows what the thread executes from the instant at which it has completed `from` instructions up to `until`. Where it goes
    /// on from where it stopped before, nothing has to be played again. Ends early when `visit` returns false.
    ///
    /// # Errors
    /// The stream cannot be replayed, or it was cancelled.
    pub fn play(
        &mut self,
        (from, until): (u64, u64),
        mut visit: impl FnMut(&Executed, &mut Taken) -> bool,
    ) -> Result<()> {
        let (from, until) = (from.max(self.from), until.min(self.to));
        if from >= until {
            return Ok(());
        }
        let mut machine = match self.machine.take().filter(|m| m.position() == from) {
            Some(m) => m,
            None => self.begin(from)?,
        };
        let fail = |e| replay(self.thread, e);
        machine.hold().map_err(fail)?;
        let done = self.visit(&mut machine, until, &mut visit);
        machine.release();
        if done? {
            self.machine = Some(machine);
        }
        Ok(())
    }

    /// Instruction counts, ascending, at which [`Runs::play`] can begin at once. It has to play up to others. The first one is
    /// that of the thread's beginning.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn starts(&self) -> Result<Vec<u64>> {
        let all = begins(&self.engine, self.thread, (self.from, self.to))?;
        Ok(all.into_keys().collect())
    }

    /// A machine that has completed `from` instructions.
    fn begin(&self, from: u64) -> Result<Machine<'static>> {
        let mut machine = self.engine.logging(self.thread)?;
        machine.digests_only();
        let all = begins(&self.engine, self.thread, (from, from + 1))?;
        // What a string instruction did before a signal, at the same instant as a key frame, comes before that.
        let before = match self.engine.scan(self.thread)?.interrupts(from) && from > self.from {
            true => all.range(..from).next_back(),
            false => all.range(..=from).next_back(),
        };
        let Some((_, begin)) = before else {
            return Err(Error::NoThread(self.thread));
        };
        let cancel = &self.cancel;
        let go_on = |_| !cancel.is_cancelled();
        begin.start(&self.engine, self.thread, &mut machine, &go_on)?;
        let fail = |e| replay(self.thread, e);
        while machine.position() < from {
            self.cancel.check()?;
            let stop = machine.log_to(from, |_, _| {}).map_err(fail)?;
            if stop != Stop::Position {
                break;
            }
        }
        Ok(machine)
    }

    /// Returns whether the machine stands where all that was shown ends.
    fn visit(
        &self,
        m: &mut Machine<'static>,
        until: u64,
        visit: &mut impl FnMut(&Executed, &mut Taken) -> bool,
    ) -> Result<bool> {
        let scan = self.engine.scan(self.thread)?;
        let fail = |e| replay(self.thread, e);
        let (mut entries, mut later): (Vec<Entry>, Vec<Entry>) = Default::default();
        // Up to here nothing but instructions happens.
        let mut turn = scan.next_turn(m.position());
        while m.position() < until {
            self.cancel.check()?;
            let count = m.position();
            if count >= turn {
                if scan.interrupts(count)
                    && let Some(mut run) = begin_string(m).map_err(fail)?
                {
                    let shown = Executed {
                        count,
                        entries: &entries,
                        interrupted: true,
                        machine: m,
                        epoch: m.epoch(),
                    };
                    if !visit(&shown, &mut Taken::one(&mut run)) {
                        return Ok(false);
                    }
                    entries.clear();
                }
                entries.append(&mut later);
                entries.extend(scan.entries(count).map(|pc| Entry {
                    pc,
                    handler: scan.handles(count, pc),
                }));
                m.settle().map_err(fail)?;
                turn = scan.next_turn(count + 1);
                // The call that returns from a handler comes first.
                let here = m.registers().rip;
                if let Some(last) = entries.pop_if(|e| !e.handler && e.pc != here) {
                    later.push(last);
                    turn = count + 1;
                }
            }
            let epoch = m.epoch();
            if m.in_gap() {
                // What comes behind the gap, nobody led the thread to.
                entries.clear();
            }
            let (mut goes_on, mut shows) = (true, false);
            let stop = m.log_to(until.min(turn), |machine, runs| {
                let shown = Executed {
                    count,
                    entries: &entries,
                    interrupted: false,
                    machine,
                    epoch,
                };
                goes_on = visit(&shown, runs);
                shows = true;
            });
            if shows {
                entries.clear();
            }
            if stop.map_err(fail)? != Stop::Position || !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// If the next instruction is a string instruction that is interrupted here, lets it do its part of the work.
fn begin_string(
    m: &mut Machine<'static>,
) -> std::result::Result<Option<Run>, hindsight_replay::Error> {
    m.settle()?;
    let pc = m.registers().rip;
    Ok(m.begin_string()?.then_some(Run::alone(pc)).flatten())
}
