//! A recorded call or signal, and the memory that a call was given.

use crate::Result;
use hindsight_timeline::{Cursor, Position, ThreadId};

/// A call that has succeeded, or a signal.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    pub thread: ThreadId,
    pub count: u64,
    pub position: Position,
    pub what: Did,
}

#[derive(Clone, Copy, Debug)]
pub enum Did {
    Call {
        number: u64,
        args: [u64; 6],
        result: Option<u64>,
    },
    Signal(u8),
}

/// Memory before a call, if all of it is known.
pub fn bytes(cursor: &mut Cursor, p: &Past, address: u64, len: usize) -> Result<Option<Vec<u8>>> {
    let found = cursor.around_call((p.thread, p.count), (address, len), false)?;
    let whole: Option<Vec<u8>> = found.into_iter().collect();
    Ok(whole.filter(|b| b.len() == len))
}

/// Eight bytes of what was read.
pub fn word(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..at + 8);
    part.and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}
