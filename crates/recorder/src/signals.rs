//! The program's view of signals: its actions, mask and alternate stack, and their delivery.
//!
//! The kernel knows only the recorder's handler, and the program's mask (without the signals that
//! faults raise, which must always reach the recorder). A signal is delivered between two
//! instructions of the program, by building the kernel's frame and changing the registers.

use crate::context::{CR2, ERROR, Info, RIP, TRAPNO};
use crate::death::die;
use crate::exceptions::PAGE_FAULT;
use crate::guard::Trap;
use crate::inbox::Left;
use crate::lock::Lock;
use crate::sighandler::{SYNCHRONOUS, entry, restorer};
use crate::stepping::{self, Stepping};
use crate::sys::{self, SigAction};
use crate::thread::Thread;
use crate::{arena, cache, fail, line, sigframe, stub};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hindsight_events::Event;
use hindsight_isa::state::RFLAGS_MASK;
use linux_raw_sys::general::*;

pub use crate::sighandler::{LEFT, before_enter};

/// The default action.
pub const NONE: SigAction = SigAction {
    handler: 0,
    flags: 0,
    restorer: 0,
    mask: 0,
};
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const DISABLE: u32 = 2;

/// The program's actions, by signal number. Children that share memory may have their own.
pub type Actions = Arc<Lock<[SigAction; 65]>>;

/// Bit of a signal in a mask.
pub const fn bit(signo: u32) -> u64 {
    1 << (signo - 1)
}

const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// Signals whose default action leaves the process alive.
const HARMLESS: u64 = bit(SIGCHLD)
    | bit(SIGURG)
    | bit(SIGWINCH)
    | bit(SIGCONT)
    | bit(SIGTSTP)
    | bit(SIGTTIN)
    | bit(SIGTTOU)
    | bit(SIGSTOP);

/// An alternate stack as `sigaltstack` knows it.
#[derive(Clone, Copy)]
pub struct AltStack {
    pub base: u64,
    /// Without SS_ONSTACK.
    pub flags: u32,
    pub size: u64,
}

impl AltStack {
    pub const NONE: AltStack = AltStack {
        base: 0,
        flags: DISABLE,
        size: 0,
    };

    /// The one that the kernel describes so.
    pub fn of(base: u64, flags: u64, size: u64) -> AltStack {
        let flags = flags as u32;
        if flags & DISABLE != 0 {
            return AltStack::NONE;
        }
        AltStack {
            base,
            flags: flags & SS_AUTODISARM,
            size,
        }
    }

    /// Whether `sp` lies on it.
    pub fn contains(&self, sp: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && sp > self.base && sp - self.base <= self.size
    }
}

/// The part of the state that one thread has.
pub struct State {
    /// Signals that the program has blocked.
    pub mask: u64,
    pub alt: AltStack,
    /// Mask of the call that a signal has ended, if that had one of its own (`sigsuspend`).
    pub suspended: Option<u64>,
    /// Signals of [`SYNCHRONOUS`] that were sent while the program had them blocked.
    held: Vec<Info>,
    /// The thread's last exception: the kernel shows it in the frames of all signals.
    pub trap: Trap,
    /// The program's trap flag.
    pub stepping: Stepping,
    pub actions: Actions,
}

impl State {
    pub fn new() -> State {
        State::with_mask(sys::signal_mask())
    }

    /// The state of a new thread.
    pub fn with_mask(mask: u64) -> State {
        State {
            mask,
            alt: AltStack::NONE,
            suspended: None,
            held: Vec::new(),
            trap: Trap::default(),
            stepping: Stepping::default(),
            actions: Arc::new(Lock::new([NONE; 65])),
        }
    }
}

/// Installs the recorder's handlers and stack for them. The thread's GS base is set.
pub fn install(t: &mut Thread) {
    let len = 256 << 10;
    let stack = arena::map(
        len,
        PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS,
        -1,
        0,
    );
    // SAFETY: fresh memory that serves nothing else.
    let set = stack.and_then(|s| unsafe { sys::sigaltstack(s, len) });
    if let Err(e) = set {
        fail::die(
            fail::STATUS,
            &line!("cannot make a stack for signal handlers (error {e})"),
        );
    }
    let mut actions = t.signals.actions.lock();
    for signo in 1..=64 {
        // SAFETY: only asks.
        if let Ok(inherited) = unsafe { sys::sigaction(signo, None) } {
            actions[signo as usize] = SigAction {
                handler: inherited.handler,
                ..NONE
            };
            tell_kernel(signo as u32, &actions[signo as usize]);
        }
    }
    drop(actions);
    sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
}

/// Puts the recorder's handlers in the place of those that the program has installed by itself.
pub fn take_over(t: &mut Thread) {
    let mut actions = t.signals.actions.lock();
    for signo in 1..=64 {
        // SAFETY: only asks.
        if let Ok(own) = unsafe { sys::sigaction(signo, None) } {
            actions[signo as usize] = own;
            tell_kernel(signo as u32, &own);
        }
    }
}

