//! What came with a signal.

use hindsight_timeline::regs::{RDX, RSI};
use hindsight_timeline::{Cursor, Direction, Result, Scope};

/// Bytes of the kernel's `siginfo_t`.
pub const SIGNAL_INFO_LEN: usize = 128;
/// In `struct rt_sigframe`: from the context to the information.
const BEHIND_CONTEXT: u64 = 304;

/// What the recording says of each signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalInfo {
    /// Number of the signal, from 1.
    pub number: u8,
    /// `si_code` of `siginfo_t`.
    pub code: i32,
    /// `si_addr`.
    pub address: u64,
}

impl SignalInfo {
    /// The kernel's `siginfo_t` of this signal, which is delivered where the cursor stands. It is whole if a handler got
    /// it. Otherwise it has what the recording says of each signal.
    pub fn whole(self, at: &Cursor) -> [u8; SIGNAL_INFO_LEN] {
        let mut known = [0; SIGNAL_INFO_LEN];
        known[0] = self.number;
        known[8..12].copy_from_slice(&self.code.to_le_bytes());
        known[16..24].copy_from_slice(&self.address.to_le_bytes());
        match self.given(at) {
            Ok(Some(full)) => full,
            Ok(None) | Err(_) => known,
        }
    }

    /// What the kernel put on the stack for the handler. The handler's second argument points to it, and it lies behind the
    /// third. After the handler's first instruction at least one of these registers is as it was. Otherwise there is no
    /// result.
    fn given(self, at: &Cursor) -> Result<Option<[u8; SIGNAL_INFO_LEN]>> {
        let mut cursor = at.timeline().cursor()?;
        cursor.seek_count(at.thread(), at.count())?;
        cursor.step(Direction::Forward, Scope::Thread)?;
        let gpr = cursor.registers()?.gpr;
        for place in [gpr[RSI], gpr[RDX].wrapping_add(BEHIND_CONTEXT)] {
            let bytes = cursor.known_memory(place, SIGNAL_INFO_LEN)?.whole();
            let Some(bytes) = bytes.and_then(|b| <[u8; SIGNAL_INFO_LEN]>::try_from(b).ok()) else {
                continue;
            };
            let (number, code) = (self.number as u32, self.code);
            if bytes[..4] == number.to_le_bytes() && bytes[8..12] == code.to_le_bytes() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}
