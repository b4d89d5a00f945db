//! The arguments and the result of the system call at hand.

use crate::thread::Thread;
use hindsight_events::Event;
use hindsight_isa::regs::{RAX, SYSCALL_ARGUMENTS};

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

/// The arguments of the system call at hand.
pub fn args(t: &Thread) -> [u64; 6] {
    SYSCALL_ARGUMENTS.map(|i| t.ctx.gpr[i])
}

/// Sets and records the result of a call, and counts its instruction as completed.
pub fn returned(t: &mut Thread, ret: u64) {
    t.ctx.gpr[RAX] = ret;
    t.event(&Event::SyscallRet { ret });
    t.complete();
}