/// Makes the program's handlers those of the kernel. All signals are blocked.
pub fn restore_actions(t: &Thread) {
    let actions = *t.signals.actions.lock();
    for signo in (1..=64).filter(|s| bit(*s) & UNBLOCKABLE == 0) {
        // SAFETY: the program's own; the recorder is about to leave.
        let _ = unsafe { sys::sigaction(signo as i32, Some(&actions[signo as usize])) };
    }
}

/// Makes what else is the program's own that of the kernel: the signals that it would have
/// pending, and its alternate stack. All signals are blocked.
pub fn hand_back(t: &mut Thread) {
    for info in t.signals.held.drain(..) {
        sys::queue_signal(&info);
    }
    let alt = t.signals.alt;
    sys::restore_altstack([alt.base, alt.flags as u64, alt.size]);
}

/// Lets the kernel deliver what the program has not blocked.
pub fn unblock(t: &Thread) {
    sys::set_signal_mask(t.signals.mask & !SYNCHRONOUS);
}

/// Has the new process `t` begin with the actions of its parent `from`, in a table of its own.
pub fn copy_actions(t: &mut Thread, from: &Thread) {
    let actions = *from.signals.actions.lock();
    t.signals.actions = Arc::new(Lock::new(actions));
}

/// Sets all actions but those that ignore a signal to the default (`CLONE_CLEAR_SIGHAND`).
pub fn clear_handlers(t: &Thread) {
    for signo in 1..=64 {
        if action(t, signo).handler > SIG_IGN {
            set_action(t, signo, NONE);
        }
    }
}

/// In a new process: signals that were sent to the parent are not its.
pub fn forked(t: &mut Thread) {
    t.signals.held.clear();
    t.signals.suspended = None;
}

/// For `execve`: gives the kernel the mask of the program, the signals that it would have pending
/// and those that the program ignores; [`after_exec`] undoes it. `false`: a signal comes first.
pub fn before_exec(t: &mut Thread) -> bool {
    sys::set_signal_mask(!0);
    if waiting(t) {
        return false;
    }
    // Before those are pending: ignoring a signal drops it.
    synchronous_ignored(t, true);
    for info in t.signals.held.drain(..) {
        sys::queue_signal(&info);
    }
    sys::set_signal_mask(t.signals.mask);
    true
}

/// The `execve` has failed.
pub fn after_exec(t: &mut Thread) {
    sys::set_signal_mask(!0);
    synchronous_ignored(t, false);
    if !waiting(t) {
        unblock(t);
    }
}

/// The recorder needs to see the signals of faults even if the program ignores them.
fn synchronous_ignored(t: &Thread, really: bool) {
    for signo in [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP] {
        let a = action(t, signo);
        if a.handler != SIG_IGN {
            continue;
        }
        if really {
            let ignore = SigAction {
                handler: SIG_IGN,
                ..NONE
            };
            // SAFETY: no handler.
            let _ = unsafe { sys::sigaction(signo as i32, Some(&ignore)) };
        } else {
            tell_kernel(signo, &a);
        }
    }
}

/// Sets the kernel's action to what the program's action needs.
fn tell_kernel(signo: u32, a: &SigAction) {
    if bit(signo) & UNBLOCKABLE != 0 {
        return;
    }
    let ours = bit(signo) & SYNCHRONOUS != 0
        || a.handler > SIG_IGN
        || (a.handler == SIG_DFL && bit(signo) & HARMLESS == 0);
    let mirrored = a.flags & (SA_RESTART | SA_NOCLDSTOP | SA_NOCLDWAIT) as u64;
    let host = if ours {
        let flags = (SA_SIGINFO | SA_ONSTACK | SA_RESTORER) as u64 | mirrored;
        SigAction {
            handler: entry(),
            flags,
            restorer: restorer(),
            mask: !0,
        }
    } else {
        SigAction {
            handler: a.handler,
            flags: mirrored,
            ..NONE
        }
    };
    // SAFETY: the handler copes with being run at any point of the process.
    let _ = unsafe { sys::sigaction(signo as i32, Some(&host)) };
}

/// The program's action for a signal.
pub fn action(t: &Thread, signo: u32) -> SigAction {
    t.signals.actions.lock()[signo as usize]
}

/// Changes the program's action for a signal.
pub fn set_action(t: &Thread, signo: u32, a: SigAction) {
    let mut actions = t.signals.actions.lock();
    actions[signo as usize] = SigAction {
        mask: a.mask & !UNBLOCKABLE,
        ..a
    };
    tell_kernel(signo, &actions[signo as usize]);
}

/// Changes the mask of the program. `false`: a signal has come first and is to be delivered
/// under the old mask.
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

/// Keeps a signal that the program has blocked. There is never more than one with a number.
fn hold(t: &mut Thread, info: Info) {
    if held(t) & bit(info.signo as u32) == 0 {
        t.signals.held.push(info);
    }
}

