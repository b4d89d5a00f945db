//! The times that the program was told. Programs ask the kernel's code in their memory (vDSO), which makes no system call. It
//! reads the processor's counter, which the stream tells.

use super::Error;
use crate::wire::{Call, Written};
use hindsight_timeline::regs::{RDI, RSI};
use hindsight_timeline::{Cursor, ThreadId, Timeline};
use std::ops::Range;

/// Instructions of the kernel's code before the counter is read, and behind it, at most.
const LONGEST: u64 = 400;
/// Smaller numbers are those of clocks.
const CLOCKS: u64 = 64;

/// The processor's counter was read.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// After so many instructions.
    pub count: u64,
    /// Behind what has this place in the order of all threads.
    pub order: u64,
    /// The place of what the thread did first behind the call before.
    pub from: u64,
}

/// The clock of a thread.
pub struct Clocks {
    timeline: Timeline,
    thread: ThreadId,
    started: u64,
    /// The kernel's code. `None`: it is not known where it is.
    code: Option<Range<u64>>,
    /// Where it was entered, how many instructions that was before the counter was read, and how many behind it the code
    /// was left.
    ways: Vec<(u64, u64, u64)>,
    /// Where it was entered last. It reads the counter again if the kernel changed the time in between.
    entered: Option<u64>,
}

impl Clocks {
    pub fn new(timeline: &Timeline, thread: ThreadId) -> Result<Clocks, Error> {
        let t = timeline.thread(thread)?;
        let mappings = timeline.mappings(t.image, t.last)?;
        let code = mappings.iter().find(|m| m.path == "[vdso]");
        Ok(Clocks {
            timeline: timeline.clone(),
            thread,
            started: timeline.started_ms().saturating_mul(1_000_000),
            code: code.map(|m| m.start..m.end),
            ways: Vec::new(),
            entered: None,
        })
    }

    /// About when an instant was, in nanoseconds since 1970.
    pub fn time(&self, count: u64) -> u64 {
        let position = self.timeline.position(self.thread, count);
        let moment = position.and_then(|p| self.timeline.when(p)).ok().flatten();
        let since = moment.map_or(0, |m| m.estimate.as_nanos().min(u64::MAX as u128) as u64);
        self.started.saturating_add(since)
    }

    /// What the program asked of the clock where it read the processor's counter after so many instructions, as if it had made
    /// a system call. `None`: the program itself read the counter, or the kernel's code did so again.
    pub fn asked(&mut self, cursor: &mut Cursor, at: Counter) -> Result<Option<Call>, Error> {
        let call = self.told(cursor, at.count)?;
        self.entered = call.as_ref().map(|c| c.count).or(self.entered);
        Ok(call.map(|c| Call {
            order: at.order,
            from: at.from,
            ..c
        }))
    }

    fn told(&mut self, cursor: &mut Cursor, count: u64) -> Result<Option<Call>, Error> {
        let Some(code) = self.code.clone() else {
            return Ok(None);
        };
        // The way through the code is nearly always one that was seen before. To go back takes far longer than to go on, so the
        // longest way to the counter comes first.
        for n in 0..self.ways.len() {
            let (entry, before, behind) = self.ways[n];
            let Some(begin) = count.checked_sub(before) else {
                continue;
            };
            if self.at(cursor, begin)? == entry {
                let arguments = cursor.registers()?.gpr;
                let end = count.saturating_add(behind);
                let left = code.contains(&self.at(cursor, end.saturating_sub(1))?)
                    && !code.contains(&self.at(cursor, end)?);
                if left {
                    return self.call(cursor, (begin, end), arguments).map(Some);
                }
            }
        }
        if !code.contains(&self.at(cursor, count)?) {
            return Ok(None);
        }
        let mut begin = count;
        while begin > 0 && count - begin < LONGEST && code.contains(&self.at(cursor, begin - 1)?) {
            begin -= 1;
        }
        let mut end = count;
        while end - count < LONGEST && code.contains(&self.at(cursor, end)?) {
            end = end.saturating_add(1);
            if end == u64::MAX {
                return Ok(None);
            }
        }
        if count - begin == LONGEST || end - count == LONGEST {
            return Ok(None);
        }
        if self.entered == Some(begin) {
            return Ok(None);
        }
        let entry = self.at(cursor, begin)?;
        let arguments = cursor.registers()?.gpr;
        let before = count - begin;
        let place = self.ways.partition_point(|w| w.1 >= before);
        self.ways.insert(place, (entry, before, end - count));
        self.call(cursor, (begin, end), arguments).map(Some)
    }

    /// Where the thread is.
    fn at(&self, cursor: &mut Cursor, count: u64) -> Result<u64, Error> {
        cursor.seek_count(self.thread, count)?;
        Ok(cursor.registers()?.rip)
    }

    /// The system call that would have told the same.
    fn call(
        &self,
        cursor: &mut Cursor,
        (begin, end): (u64, u64),
        arguments: [u64; 16],
    ) -> Result<Call, Error> {
        let (first, second) = (arguments[RDI], arguments[RSI]);
        let is_clock =
            first < CLOCKS || first as i64 as i32 as i64 == first as i64 && (first as i64) < 0;
        let (number, at) = match is_clock {
            true => (libc::SYS_clock_gettime, second),
            false => (libc::SYS_gettimeofday, first),
        };
        cursor.seek_count(self.thread, end)?;
        let bytes = match at {
            0 => Vec::new(),
            at => {
                let m = cursor.known_memory(at, 16)?;
                m.bytes.iter().map(|b| b.map(|k| k.value)).collect()
            }
        };
        let written = match at {
            0 => Vec::new(),
            address => vec![Written { address, bytes }],
        };
        Ok(Call {
            count: begin,
            number: number as u64,
            args: [first, second, 0, 0, 0, 0],
            result: Some(0),
            time: self.time(begin),
            written,
            ..Call::default()
        })
    }
}
