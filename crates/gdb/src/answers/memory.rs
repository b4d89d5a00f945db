//! Memory: `m`, `M`, `X`.

use crate::Result;
use crate::answers::or_trouble;
use crate::state::session::Session;
use hindsight_packets::{Answer, Memory, Tid};

/// The value is not known, or the program could not write there: EFAULT.
const UNKNOWN: u8 = 14;

pub fn answer(session: &mut Session, tid: Tid, request: Memory) -> Answer {
    or_trouble(match request {
        Memory::Read { address, len } => read(session, address, len),
        Memory::Write { address, bytes } => write(session, tid, address, &bytes),
    })
}

fn read(session: &mut Session, address: u64, len: usize) -> Result<Answer> {
    let known = session.read_completed(address, len)?;
    Ok(match known.is_empty() && len > 0 {
        true => Answer::error(UNKNOWN),
        false => Answer::hex(&known),
    })
}

fn write(session: &mut Session, tid: Tid, address: u64, bytes: &[u8]) -> Result<Answer> {
    // gdb writes back what it has not changed. What is only carried becomes known if somebody writes it.
    let written =
        session.read(address, bytes.len())? == bytes || session.write(tid, address, bytes)?;
    Ok(match written {
        true => Answer::ok(),
        false => Answer::error(UNKNOWN),
    })
}
