//! The system call at hand: its arguments and its result.

use crate::thread::Thread;
use hindsight_events::Event;

/// Where the thread goes on after a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// After the instruction; the caller sets rip, rcx and r11.
    Next,
    /// At `ctx.rip`; all registers are set.
    Jump,
}

/// An error as a system call returns it.
pub fn errno(e: u32) -> u64 {
    -(e as i64) as u64
}

/// Position of each argument in the hardware order of registers.
const ARGS: [usize; 6] = [7, 6, 2, 10, 8, 9];

/// The arguments of the system call at hand.
pub fn args(t: &Thread) -> [u64; 6] {
    ARGS.map(|i| t.ctx.gpr[i])
}

/// Says in the stream what a call returned.
pub fn returned(t: &mut Thread, ret: u64) {
    t.ctx.gpr[0] = ret;
    t.event(&Event::SyscallRet { ret });
    t.complete();
}
