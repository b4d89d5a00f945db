//! Steps out of a stretch of code.

use crate::Result;
use crate::state::session::Session;
use crate::state::stops::SIGNALS;
use crate::state::told::Told;
use hindsight_timeline::{Breakpoint, Choice, Direction, Reason, Scope, Stops};

/// Most instructions of one range step. Then gdb hears where the program is.
const MAX: u32 = 1 << 20;
/// Instructions after which a range step looks for the exits of its range. Most steps are over before.
const SOON: u32 = 64;

impl Session {
    /// Steps until the thread leaves the code at `start..end`, or there is something to tell.
    pub(crate) fn step_range(&mut self, start: u64, end: u64) -> Result<Told> {
        let mut exits = None;
        for n in 1..=MAX {
            if n.is_multiple_of(SOON) && self.inferior.borrowed.is_none() {
                let exits = match &exits {
                    Some(known) => known,
                    None => exits.insert(self.inferior.cursor.exits(start, end)?),
                };
                if let Some(exits) = exits.clone()
                    && let Some(told) = self.run_to_exit(start..end, exits)?
                {
                    return Ok(told);
                }
            }
            let told = self.step(Direction::Forward)?;
            if told != self.trap() || !self.is_within(start..end)? || self.cancel.is_cancelled() {
                return Ok(told);
            }
        }
        Ok(self.trap())
    }

    /// Whether the cursor is in a stretch of code, and at no breakpoint.
    fn is_within(&mut self, range: std::ops::Range<u64>) -> Result<bool> {
        let pc = self.inferior.cursor.registers()?.rip;
        Ok(range.contains(&pc) && !self.inferior.breaks.iter().any(|b| b.address == pc))
    }

    /// Runs to an exit of the range, or to anything else that a single step would stop at. `None`: nothing is to tell,
    /// and single steps go on from there.
    fn run_to_exit(
        &mut self,
        range: std::ops::Range<u64>,
        exits: Vec<u64>,
    ) -> Result<Option<Told>> {
        let cancel = self.cancel.clone();
        let breaks = self.inferior.breaks.iter().map(|b| b.address);
        let mut stops = Stops {
            breakpoints: (exits.into_iter().chain(breaks))
                .map(|a| Breakpoint::at(0, a))
                .collect(),
            watchpoints: self.inferior.watches.clone(),
            signals: Choice::Only(SIGNALS.collect()),
            ..Stops::default()
        };
        let cursor = &mut self.inferior.cursor;
        let stop = cursor.cancellable(&cancel, |c| {
            c.run(Direction::Forward, Scope::Thread, &mut stops)
        })?;
        match stop.reason {
            Reason::Watchpoint { .. } | Reason::Cancelled => self.tell(stop).map(Some),
            _ if self.is_within(range)? => Ok(None),
            _ => Ok(Some(self.trap())),
        }
    }
}
