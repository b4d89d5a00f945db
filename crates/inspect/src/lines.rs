//! Steps by source line.

use crate::{Inspector, Result, View, arguments};
use hindsight_symbols::{SourceLine, Space};
use hindsight_timeline::{
    Breakpoint, Choice, Cursor, Direction, Reason, Scope, Stop, Stops, ThreadId,
};
use std::ops::Range;

/// After so many instructions in a line it is found out where that is left. Most steps are over before.
const SOON: u32 = 64;
/// So far to either side the code of a line is looked for, in bytes.
const WIDEST: u64 = 4096;

/// Where an instruction stands in the source.
#[derive(Clone, PartialEq)]
struct Spot {
    pc: u64,
    /// The file and the line. `None`: not known.
    line: Option<(String, u32)>,
    /// What names the frame: its canonical address.
    frame: Option<u64>,
    /// It is the first instruction of a part of the line, as debug information has it.
    begins: bool,
    /// What stands before it in memory belongs to the line, too. That may be a call, from which it has returned.
    goes_on: bool,
}

/// The code of a line that lies together.
struct Stretch {
    code: Range<u64>,
    /// Where it is left: see [`Cursor::exits`].
    exits: Vec<u64>,
}

impl Stretch {
    /// Whether a run from there stops when the code is left.
    fn is_inside(&self, pc: u64) -> bool {
        self.code.contains(&pc) && !self.exits.contains(&pc)
    }
}

impl Spot {
    fn is_same(&self, other: &Spot) -> bool {
        (&self.line, self.frame) == (&other.line, other.frame)
    }

    /// Whether the other one called this one, directly or not: the stack grows down.
    fn is_called_from(&self, other: &Spot) -> bool {
        matches!((self.frame, other.frame), (Some(own), Some(its)) if own < its)
    }
}

