//! Out of a function, forwards and backwards.

use crate::stops::*;
use crate::{Cursor, Result};
use iced_x86::FlowControl;

const RSP: usize = 4;

/// See [`Cursor::step_out`].
pub fn step_out(cursor: &mut Cursor, direction: Direction, cancel: &Cancel) -> Result<Stop> {
    match direction {
        Direction::Forward => out_forward(cursor, cancel),
        Direction::Backward => out_backward(cursor, cancel),
    }
}

/// The return is the first one whose address lies at the present stack pointer or above.
fn out_forward(cursor: &mut Cursor, cancel: &Cancel) -> Result<Stop> {
    let floor = cursor.registers()?.gpr[RSP];
    loop {
        if cancel.is_cancelled() {
            return cursor.stop(Reason::Cancelled);
        }
        let flow = cursor.instruction()?.map(|i| i.0);
        let rsp = cursor.registers()?.gpr[RSP];
        let stop = cursor.step_over(Direction::Forward, cancel)?;
        if stop.reason != Reason::Step || (flow == Some(FlowControl::Return) && rsp >= floor) {
            return Ok(stop);
        }
    }
}

/// The call is the last one whose return address lies where the stack pointer has not been above since.
fn out_backward(cursor: &mut Cursor, cancel: &Cancel) -> Result<Stop> {
    let mut floor = cursor.registers()?.gpr[RSP];
    loop {
        if cancel.is_cancelled() {
            return cursor.stop(Reason::Cancelled);
        }
        let stop = cursor.step_over(Direction::Backward, cancel)?;
        if stop.reason != Reason::Step {
            return Ok(stop);
        }
        let rsp = cursor.registers()?.gpr[RSP];
        let flow = cursor.instruction()?.map(|i| i.0);
        let call = matches!(flow, Some(FlowControl::Call | FlowControl::IndirectCall));
        // A call that was stepped over as a whole leaves the stack pointer as it was.
        if call && rsp.wrapping_sub(8) >= floor {
            return Ok(stop);
        }
        floor = floor.max(rsp);
    }
}
