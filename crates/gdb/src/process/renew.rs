//! A recording that is still being written: takes in what has come.

use crate::state::inferior;
use crate::state::session::Session;
use crate::{Error, Result};
use hindsight_timeline::{Ending, Position};
use hindsight_trace::Completeness;

impl Session {
    /// Reads what was written since the recording was opened. All processes stay where they stand. The answer is what
    /// came of it, in words.
    pub fn renew(&mut self) -> Result<String> {
        let before = self.timeline.range()?.1;
        if self.completeness() != Completeness::Complete {
            let new = self.timeline.renewed()?;
            if let Some(tell) = &self.renewed {
                tell(&new);
            }
            // If one of them cannot be taken over, all stay as they are.
            let all = std::iter::once(&self.inferior).chain(&self.parked);
            let moved = all.map(|i| {
                let mut cursor = new.cursor()?;
                let (thread, count) = (i.cursor.thread(), i.cursor.count());
                cursor.cancellable(&self.cancel, |c| c.seek_count(thread, count))?;
                Ok(cursor)
            });
            let moved = moved.collect::<Result<Vec<_>>>()?;
            let tids = inferior::tids(&new)?;
            self.leave_side()?;
            let sides = self.parked.iter().filter(|i| i.side.is_some()).count();
            if sides > 0 {
                self.notes.push(format!(
                    "[the side branches of {sides} other processes are thrown away]"
                ));
            }
            (self.timeline, self.tids) = (new, tids);
            self.carrying.forget();
            let all = std::iter::once(&mut self.inferior).chain(&mut self.parked);
            for (i, cursor) in all.zip(moved) {
                (i.cursor, i.side) = (cursor, None);
            }
            (self.signals, self.renewals) = (None, self.renewals + 1);
            self.begin()?;
            for i in 0..self.parked.len() {
                std::mem::swap(&mut self.inferior, &mut self.parked[i]);
                let begun = self.begin();
                std::mem::swap(&mut self.inferior, &mut self.parked[i]);
                begun?;
            }
        }
        self.told_of(before)
    }

    fn completeness(&self) -> Completeness {
        self.timeline.trace().completeness()
    }

    fn told_of(&self, before: Position) -> Result<String> {
        let now = self.timeline.range()?.1;
        let end = match now == before {
            true => format!("the recording ends at {now}, as before"),
            false => format!("the recording ends at {now} now; before, it ended at {before}"),
        };
        Ok(match self.completeness() {
            Completeness::Growing => format!("{end}; it is still being written\n"),
            c => format!("{end}; it is {c}\n"),
        })
    }

    /// Whether the process goes on behind what the session knows.
    pub fn is_growing(&self) -> Result<bool> {
        if !self.timeline.is_growing() {
            return Ok(false);
        }
        let threads = self.timeline.threads()?;
        let mut mine = threads.iter().filter(|t| self.inferior.has(t));
        Ok(mine.any(|t| t.ending == Ending::Unknown))
    }

    /// What is said of the end of a recording that goes on.
    pub fn how_to_go_on(&self) -> Result<String> {
        let end = self.timeline.range().map_err(Error::from)?.1;
        Ok(format!(
            "[the recording is still being written; {end} was its end when it was read. `monitor renew` takes in what has \
             come since]"
        ))
    }
}
