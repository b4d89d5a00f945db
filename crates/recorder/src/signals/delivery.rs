//! The program's view of signals, and their delivery: actions, mask, alternate stack.
//!
//! The kernel knows only the recorder's handler and the program's mask. Signals that faults raise
//! are left out of that mask, since they must always reach the recorder. A signal is delivered
//! between two instructions of the program. The recorder builds the frame that the kernel would
//! build, and changes the registers.

use crate::code::cache;
use crate::line;
use crate::signals::actions::{self, action, is_first, set_action};
use crate::signals::death::die;
use crate::signals::exceptions::PAGE_FAULT;
use crate::signals::{doom, frame, stepping};
use crate::sys::context::{CR2, ERROR, Info, RIP, TRAPNO};
use crate::sys::guard::Trap;
use crate::sys::{self, SigAction, clocks, fail};
use crate::thread::inbox::Left;
use crate::thread::pending::Pending;
use crate::thread::signal_actions::{NONE, SIG_IGN, is_deadly};
use crate::thread::signal_state::{SYNCHRONOUS, UNBLOCKABLE, bit};
use crate::thread::{Thread, pass, threads};
use hindsight_events::Event;
use hindsight_isa::regs::{R11, RCX};
use hindsight_isa::state::RFLAGS_MASK;
use linux_raw_sys::general::*;

pub use crate::signals::handler::LEFT;
pub use crate::signals::handler::before_enter;

/// Installs the recorder's handlers and their stack. The thread's GS base is set.
pub fn install(t: &mut Thread) {
    // The stack of the slot, as for all threads: locks recognise their owners by it.
    let (stack, len) = t.slot.signal_stack();
    // SAFETY: the range is the second stack of the thread's slot. Nothing else uses it.
    if let Err(e) = unsafe { sys::sigaltstack(stack, len) } {
        fail::die(
            fail::STATUS,
            &line!("cannot make a stack for signal handlers (error {e})"),
        );
    }
    actions::install(t);
    sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
}

/// Forgets signals that were sent to the parent, in a new process.
pub fn forked(t: &mut Thread) {
    t.signals.held = Pending::new();
    t.signals.shared = Pending::new();
    t.signals.suspended = None;
}

/// Prepares an `execve`. Gives the kernel the program's mask, the signals that the program would
/// have pending, and those that it ignores. [`after_exec`] undoes that. False: a signal has to be
/// delivered first.
pub fn before_exec(t: &mut Thread) -> bool {
    sys::set_signal_mask(!0);
    if pass::waiting(t) {
        return false;
    }
    // Must come before signals are pending: ignoring a signal drops it.
    actions::synchronous_ignored(t, true);
    pass::give_back(t, !0);
    sys::set_signal_mask(t.signals.mask);
    true
}

/// Undoes [`before_exec`] after an `execve` that has failed.
pub fn after_exec(t: &mut Thread) {
    sys::set_signal_mask(!0);
    actions::synchronous_ignored(t, false);
    if !pass::waiting(t) {
        pass::unblock(t);
    }
}

/// Changes the program's mask. False: a signal has come first and has to be delivered under the old
/// mask.
pub fn set_mask(t: &mut Thread, mask: u64) -> bool {
    sys::set_signal_mask(!SYNCHRONOUS);
    if t.inbox.get().is_some() {
        return false;
    }
    t.signals.mask = mask & !UNBLOCKABLE;
    release_held(t);
    if t.inbox.get().is_none() {
        sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
    }
    true
}

/// Keeps a signal that the program has blocked. A signal that was sent to the whole process goes to
/// a thread that takes it, if there is one.
fn hold(t: &mut Thread, info: Info) {
    /// The code of `kill`. Signals to a single thread have other codes.
    const SI_USER: i32 = 0;
    log!(Debug, "holds signal {}, which is blocked", info.signo);
    if info.code != SI_USER {
        t.signals.held.put(info);
    } else {
        let signo = info.signo as u32;
        t.signals.shared.put(info);
        if let Some(tid) = threads::takes(t, signo).or_else(|| threads::awaits(t, signo)) {
            sys::queue_signal_to(tid, &Info::hint(signo));
        }
    }
}

/// The signal that a [hint](Info::hint) stands for: one that is kept for the whole process. Any
/// other signal stands for itself. `None`: another thread was quicker.
pub fn meant(t: &Thread, info: Info) -> Option<Info> {
    match info.is_hint() {
        true => t.signals.shared.take(bit(info.signo as u32)),
        false => Some(info),
    }
}

/// Moves a held signal that is no longer blocked to the inbox: the one with the lowest number
/// first, as the kernel does.
fn release_held(t: &mut Thread) {
    let free = !t.signals.mask;
    let info = t.signals.held.take(free);
    if let Some(info) = info.or_else(|| t.signals.shared.take(free)) {
        t.inbox.put(&info);
    }
}

