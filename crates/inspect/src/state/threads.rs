//! What threads say of memory that is not known otherwise.
//!
//! - No thread can rely on what lies below the ends of stacks, and on what ended threads have left on theirs. Bytes there are often
//!   not known: what the instruction `xsavec` leaves unwritten depends on the processor, and the dynamic linker executes it for
//!   the first call of each function.
//! - The kernel may write what a call returns at any time until that has returned. A call that begins again has not written it yet.
//! - When a thread ends, the kernel clears a word.

use super::progress::InCall;
use super::{ProcessState, ThreadState};
use crate::Result;
use hindsight_syscalls::{Class, Memory, outputs};
use hindsight_timeline::regs::RSP;
use hindsight_timeline::{Cursor, Position, ThreadId};
use std::ops::Range;

/// Below the stack pointer the next so many bytes are the function's own, too.
const RED_ZONE: u64 = 128;
/// In longer stretches it is not looked for what an ended thread has left: each byte costs a question.
const MOST_LEFT: u64 = 4096;

/// What a thread of the process has left that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub thread: ThreadId,
    /// Where it ended.
    pub last: Position,
    /// The word that the kernel has cleared then; 0: none.
    pub clears: u64,
    /// Where its stack began and ended. `None`: that is not known.
    pub stack: Option<[u64; 2]>,
}

/// A thread in a call that begins again.
#[derive(Clone, Debug)]
struct Waiting {
    thread: ThreadId,
    count: u64,
    position: Position,
    /// What the call may write.
    writes: Vec<Range<u64>>,
}

/// Memory of which nothing is known.
struct Unseen;

impl Memory for Unseen {
    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

impl Waiting {
    /// What is known of this call.
    fn of(call: &InCall) -> Waiting {
        // As much as it was asked for. Buffers in lists are not found.
        let most = call.args[2].min(i64::MAX as u64) as i64;
        let mut writes = Vec::new();
        let class = outputs(call.number as u32, &call.args, most, &Unseen, &mut |w| {
            writes.push(w.addr..w.addr.saturating_add(w.len));
        });
        if class == Class::Unknown {
            writes.clear();
        }
        Waiting {
            thread: call.thread,
            count: call.count,
            position: call.position,
            writes,
        }
    }
}

/// What is known of memory that is not told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rest {
    /// The program may read it.
    Needed,
    /// No program can rely on it.
    Left,
    /// It is zero.
    Zero,
    /// It holds these bytes.
    Holds(Vec<u8>),
}

/// The threads of a process at an instant.
#[derive(Clone, Default, Debug)]
pub struct Threads {
    /// Of living threads: from their lowest address to the red zone.
    below: Vec<Range<u64>>,
    ended: Vec<Ended>,
    waiting: Vec<Waiting>,
}

impl Waiting {
    /// What memory held before the call, if nothing but the call can have changed it since.
    fn before(&self, cursor: &mut Cursor, address: u64, len: u64) -> Result<Rest> {
        let earlier = match cursor.last_write(address, len)? {
            Some(last) if last.thread == self.thread => last.count <= self.count,
            Some(last) => last.position < self.position,
            None => true,
        };
        if !earlier {
            return Ok(Rest::Needed);
        }
        let mut there = cursor.timeline().cursor()?;
        let found = there.around_call((self.thread, self.count), (address, len as usize), false)?;
        let whole: Option<Vec<u8>> = found.into_iter().collect();
        Ok(whole.map_or(Rest::Needed, Rest::Holds))
    }
}

impl Threads {
    /// The threads of a process, of which the first one is the process's first.
    pub fn new(state: &ProcessState, ended: Vec<Ended>, in_calls: &[InCall]) -> Threads {
        Threads {
            below: below(state),
            ended,
            waiting: in_calls.iter().map(Waiting::of).collect(),
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
        let word = |e: &&Ended| e.clears != 0 && inside(&(e.clears..e.clears.saturating_add(4)));
        if let Some(e) = self.ended.iter().rfind(word) {
            // Something else may lie there by now. Then somebody has written to it since.
            let last = cursor.last_write(address, len)?;
            return Ok(match last.is_none_or(|w| w.position <= e.last) {
                true => Rest::Zero,
                false => Rest::Needed,
            });
        }
        let writes = |w: &&Waiting| w.writes.iter().any(inside);
        if let Some(w) = self.waiting.iter().find(writes) {
            return w.before(cursor, address, len);
        }
        let on_its = |e: &&Ended| e.stack.is_some_and(|[start, end]| inside(&(start..end)));
        for e in self.ended.iter().filter(on_its) {
            if wrote_all(cursor, e.thread, address, len)? {
                return Ok(Rest::Left);
            }
        }
        Ok(Rest::Needed)
    }
}

/// Whether this thread was the last one that wrote, to each of these bytes.
fn wrote_all(cursor: &mut Cursor, thread: ThreadId, address: u64, len: u64) -> Result<bool> {
    if len > MOST_LEFT {
        return Ok(false);
    }
    let (mut at, end) = (address, address.saturating_add(len));
    while at < end {
        match cursor.last_write(at, 1)? {
            Some(last) if last.thread == thread => {}
            _ => return Ok(false),
        }
        at += 1;
    }
    Ok(true)
}

/// Memory below the stacks' ends. A stack counts only where its thread's pointer is in it: the thread may be on another one, such
/// as that for signals.
fn below(state: &ProcessState) -> Vec<Range<u64>> {
    let first = state.mappings.iter().find(|m| m.name == "[stack]");
    let first = first.map(|m| [m.start, m.end]);
    let of = |(n, t): (usize, &ThreadState)| {
        let [start, end] = t.stack.or(first.filter(|_| n == 0))?;
        let pointer = *t.registers.get(RSP)?;
        let on_alternate =
            |[at, _, size]: [u64; 3]| (at..at.saturating_add(size)).contains(&pointer);
        let there = (start..end).contains(&pointer) && !t.alternate.is_some_and(on_alternate);
        there.then(|| start..pointer.saturating_sub(RED_ZONE))
    };
    state.threads.iter().enumerate().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::MappedRange;

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
        let threads = vec![
            thread(None, 0x9800),
            thread(Some([0x1000, 0x2000]), 0x1f00),
            // On another stack, and one of which nobody knows the bounds.
            thread(Some([0x3000, 0x4000]), 0x8000),
            thread(None, 0x9900),
        ];
        let state = ProcessState {
            threads,
            mappings: vec![main],
            ..ProcessState::default()
        };
        assert_eq!(below(&state), [0x9000..0x9780, 0x1000..0x1e80]);
    }
}
