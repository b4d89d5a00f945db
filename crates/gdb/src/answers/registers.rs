//! Registers: `g`, `G`, `p`, `P`.

use crate::Result;
use crate::answers::{FAILED, TROUBLE, or_trouble};
use crate::state::arch;
use crate::state::session::Session;
use hindsight_packets::{Answer, Register, Tid};

/// This register cannot be changed, not even in a side branch: EPERM.
const CONSTANT: u8 = 1;

pub fn answer(session: &mut Session, tid: Tid, request: Register) -> Answer {
    let known = |n| arch::has_register(n);
    or_trouble(match request {
        Register::ReadAll => session.registers(tid).map(|r| Answer::hex(&r.all())),
        Register::WriteAll(bytes) => write_all(session, tid, &bytes),
        Register::Read(n) if known(n) => read(session, tid, n),
        Register::Write(n, bytes) if known(n) => write(session, tid, n, &bytes),
        Register::Read(_) | Register::Write(..) => Ok(Answer::unsupported()),
    })
}

fn read(session: &mut Session, tid: Tid, n: usize) -> Result<Answer> {
    let value = session.registers(tid)?.register(n);
    Ok(value.map_or(Answer::error(TROUBLE), |bytes| Answer::hex(&bytes)))
}

fn write(session: &mut Session, tid: Tid, n: usize, bytes: &[u8]) -> Result<Answer> {
    let mut state = session.registers(tid)?;
    // gdb writes back what it has not changed.
    if state.register(n).as_deref() == Some(bytes) {
        return Ok(Answer::ok());
    }
    if !state.set_register(n, bytes) {
        return Ok(Answer::error(CONSTANT));
    }
    session.set_registers(tid, &state)?;
    Ok(Answer::ok())
}

fn write_all(session: &mut Session, tid: Tid, bytes: &[u8]) -> Result<Answer> {
    let mut state = session.registers(tid)?;
    if !state.set_general(bytes) {
        return Ok(Answer::error(FAILED));
    }
    session.set_registers(tid, &state)?;
    Ok(Answer::ok())
}
