//! Finds who changed a register.

use crate::play::Player;
use crate::{Cursor, Position, Result, ThreadId};

/// This many instructions are looked at first, backwards from the cursor. Each next time, `MORE` times as many are, at
/// most `MOST`.
const FIRST: u64 = 1 << 10;
const MORE: u64 = 16;
const MOST: u64 = 1 << 22;
/// The number of instructions between two looks at the flag that cancels.
const OFTEN: u64 = 1 << 12;

/// An instruction that changed a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Changed {
    /// The thread that did it.
    pub thread: ThreadId,
    /// The instant before the instruction.
    pub position: Position,
    /// The number of instructions that the thread had completed there.
    pub count: u64,
    /// The instruction's address.
    pub pc: u64,
    /// What the register held before it, and after it.
    pub values: [u64; 2],
}

impl Cursor {
    /// The last instruction of the cursor's thread, before the cursor, that changed a general register. `register` is
    /// the register's hardware number. A system call that changed it counts, too. `None`: nothing changed it since the
    /// thread began.
    ///
    /// All instructions from there on are executed one by one. The cursor stays.
    pub fn last_register_change(&mut self, register: u8) -> Result<Option<Changed>> {
        let (thread, mut hi) = (self.thread(), self.count());
        let timeline = self.timeline().clone();
        let player = self.view.player(thread)?;
        let from = player.from;
        let mut size = FIRST;
        while hi > from {
            let lo = hi.saturating_sub(size).max(from);
            let found = player.with_helper(|p| last(p, (lo, hi), register))?;
            if let Some((count, pc, values)) = found {
                return Ok(Some(Changed {
                    thread,
                    position: timeline.position(thread, count)?,
                    count,
                    pc,
                    values,
                }));
            }
            hi = lo;
            size = (size * MORE).min(MOST);
        }
        Ok(None)
    }
}

type Last = (u64, u64, [u64; 2]);

/// The last of the instructions `lo..hi` that changed a register.
fn last(p: &mut Player, (lo, hi): (u64, u64), register: u8) -> Result<Option<Last>> {
    p.seek_straight(lo)?;
    p.set_breaks(Vec::new());
    p.prepared(|p| {
        let (mut before, mut found) = (p.registers(), None);
        while p.count() < hi {
            let count = p.count();
            if count.is_multiple_of(OFTEN) {
                p.cancel.check()?;
            }
            p.run(count + 1)?;
            if p.count() == count {
                break;
            }
            let now = p.registers();
            let values = [before, now].map(|r| r.gpr[register as usize & 15]);
            if values[0] != values[1] {
                found = Some((count, before.rip, values));
            }
            before = now;
        }
        Ok(found)
    })
}