/// Goes on after a handler made translated code leave (`ctx.desc` is [`LEFT`]). Brings the thread's
/// state up to date and delivers the signal. The thread goes on at `ctx.rip`.
pub fn left(t: &mut Thread) {
    // Exit stubs write only the low half.
    t.ctx.desc = 0;
    let (why, at, info) = t.inbox.left();
    match why {
        Left::Boundary { pc, pos } => {
            t.ctx.rip = pc;
            t.ctx.count = pos;
            t.pos = pos;
            t.release_second();
            stepping::deliver(t);
            deliver_pending(t);
        }
        Left::Fault => {
            t.release_atomic();
            let Some(f) = cache::fault_state(t, &at) else {
                let pc = at.regs[RIP];
                panic!(
                    "cannot find the instruction of fault {} at {pc:#x}",
                    info.signo
                );
            };
            t.set_cpu(&f.cpu);
            t.ctx.count = f.pos;
            t.pos = f.pos;
            if f.again {
                return;
            }
            if !t.is_unrecorded()
                && let Some(iterations) = f.iterations
            {
                // Makes replay stop at the same iteration.
                t.event(&Event::RepChunk { iterations });
            }
            let mut info = info;
            if [SIGFPE, SIGILL, SIGTRAP].contains(&(info.signo as u32)) {
                info.rest[0] = f.cpu.rip;
            }
            let trap = Trap {
                number: at.regs[TRAPNO] as u8,
                error: at.regs[ERROR] as u32,
                address: at.regs[CR2],
            };
            force(t, &info, Some(trap));
        }
    }
}

/// Delivers the signal that waits, if there is one. The thread stands before the instruction at
/// `ctx.rip`.
pub fn deliver_pending(t: &mut Thread) {
    deliver_queued(t, false);
}

/// As [`deliver_pending`], before the system call at `ctx.rip` that has been recorded and not been
/// made. It will be made after the handler has returned.
pub fn deliver_instead_of_call(t: &mut Thread) {
    let before = t.pos;
    deliver_queued(t, true);
    if t.pos == before {
        // Nothing was delivered after all, so the call is made again. A state that has not changed
        // stands for that in the stream.
        frame::emit_state(t);
        t.complete();
        t.ctx.count = t.pos;
    }
}

fn deliver_queued(t: &mut Thread, in_call: bool) {
    while let Some(info) = t.inbox.get() {
        let Some(info) = meant(t, info) else {
            t.inbox.clear();
            sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
            continue;
        };
        let signo = info.signo as u32;
        let a = action(t, signo);
        let mask = t.signals.suspended.unwrap_or(t.signals.mask);
        if bit(signo) & mask & SYNCHRONOUS != 0 {
            hold(t, info);
        } else if doom::is_certain(signo) {
            die(t, &info);
        } else if a.handler > SIG_IGN {
            t.inbox.clear();
            enter_handler(t, &info, &a, false);
            if in_call {
                t.complete();
                t.ctx.count = t.pos;
            }
            return;
        } else if is_deadly(signo, &a) && !is_first() {
            die(t, &info);
        }
        t.inbox.clear();
        t.signals.suspended = None;
        release_held(t);
        if t.inbox.get().is_none() {
            sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
        }
    }
}

/// Delivers a fault of the instruction at `ctx.rip` to the program's handler. Kills the program if
/// it has no handler or has blocked the signal.
pub fn force(t: &mut Thread, info: &Info, trap: Option<Trap>) {
    let signo = info.signo as u32;
    let a = action(t, signo);
    if let Some(new) = trap {
        let paging = new.number == PAGE_FAULT;
        let address = if paging {
            new.address
        } else {
            t.signals.trap.address
        };
        t.signals.trap = Trap { address, ..new };
    }
    if a.handler <= SIG_IGN || bit(signo) & t.signals.mask != 0 {
        die(t, info);
    }
    enter_handler(t, info, &a, trap.is_some());
}

/// Makes the thread run the handler `a` for `info`: builds its frame, changes registers and mask.
/// `fault`: the instruction at hand has raised it.
fn enter_handler(t: &mut Thread, info: &Info, a: &SigAction, fault: bool) {
    let signo = info.signo as u32;
    log!(
        Debug,
        "delivers signal {signo} before {:#x} to the handler {:#x}",
        t.ctx.rip,
        a.handler
    );
    if a.flags & SA_RESETHAND as u64 != 0 {
        set_action(t, signo, NONE);
    }
    clocks::forget();
    let saved = t.signals.mask;
    let base = t.signals.suspended.take().unwrap_or(saved);
    if !frame::push(t, info, a, saved, fault) {
        // As the kernel does: the thread gets SIGSEGV. If SIGSEGV is what failed, it dies.
        let fault = Info::fault(SIGSEGV as u8, SI_KERNEL as i32, 0);
        if signo == SIGSEGV {
            die(t, &fault);
        }
        return force(t, &fault, None);
    }
    t.event(&Event::Signal {
        signo: signo as u8,
        code: info.code,
        addr: info.addr(),
    });
    let own = if a.flags & SA_NODEFER as u64 != 0 {
        0
    } else {
        bit(signo)
    };
    t.signals.mask = (base | a.mask | own) & !UNBLOCKABLE;
    sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
    frame::emit_state(t);
}

/// Delivers a signal that a filter of system calls has raised in place of the call at hand. `next`
/// is the address behind that call.
pub fn refused(t: &mut Thread, info: &Info, next: u64) {
    // As the call would leave them.
    t.ctx.gpr[RCX] = next;
    t.ctx.gpr[R11] = t.ctx.rflags & RFLAGS_MASK | 0x202;
    t.ctx.rip = next;
    force(t, info, None);
}