impl Inspector {
    /// Goes on in the cursor's thread to another source line, as debuggers do. `into`: also into functions that are called, if
    /// their lines are known. Otherwise a call is a part of its line. Code that is inlined has lines of its own.
    ///
    /// - Forwards it stops at the beginning of a line. In a function that was called that is behind what sets the frame up.
    /// - Backwards it stops at the first instruction of the line that was executed before. Amid a line that is the line itself.
    ///
    /// Where no line is known, it leaves the function first.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn step_line(
        &mut self,
        cursor: &mut Cursor,
        direction: Direction,
        into: bool,
    ) -> Result<Stop> {
        let home = (cursor.thread(), cursor.count());
        let stop = match direction {
            Direction::Forward => self.line_forward(cursor, into),
            Direction::Backward => self.line_backward(cursor, into),
        };
        // As runs do.
        if !matches!(&stop, Ok(s) if s.reason != Reason::Cancelled) {
            cursor.seek_count(home.0, home.1)?;
        }
        stop
    }

    fn line_forward(&mut self, cursor: &mut Cursor, into: bool) -> Result<Stop> {
        let mut start = self.spot(cursor)?;
        let (mut steps, mut pc, mut stretch) = (0, start.pc, None);
        loop {
            steps += 1;
            if steps == SOON {
                stretch = self.stretch(cursor)?;
            }
            let mut stop = match &stretch {
                Some(s) if s.is_inside(pc) => run(cursor, s, into)?,
                _ => one(cursor, Direction::Forward, into)?,
            };
            let mut now = self.spot(cursor)?;
            // Also out of what was called, if that is a part of the line, and out of handlers of signals.
            while stop.reason == Reason::Step
                && (now.line.is_none() || !into && now.is_called_from(&start))
            {
                stop = cursor.step_out(Direction::Forward)?;
                now = self.spot(cursor)?;
            }
            if stop.reason != Reason::Step {
                return Ok(stop);
            }
            pc = now.pc;
            if now.is_same(&start) {
                continue;
            }
            if now.is_called_from(&start) {
                return self.go_to_body(cursor, stop);
            }
            if now.begins {
                return Ok(stop);
            }
            // Amid another line, as behind a jump or a call: its end is what counts now.
            (start, steps, stretch) = (now, 0, None);
        }
    }

    /// The code of the line around the cursor, if one can tell where it is left.
    fn stretch(&mut self, cursor: &mut Cursor) -> Result<Option<Stretch>> {
        let space = self.here(cursor)?;
        let pc = cursor.registers()?.rip;
        let line_of = |at: u64| source(&space, at).map(|s| (s.file, s.line));
        let line = line_of(pc);
        let is_same = |at: &u64| line_of(*at) == line;
        let before = (pc.saturating_sub(WIDEST)..pc).rev().take_while(is_same);
        let begin = before.last().unwrap_or(pc);
        let after = (pc..pc.saturating_add(WIDEST)).take_while(is_same);
        let end = after.last().unwrap_or(pc).saturating_add(1);
        let exits = cursor.exits(begin, end)?;
        Ok(exits.map(|exits| Stretch {
            code: begin..end,
            exits,
        }))
    }

    /// Goes on to the body of the function that has just been called.
    fn go_to_body(&mut self, cursor: &mut Cursor, stop: Stop) -> Result<Stop> {
        let pc = cursor.registers()?.rip;
        let body = self.body(cursor.image(), pc)?;
        if body == pc {
            return Ok(stop);
        }
        let mut stops = Stops {
            breakpoints: vec![Breakpoint {
                thread: Some(cursor.thread()),
                ..Breakpoint::at(0, body)
            }],
            ..Stops::default()
        };
        let there = cursor.run(Direction::Forward, Scope::Thread, &mut stops)?;
        Ok(match there.reason {
            Reason::Breakpoint { .. } => Stop {
                reason: Reason::Step,
                ..there
            },
            _ => there,
        })
    }

    fn line_backward(&mut self, cursor: &mut Cursor, into: bool) -> Result<Stop> {
        let (mut stop, mut now) = match self.back(cursor, into)? {
            (stop, Some(now)) => (stop, now),
            (stop, None) => return Ok(stop),
        };
        // To the first instruction of this line: the one before is of another.
        loop {
            let here = (cursor.thread(), cursor.count());
            let (before, spot) = self.back(cursor, into)?;
            match spot {
                Some(spot) if spot.is_same(&now) => (stop, now) = (before, spot),
                // It has come out of a call in this line, or else in the one before.
                Some(spot) if into && now.goes_on && spot.is_called_from(&now) => {
                    (stop, now) = (before, spot);
                }
                _ if before.reason == Reason::Cancelled => return Ok(before),
                _ => return leave_at(cursor, here, stop),
            }
        }
    }

    /// One step back, and out of functions without lines. `None`: it did not end with a step.
    fn back(&mut self, cursor: &mut Cursor, into: bool) -> Result<(Stop, Option<Spot>)> {
        let mut stop = one(cursor, Direction::Backward, into)?;
        loop {
            if stop.reason != Reason::Step {
                return Ok((stop, None));
            }
            let now = self.spot(cursor)?;
            if now.line.is_some() {
                return Ok((stop, Some(now)));
            }
            stop = cursor.step_out(Direction::Backward)?;
        }
    }

    fn spot(&mut self, cursor: &mut Cursor) -> Result<Spot> {
        let space = self.here(cursor)?;
        let r = arguments::registers(cursor)?;
        let here = source(&space, r.rip);
        let before = source(&space, r.rip.wrapping_sub(1));
        // A line may have several parts.
        let begins = here != before;
        let line_of = |s: SourceLine| (s.file, s.line);
        let (line, before) = (here.map(line_of), before.map(line_of));
        let frame = View::at(cursor, |view| {
            space.backtrace(&r, &mut |at| view.word(at), 1)
        })?;
        Ok(Spot {
            pc: r.rip,
            frame: frame.first().and_then(|f| f.cfa),
            begins,
            goes_on: line == before,
            line,
        })
    }
}

/// What stands at an address in the source, if its line is known.
fn source(space: &Space, at: u64) -> Option<SourceLine> {
    let innermost = space.frames(at).into_iter().next();
    innermost.and_then(|f| f.source).filter(|s| s.line > 0)
}

/// Goes to where a line is left. In place of where a signal comes, one instruction further.
fn run(cursor: &mut Cursor, within: &Stretch, into: bool) -> Result<Stop> {
    let thread = Some(cursor.thread());
    let exit = |at: &u64| Breakpoint {
        thread,
        ..Breakpoint::at(0, *at)
    };
    let mut stops = Stops {
        breakpoints: within.exits.iter().map(exit).collect(),
        signals: Choice::All,
        ..Stops::default()
    };
    let stop = cursor.run(Direction::Forward, Scope::Thread, &mut stops)?;
    match stop.reason {
        Reason::Signal { .. } => Ok(one(cursor, Direction::Forward, into)?),
        Reason::Breakpoint { .. } => Ok(Stop {
            reason: Reason::Step,
            ..stop
        }),
        _ => Ok(stop),
    }
}

fn one(cursor: &mut Cursor, direction: Direction, into: bool) -> hindsight_timeline::Result<Stop> {
    match into {
        true => cursor.step(direction, Scope::Thread),
        false => cursor.step_over(direction),
    }
}

/// Goes back to where the cursor was before its last step.
fn leave_at(cursor: &mut Cursor, (thread, count): (ThreadId, u64), stop: Stop) -> Result<Stop> {
    cursor.seek_count(thread, count)?;
    Ok(Stop {
        thread,
        position: cursor.position()?,
        ..stop
    })
}
