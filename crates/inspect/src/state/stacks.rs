//! Memory that no thread can rely on: what lies below the ends of stacks, and what ended threads have left on theirs.
//!
//! Bytes there are often not known: what the instruction `xsavec` leaves unwritten depends on the processor, and the dynamic
//! linker executes it for the first call of each function.

use super::{MappedRange, ThreadState};
use crate::Result;
use hindsight_timeline::Cursor;
use hindsight_timeline::regs::RSP;
use std::ops::Range;

/// Below the stack pointer the next so many bytes are the function's own, too.
const RED_ZONE: u64 = 128;

/// What a thread of the process has left that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its thread id.
    pub tid: i32,
    /// The word that the kernel has cleared then; 0: none.
    pub clears: u64,
    /// Where its stack began and ended. `None`: that is not known.
    pub stack: Option<[u64; 2]>,
}

/// What is known of memory that is not told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// The program may read it.
    Needed,
    /// No program can rely on it.
    Left,
    /// It is zero.
    Zero,
}

/// The stacks of a process at an instant.
#[derive(Clone, Default, Debug)]
pub struct Stacks {
    /// Of living threads: from their lowest address to the red zone.
    below: Vec<Range<u64>>,
    ended: Vec<Ended>,
    pid: i32,
}

impl Stacks {
    /// The stacks of these threads. The first one is the process's first.
    pub fn new(
        pid: i32,
        threads: &[ThreadState],
        ended: Vec<Ended>,
        mappings: &[MappedRange],
    ) -> Stacks {
        let first = mappings.iter().find(|m| m.name == "[stack]");
        let first = first.map(|m| [m.start, m.end]);
        let below = threads.iter().enumerate().filter_map(|(n, t)| {
            let [start, end] = t.stack.or(first.filter(|_| n == 0))?;
            let pointer = *t.registers.get(RSP)?;
            // It may be on another one, such as that for signals.
            let there = (start..end).contains(&pointer);
            there.then(|| start..pointer.saturating_sub(RED_ZONE))
        });
        Stacks {
            below: below.collect(),
            ended,
            pid,
        }
    }

    /// What memory is that is not known where the cursor stands.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn rest(&self, cursor: &mut Cursor, address: u64, len: u64) -> Result<Rest> {
        let end = address.saturating_add(len);
        let inside = |r: &Range<u64>| r.start <= address && end <= r.end;
        if self.below.iter().any(inside) {
            return Ok(Rest::Left);
        }
        let word = |e: &Ended| e.clears != 0 && inside(&(e.clears..e.clears.saturating_add(4)));
        if self.ended.iter().any(word) {
            return Ok(Rest::Zero);
        }
        let on_its = |e: &&Ended| e.stack.is_some_and(|[start, end]| inside(&(start..end)));
        if !self.ended.iter().any(|e| on_its(&e)) {
            return Ok(Rest::Needed);
        }
        // Something else may lie there by now. Then somebody else has written to it.
        let Some(last) = cursor.last_write(address, len)? else {
            return Ok(Rest::Needed);
        };
        let thread = cursor.timeline().thread(last.thread)?;
        let is_its = |e: &Ended| (thread.pid, thread.tid) == (self.pid, e.tid);
        match self.ended.iter().filter(on_its).any(is_its) {
            true => Ok(Rest::Left),
            false => Ok(Rest::Needed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack counts only where its thread's pointer is in it.
    #[test]
    fn stacks_end_at_their_pointers() {
        let thread = |stack, pointer| {
            let mut registers = vec![0; 20];
            registers[RSP] = pointer;
            ThreadState {
                stack,
                registers,
                ..ThreadState::default()
            }
        };
        let main = MappedRange {
            start: 0x9000,
            end: 0xa000,
            name: "[stack]".into(),
            ..MappedRange::default()
        };
        let threads = [
            thread(None, 0x9800),
            thread(Some([0x1000, 0x2000]), 0x1f00),
            // On another stack, and one of which nobody knows the bounds.
            thread(Some([0x3000, 0x4000]), 0x8000),
            thread(None, 0x9900),
        ];
        let s = Stacks::new(7, &threads, Vec::new(), &[main]);
        assert_eq!(s.below, [0x9000..0x9780, 0x1000..0x1e80]);
    }
}