/// Moves a held signal that is no longer blocked to the inbox: the one with the lowest number, as
/// the kernel does.
fn release_held(t: &mut Thread) {
    let mask = t.signals.mask;
    let held = &mut t.signals.held;
    let free = held.iter().enumerate();
    let first = free
        .filter(|(_, i)| bit(i.signo as u32) & mask == 0)
        .min_by_key(|(_, i)| i.signo);
    if let Some((n, _)) = first {
        let info = held.remove(n);
        t.inbox.put(&info);
    }
}

/// Makes a system call while signals are held: gives them back to the kernel as long as it lasts,
/// since the call may be one that looks at them or waits for them. `None`: a signal comes first.
///
/// # Safety
/// As for [`stub::call`].
pub unsafe fn call_with_held(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    sys::set_signal_mask(!0);
    if waiting(t) {
        return None;
    }
    for info in t.signals.held.drain(..) {
        sys::queue_signal(&info);
    }
    sys::set_signal_mask(t.signals.mask);
    // SAFETY: the caller's.
    let ret = unsafe { stub::call(nr as u64, *a, &t.inbox.full) };
    sys::set_signal_mask(!0);
    if !waiting(t) {
        unblock(t);
    }
    ret
}

/// Signals that were sent, are blocked, and are not known to the kernel as such.
pub fn held(t: &Thread) -> u64 {
    t.signals
        .held
        .iter()
        .fold(0, |m, i| m | bit(i.signo as u32))
}

/// Whether a signal waits for [`deliver_pending`].
pub fn waiting(t: &Thread) -> bool {
    t.inbox.get().is_some()
}

/// After translated code was left by a handler (`ctx.desc` is [`LEFT`]): brings the thread's state
/// up to date and delivers. The thread goes on at `ctx.rip`.
pub fn left(t: &mut Thread) {
    // Exit stubs write the low half only.
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
                fail::internal(
                    t,
                    &line!(
                        "cannot find the instruction of fault {} at {pc:#x}",
                        info.signo
                    ),
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
                // So that replay stops at the same iteration.
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

/// Delivers the signal that waits, if any. The thread stands before the instruction at `ctx.rip`.
pub fn deliver_pending(t: &mut Thread) {
    deliver_queued(t, false);
}

/// As [`deliver_pending`], in place of the system call at `ctx.rip`, which has been announced
/// and not been made: it will be made when the handler has returned.
pub fn deliver_instead_of_call(t: &mut Thread) {
    let before = t.pos;
    deliver_queued(t, true);
    if t.pos == before {
        // Nothing was delivered after all. The call is made anew; say so by a state that has
        // not changed.
        sigframe::emit_state(t);
        t.complete();
        t.ctx.count = t.pos;
    }
}

fn deliver_queued(t: &mut Thread, in_call: bool) {
    while let Some(info) = t.inbox.get() {
        let signo = info.signo as u32;
        let a = action(t, signo);
        let mask = t.signals.suspended.unwrap_or(t.signals.mask);
        if bit(signo) & mask & SYNCHRONOUS != 0 {
            hold(t, info);
        } else if a.handler > SIG_IGN {
            t.inbox.clear();
            enter_handler(t, &info, &a, false);
            if in_call {
                t.complete();
                t.ctx.count = t.pos;
            }
            return;
        } else if a.handler == SIG_DFL && bit(signo) & HARMLESS == 0 {
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

/// Delivers a fault of the instruction at `ctx.rip`: to the program's handler, or as death when
/// it has none or has blocked the signal.
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

/// Runs the handler `a` for `info`: makes its frame, changes registers and mask. `fault`: the
/// instruction at hand raised it.
fn enter_handler(t: &mut Thread, info: &Info, a: &SigAction, fault: bool) {
    let signo = info.signo as u32;
    if a.flags & SA_RESETHAND as u64 != 0 {
        set_action(t, signo, NONE);
    }
    let saved = t.signals.mask;
    let base = t.signals.suspended.take().unwrap_or(saved);
    if !sigframe::push(t, info, a, saved, fault) {
        // As the kernel does: the thread gets SIGSEGV, for good if that is what failed.
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
    sigframe::emit_state(t);
}

/// A filter of system calls has raised a signal instead of the call before which the thread stands.
pub fn refused(t: &mut Thread, info: &Info, next: u64) {
    // As the call would leave them.
    t.ctx.gpr[1] = next;
    t.ctx.gpr[11] = t.ctx.rflags & RFLAGS_MASK | 0x202;
    t.ctx.rip = next;
    force(t, info, None);
}

/// Signals that the program ignores, and those that it has handlers for.
pub fn dispositions(t: &Thread) -> (u64, u64) {
    let actions = t.signals.actions.lock();
    let all = |f: fn(u64) -> bool| {
        let matching = (1..=64).filter(|s| f(actions[*s as usize].handler));
        matching.fold(0, |m, s| m | bit(s))
    };
    (all(|h| h == SIG_IGN), all(|h| h > SIG_IGN))
}
