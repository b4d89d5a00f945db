//! The arguments and the result of the system call at hand.

use crate::thread::Thread;
use hindsight_events::Event;

/// Where the thread goes on after a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// At the next instruction. The caller sets rip, rcx and r11.
    Next,
    /// At `ctx.rip`. All registers are set.
    Jump,
}

/// An errno as a system call returns it.
pub fn errno(e: u32) -> u64 {
    -(e as i64) as u64
}

/// Number of each argument's register in the processor's order.
const ARGS: [usize; 6] = [7, 6, 2, 10, 8, 9];

/// The arguments of the system call at hand.
pub fn args(t: &Thread) -> [u64; 6] {
    ARGS.map(|i| t.ctx.gpr[i])
}

/// Sets and records the result of a call, and counts its instruction as completed.
pub fn returned(t: &mut Thread, ret: u64) {
    t.ctx.gpr[0] = ret;
    t.event(&Event::SyscallRet { ret });
    t.complete();
}
