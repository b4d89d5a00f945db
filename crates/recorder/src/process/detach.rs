//! Leaves a process, which goes on natively (see [`hindsight_events::attach`]).
//!
//! The command line traces all threads meanwhile. It takes threads out of system calls in which
//! they wait. To threads in translated code it sends a signal of its own ([`stop::is_kick`]).

use crate::memory::{brk, limits, page_sharing, regime};
use crate::signals::actions;
use crate::stream::{descriptor, ring};
use crate::sys::{self, stop};
use crate::thread::{Thread, pass, rseq, threads};
use alloc::boxed::Box;
use core::arch::{asm, global_asm};
use hindsight_events::attach::{Handoff, leave};
use hindsight_events::{EndKind, Event};
use hindsight_isa::xsave::COMPONENTS;

// rbx is the address of the handoff. `hindsight_leave` loads the vector state into the processor
// and parks the thread.
global_asm!(
    ".globl hindsight_detach_finish",
    "hindsight_detach_finish:",
    "and rsp, -16",
    "mov rdi, rbx",
    "call {finish}",
    "hindsight_leave:",
    "mov rcx, [rbx]",
    "mov eax, {mask}",
    "xor edx, edx",
    "xrstor64 [rcx]",
    "jmp hindsight_parked",
    finish = sym finish,
    mask = const COMPONENTS,
);

unsafe extern "C" {
    fn hindsight_leave();
}

/// Ends the stream of the thread, which stands before the instruction at `ctx.rip`, and parks it
/// for the command line. Returns only if a signal has to be delivered first.
pub fn rest(t: &mut Thread) {
    // A signal of the collector must not wait when the process goes on without a handler for it. The
    // collector sends none to a process that is traced by now.
    t.emit.give_way();
    sys::set_signal_mask(!0);
    if pass::waiting(t) {
        return;
    }
    log!(Info, "the thread is left at {:#x}", t.ctx.rip);
    regime::end_copy();
    page_sharing::end(t);
    let (cpu, vec) = (t.cpu().digest(), t.vec().digest());
    t.event(&Event::Digest { cpu, vec });
    t.sequence();
    let message: &[u8] = match stop::reason() {
        leave::TRACED => b"another recorded process traces it",
        _ => b"",
    };
    t.event(&Event::End {
        kind: EndKind::Detached,
        code: 0,
        message,
    });
    t.publish();
    t.emit.end();
    t.emit.release();
    pass::hand_back(t);
    if let Some(area) = t.emulated.rseq {
        rseq::tell_kernel(area, 0);
    }
    let heap = brk::virtual_heap();
    let mut handoff = Box::new(Handoff {
        area: 0,
        cpu: [0; 20],
        mask: t.signals.mask,
        heap: [heap.start, heap.end],
        threads: threads::count() as u64,
    });
    let state = t.cpu();
    handoff.cpu[..16].copy_from_slice(&state.gpr);
    handoff.cpu[16..].copy_from_slice(&[state.rip, state.rflags, state.fs_base, state.gs_base]);
    handoff.area = core::ptr::from_mut(t.area()) as u64;
    t.code.leave();
    let handoff = Box::into_raw(handoff);
    // SAFETY: the code jumped to reads the handoff, which is leaked, and never returns.
    // `handoff.area` is a valid XSAVE area, since `Thread::area` made it.
    unsafe {
        asm!("mov rbx, {h}", "jmp {f}", h = in(reg) handoff, f = sym hindsight_leave, options(noreturn))
    }
}

/// Called when all threads are parked. Gives back to the kernel what belongs to the process.
extern "C" fn finish(_: *const Handoff) {
    let t = crate::signals::handler::current();
    // SAFETY: the GS base is still that of the calling thread. The thread is parked, so nothing
    // changes its structure.
    let t = unsafe { &*t };
    actions::restore(t);
    limits::restore(t);
    descriptor::close();
    ring::end_process();
}
