//! The value of memory at a position.

use crate::memory::*;
use crate::player::Player;
use crate::{Cursor, Result};

/// See [`Cursor::memory`].
pub fn memory(cursor: &mut Cursor, address: u64, len: usize) -> Result<Memory> {
    let mut m = Memory {
        address,
        bytes: vec![None; len],
        candidates: Vec::new(),
    };
    code(cursor.here()?, &mut m);
    Ok(m)
}

/// Fills in what is known because it was executed.
fn code(p: &Player, m: &mut Memory) {
    let mut one = [0];
    for (i, b) in m.bytes.iter_mut().enumerate().filter(|b| b.1.is_none()) {
        if p.code(m.address.wrapping_add(i as u64), &mut one) == 1 {
            *b = Some(Known {
                value: one[0],
                ground: Ground::Code,
            });
        }
    }
}

/// Memory as a condition sees it; `false` if any of it is unknown.
pub fn read(p: &mut Player, address: u64, buf: &mut [u8]) -> Result<bool> {
    Ok(p.code(address, buf) == buf.len())
}
