//! The recorder's signal handler. It sorts what arrives, and makes translated code leave soon and
//! between two guest instructions.
//!
//! - A fault in translated code: the thread goes on in the exit trampoline.
//!   [`crate::signals::delivery`] works out the guest's state and delivers the signal.
//! - A fault in an access of [`crate::sys::guard`]: the thread goes on at that access's failure
//!   exit.
//! - Any other signal waits in the [`Inbox`]. If the handler has interrupted the runtime, it
//!   replaces `Ctx::resume` by a trap. So translated code is not entered unnoticed. In translated
//!   code, it steps over host instructions until one begins a guest instruction.

use crate::code::cache;
use crate::signals::doom;
use crate::stream::ring;
use crate::sys::context::*;
use crate::sys::{self, guard, stop, stub};
use crate::thread::Thread;
use crate::thread::inbox::{Inbox, Left};
use crate::thread::signal_state::SYNCHRONOUS;
use core::arch::{asm, global_asm};
use core::mem::offset_of;
use core::ptr::{read_volatile, write_volatile};
use core::sync::atomic::{Ordering::*, compiler_fence};
use hindsight_isa::Ctx;
use hindsight_isa::ctx::disp;
use linux_raw_sys::general::SIGTRAP;

global_asm!(
    ".globl hindsight_handler, hindsight_restorer, hindsight_trap",
    // The kernel clears the direction flag for handlers, but not the alignment check.
    "hindsight_handler:",
    "push 0x202",
    "popfq",
    "jmp {handle}",
    "hindsight_restorer:",
    "mov eax, 15",
    "syscall",
    "hindsight_trap:",
    "int3",
    "ud2",
    handle = sym handle,
);

unsafe extern "C" {
    fn hindsight_handler();
    fn hindsight_restorer();
    fn hindsight_trap();
}

/// The value of `Ctx::desc` after a handler made translated code leave.
pub const LEFT: u64 = u64::MAX;

/// A thread that must not overlook a boundary asks this often for the translation cache that
/// another thread uses.
const RETRIES: u32 = 10_000;

/// Address of the handler.
pub fn entry() -> u64 {
    hindsight_handler as *const () as u64
}

/// Address of the code that returns from it.
pub fn restorer() -> u64 {
    hindsight_restorer as *const () as u64
}

fn trap() -> u64 {
    hindsight_trap as *const () as u64
}

/// Where translated code was entered last, or is about to be.
pub fn entered(t: &Thread) -> u64 {
    match t.ctx.resume {
        at if at == trap() => t.inbox.resume.load(Relaxed),
        at => at,
    }
}

/// The calling thread. Valid only after its GS base has been set.
pub fn current() -> *mut Thread {
    let t;
    // SAFETY: the GS base is the thread's window, and its context block lies directly below that.
    // The field `runtime` is set when the thread is made.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) t, const disp(offset_of!(Ctx, runtime)), options(nostack, readonly));
    }
    t
}

extern "C" fn handle(signo: i32, info: &Info, uc: &mut Context) {
    let t = current();
    // SAFETY: handlers are installed after the thread was made, and the thread is freed only after
    // it has blocked all signals. The interrupted code may have borrowed it mutably. So only the
    // inbox and single fields of the context block are used. The interrupted code does not hold
    // these in registers.
    let (inbox, ctx) = unsafe {
        (
            (&raw const (*t).inbox).read(),
            (&raw const (*t).ctx).cast::<*mut Ctx>().read(),
        )
    };
    let pc = uc.regs[RIP];
    if signo as u32 == SIGTRAP && info.code > 0 && stepped(inbox, ctx, uc) {
        return;
    }
    if stop::is_kick(signo, info, Some(ring::collector()[0])) {
        if cache::contains(pc) {
            step(inbox, ctx, uc);
        } else {
            arm(inbox, ctx);
        }
        return;
    }
    if !info.is_fault() {
        // SAFETY: as above. The table of actions lives as long as the thread.
        let deadly = unsafe { (*t).signals.actions.deadly() };
        doom::note(signo, deadly);
        return queue(inbox, ctx, info, uc);
    }
    if let Some(exit) = guard::redirect(pc) {
        uc.regs[RIP] = exit;
        uc.regs[RDX] = info.addr();
        uc.regs[RCX] = signo as u64 | (info.code as u64) << 32;
        uc.regs[R8] = uc.regs[TRAPNO] | uc.regs[ERROR] << 32;
    } else if cache::contains(pc) {
        inbox.stepping.store(false, Relaxed);
        uc.regs[EFLAGS] &= !TF;
        inbox.set_left(Left::Fault, uc, info);
        leave(ctx, uc);
    } else {
        panic!("fault {signo} at {pc:#x}, address {:#x}", info.addr());
    }
}

/// Makes the interrupted thread continue in the exit trampoline.
fn leave(ctx: *mut Ctx, uc: &mut Context) {
    // SAFETY: the context block belongs to the thread, and translated code was interrupted, which
    // does not hold this field in a register.
    unsafe { write_volatile(&raw mut (*ctx).desc, LEFT) };
    uc.regs[RIP] = hindsight_glue::exit_address();
}

