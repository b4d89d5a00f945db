//! Descriptors that come over a socket.

use super::number;
use super::pass::Call;
use crate::{Cursor, Result};
use hindsight_syscalls::abi;

/// The size of an entry of `recvmmsg`, and where in it, as in `struct msghdr`, the address and the length of the control
/// messages stand.
const MESSAGE: u64 = 64;
const CONTROL: u64 = 32;
const CONTROL_LEN: u64 = 40;
/// The length of the head of a control message, and the kind of one that a process's descriptor comes with.
const HEAD: u64 = 16;
const SCM_PIDFD: u64 = 4;
/// More messages are not looked at.
const MOST: u64 = 1024;

/// Whether a call that succeeded may have made descriptors of a message.
pub fn receives(cursor: &mut Cursor, call: &Call) -> Result<bool> {
    let count = match (call.number, call.result) {
        (abi::__NR_recvmsg, Some(_)) => 1,
        (abi::__NR_recvmmsg, Some(n)) => n,
        _ => return Ok(false),
    };
    for i in 0..count.min(MOST) {
        if message(cursor, call, call.args[1].wrapping_add(MESSAGE * i))? {
            return Ok(true);
        }
    }
    Ok(count > MOST)
}

fn message(cursor: &mut Cursor, call: &Call, at: u64) -> Result<bool> {
    let mut word = |at: u64, len: usize| number(cursor, call.at(), (at, len), true);
    let Some(len) = word(at.wrapping_add(CONTROL_LEN), 8)? else {
        return Ok(true);
    };
    if len == 0 {
        return Ok(false);
    }
    let Some(control) = word(at.wrapping_add(CONTROL), 8)? else {
        return Ok(true);
    };
    let mut done = 0u64;
    for _ in 0..MOST {
        if done.saturating_add(HEAD) > len {
            return Ok(false);
        }
        let head = control.wrapping_add(done);
        let own = word(head, 8)?;
        let level = word(head.wrapping_add(8), 4)?;
        let kind = word(head.wrapping_add(12), 4)?;
        let (Some(own), Some(level), Some(kind)) = (own, level, kind) else {
            return Ok(true);
        };
        let brings = [abi::SCM_RIGHTS as u64, SCM_PIDFD].contains(&kind);
        if level == abi::SOL_SOCKET as u64 && brings {
            return Ok(true);
        }
        if own < HEAD {
            return Ok(true);
        }
        // The next one is aligned.
        done = done.saturating_add(own.saturating_add(7) & !7);
    }
    Ok(true)
}
