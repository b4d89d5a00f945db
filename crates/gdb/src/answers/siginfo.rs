//! What came with a signal.

use crate::Result;
use crate::state::session::Session;
use crate::state::stops::SignalInfo;
use hindsight_isa::regs::{RDX, RSI};
use hindsight_timeline::{Direction, Scope};

/// Bytes of the kernel's `siginfo_t`.
const LEN: usize = 128;
/// In `struct rt_sigframe`: from the context to the information.
const BEHIND_CONTEXT: u64 = 304;

/// The kernel's `siginfo_t`. It is whole if a handler got it. Otherwise it has what the recording says of each signal.
pub fn of(session: &Session, s: SignalInfo) -> [u8; LEN] {
    let mut known = [0; LEN];
    known[0] = s.number;
    known[8..12].copy_from_slice(&s.code.to_le_bytes());
    known[16..24].copy_from_slice(&s.address.to_le_bytes());
    match given(session, s) {
        Ok(Some(full)) => full,
        Ok(None) | Err(_) => known,
    }
}

/// What the kernel put on the stack for the handler. The handler's second argument points to it, and it lies behind the
/// third. After the handler's first instruction at least one of these registers is as it was. Otherwise there is no
/// result.
fn given(session: &Session, s: SignalInfo) -> Result<Option<[u8; LEN]>> {
    let at = &session.inferior.cursor;
    let mut cursor = session.timeline.cursor()?;
    cursor.seek_count(at.thread(), at.count())?;
    cursor.step(Direction::Forward, Scope::Thread)?;
    let gpr = cursor.registers()?.gpr;
    for place in [gpr[RSI], gpr[RDX].wrapping_add(BEHIND_CONTEXT)] {
        let bytes = cursor.known_memory(place, LEN)?.whole();
        let Some(bytes) = bytes.and_then(|b| <[u8; LEN]>::try_from(b).ok()) else {
            continue;
        };
        let (number, code) = (s.number as u32, s.code);
        if bytes[..4] == number.to_le_bytes() && bytes[8..12] == code.to_le_bytes() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}