/// Keeps a signal that did not come from the processor.
fn queue(inbox: &Inbox, ctx: *mut Ctx, info: &Info, uc: &mut Context) {
    log!(
        Debug,
        "signal {} arrives at {:#x}{}",
        info.signo,
        uc.regs[RIP],
        if inbox.full.load(Relaxed) {
            ", and has to wait for another"
        } else {
            ""
        }
    );
    if inbox.full.load(Relaxed) {
        // A signal that is never blocked was sent while another one waits. It has to come later.
        uc.mask |= 1 << (info.signo - 1);
        sys::queue_signal(info);
        return;
    }
    inbox.put(info);
    uc.mask = !SYNCHRONOUS;
    let pc = uc.regs[RIP];
    if cache::contains(pc) {
        step(inbox, ctx, uc);
    } else if let Some(at) = stub::cancel(pc) {
        uc.regs[RIP] = at;
    } else {
        arm(inbox, ctx);
    }
}

/// Puts the trap's address where translated code would be entered.
fn arm(inbox: &Inbox, ctx: *mut Ctx) {
    // SAFETY: the context block belongs to the thread. The handler and the runtime both use
    // volatile accesses of this word.
    unsafe {
        let resume = read_volatile(&raw const (*ctx).resume);
        if resume != trap() {
            inbox.resume.store(resume, Relaxed);
            compiler_fence(SeqCst);
            write_volatile(&raw mut (*ctx).resume, trap());
        }
    }
}

/// The last thing that the runtime does before it enters translated code at `ctx.resume`. Makes
/// sure that it overlooks neither a signal that waits nor the wish to leave soon.
pub fn before_enter(t: &mut Thread) {
    if t.second_lock.is_some() || t.signals.stepping.due {
        t.inbox.leave_requested.store(true, Relaxed);
    }
    compiler_fence(SeqCst);
    if t.inbox.full.load(Relaxed) || t.inbox.leave_requested.load(Relaxed) || stop::must_leave() {
        arm(t.inbox, &raw mut *t.ctx);
    }
    compiler_fence(SeqCst);
}

/// Makes translated code leave if the interrupted thread stands before a guest instruction.
/// Otherwise makes it execute one host instruction.
fn step(inbox: &Inbox, ctx: *mut Ctx, uc: &mut Context) {
    let pc = uc.regs[RIP];
    let beyond = inbox.beyond.load(Relaxed);
    let mut boundary = cache::boundary(pc, uc.regs[R11], beyond);
    // No boundary may be overlooked because another thread was looking something up.
    let mut tries = if beyond == u64::MAX { 0 } else { RETRIES };
    while boundary.is_err() && tries > 0 {
        sys::sched_yield();
        boundary = cache::boundary(pc, uc.regs[R11], beyond);
        tries -= 1;
    }
    if let Ok(Some(b)) = boundary {
        inbox.stepping.store(false, Relaxed);
        // SAFETY: the context block belongs to the thread, and translated code was interrupted,
        // which does not hold this field in a register.
        let kept = unsafe { read_volatile(&raw const (*ctx).flags) };
        uc.regs[EFLAGS] = b.flags(uc.regs[EFLAGS], kept) & !TF;
        uc.regs[R11] = uc.regs[R11].wrapping_sub(b.ahead as u64);
        inbox.set_left(
            Left::Boundary {
                pc: b.guest_pc,
                pos: uc.regs[R11],
            },
            uc,
            &Info::default(),
        );
        return leave(ctx, uc);
    }
    inbox.stepping.store(true, Relaxed);
    inbox.step_pc.store(pc, Relaxed);
    uc.regs[EFLAGS] |= TF;
}

/// Handles a SIGTRAP that comes from the trap or from stepping. False if it comes from neither.
fn stepped(inbox: &Inbox, ctx: *mut Ctx, uc: &mut Context) -> bool {
    let pc = uc.regs[RIP];
    if pc == trap() + 1 {
        uc.regs[RIP] = inbox.resume.load(Relaxed);
        let requested = inbox.leave_requested.load(Relaxed);
        inbox.leave_requested.store(false, Relaxed);
        if requested || inbox.full.load(Relaxed) || stop::must_leave() {
            step(inbox, ctx, uc);
        }
        return true;
    }
    if !inbox.stepping.load(Relaxed) {
        return false;
    }
    const PUSHF: u8 = 0x9c;
    // SAFETY: the processor has just executed the instruction at `step_pc`, so its bytes can be
    // read. If it was `pushf`, of 64 or 16 bits, it has just written the word at the top of the
    // stack.
    unsafe {
        let was = inbox.step_pc.load(Relaxed) as *const u8;
        if *was == PUSHF || (*was == 0x66 && *was.add(1) == PUSHF) {
            let top = uc.regs[RSP] as *mut u16;
            top.write_unaligned(top.read_unaligned() & !(TF as u16));
        }
    }
    if cache::contains(pc) {
        step(inbox, ctx, uc);
    } else {
        // The thread is on its way out of translated code. The trap will be there when it comes
        // back.
        inbox.stepping.store(false, Relaxed);
        uc.regs[EFLAGS] &= !TF;
        if hindsight_glue::in_sequence(pc) {
            arm(inbox, ctx);
        }
    }
    true
}
