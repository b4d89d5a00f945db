//! How threads and other children in the program's memory begin and end.

#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::code::cache;
use crate::line;
use crate::memory::{fresh, page_sharing};
use crate::signals::actions;
use crate::stream::ring::{self, Emitter};
use crate::sys::lock::Lock;
use crate::sys::{self, fail, guard, many};
use crate::thread::signal_state::{AltStack, State};
use crate::thread::{STACK, Thread, borrowers, clone, owners, pass, threads};
use alloc::sync::Arc;
use core::arch::asm;
use hindsight_events::{EndKind, Event};
use hindsight_isa::regs::{R11, RAX, RCX, RSP};
use linux_raw_sys::errno::{EAGAIN, EFAULT, EINVAL};
use linux_raw_sys::general::*;

/// What the program asks for.
struct Request {
    flags: u64,
    /// The child's stack pointer. 0: the same as the parent's.
    sp: u64,
    /// Bytes of the child's stack. 0: the call does not say it.
    stack: u64,
    tls: u64,
    /// For `clone3`: its argument block. It gets the child's stack in the recorder.
    block: [u64; 32],
    size: u64,
}

fn request(nr: u32, a: &[u64; 6]) -> Result<Request, u32> {
    let mut r = Request {
        flags: a[0],
        sp: a[1],
        stack: 0,
        tls: a[4],
        block: [0; 32],
        size: 0,
    };
    match nr {
        __NR_clone => {}
        __NR_vfork => {
            r.flags = (CLONE_VM | CLONE_VFORK | SIGCHLD) as u64;
            (r.sp, r.tls) = (0, 0);
        }
        _ => {
            if a[1] < 64 || a[1] > 256 {
                return Err(EINVAL);
            }
            let mut bytes = [0; 256];
            guard::read(a[0], &mut bytes[..a[1] as usize]).map_err(|_| EFAULT)?;
            for (w, b) in r.block.iter_mut().zip(bytes.as_chunks().0) {
                *w = u64::from_le_bytes(*b);
            }
            (r.flags, r.sp, r.tls, r.size) =
                (r.block[0], r.block[5] + r.block[6], r.block[7], a[1]);
            r.stack = r.block[6];
        }
    }
    Ok(r)
}

/// Performs a `clone`, `clone3` or `vfork` whose child runs in this memory. Returns the child's
/// number or an error, as the kernel would.
pub fn clone(t: &mut Thread, nr: u32, a: &[u64; 6]) -> u64 {
    let mut r = match request(nr, a) {
        Ok(r) => r,
        Err(e) => return crate::thread::call::errno(e),
    };
    invariant!(
        !t.regime.quiet,
        "a thread that makes others in its memory is not quiet"
    );
    many::matters();
    if !t.task.is_silent {
        cache::cache().sequence_atomics(t);
    }
    t.sequence_always();
    borrowers::sweep();
    page_sharing::end(t);
    let Some(child) = prepare(t, &r) else {
        return crate::thread::call::errno(EAGAIN);
    };
    let stack = child.slot.stack;
    let top = child.slot.stack_end();
    let mask = sys::set_signal_mask(!0);
    if !child.task.is_silent && child.task.borrows {
        child.task.unborn = ring::expect_process();
    }
    let unborn = child.task.unborn;
    if child.task.borrows && r.flags & CLONE_VFORK as u64 == 0 {
        borrowers::expect();
    }
    threads::register(child);
    let child: *mut Thread = child;
    let six = if nr == __NR_clone3 {
        (r.block[5], r.block[6]) = (stack, STACK);
        [r.block.as_ptr() as u64, r.size, 0, 0, 0, 0]
    } else {
        let ids = if nr == __NR_vfork {
            [0, 0]
        } else {
            [a[2], a[3]]
        };
        [r.flags, top, ids[0], ids[1], r.tls, 0]
    };
    let nr = if nr == __NR_vfork { __NR_clone } else { nr };
    // The child does this itself: the kernel would clear the recorder's handlers, too.
    let clear = clone::CLEAR_SIGHAND | CLONE_SIGHAND as u64;
    if nr == __NR_clone3 && r.flags & clear == clone::CLEAR_SIGHAND {
        // SAFETY: the child does not run yet, so nobody else uses its structure.
        unsafe { (*child).task.clear_handlers = true };
        r.block[0] &= !clone::CLEAR_SIGHAND;
    }
    // SAFETY: `prepare` gave the child a stack of its own, and `begin` all that it needs.
    let ret = unsafe { sys::raw_clone(nr, six, begin, child) };
    if ret > -4096i64 as u64 {
        ring::expected_process(unborn);
        threads::unregister(child);
        // SAFETY: the call has failed, so no child uses the structure.
        unsafe { borrowers::discard(child) };
    } else {
        ring::made_process(unborn, ret);
        if r.flags & (CLONE_VFORK | CLONE_THREAD) as u64 == CLONE_VFORK as u64 {
            borrowers::returned(child, ret);
        }
    }
    sys::set_signal_mask(mask);
    log!(
        Info,
        "call {nr} with flags {:#x} made {}",
        r.flags,
        ret as i64
    );
    ret
}

/// Makes the child's thread structure, with the registers with which it begins. `None` if there is
/// no memory.
fn prepare(t: &mut Thread, r: &Request) -> Option<&'static mut Thread> {
    let silent = Emitter::silent();
    let child = Thread::make(
        t.window.predictor(),
        silent,
        *t.vectors.layout(),
        t.vectors.is_wide(),
        t.task.run,
    )
    .ok()?;
    let mut cpu = t.cpu();
    let next = cpu.rip + 2;
    (cpu.gpr[RAX], cpu.gpr[RCX]) = (0, next);
    let flags = t.ctx.rflags & hindsight_isa::state::RFLAGS_MASK | 0x202;
    cpu.gpr[R11] = flags | t.signals.stepping.flag();
    cpu.rip = next;
    if r.sp != 0 {
        cpu.gpr[RSP] = r.sp;
    }
    if r.flags & CLONE_SETTLS as u64 != 0 {
        cpu.fs_base = r.tls;
    }
    (child.ctx.gpr, child.ctx.rip, child.ctx.rflags) = (cpu.gpr, cpu.rip, cpu.rflags);
    (child.ctx.fs_base, child.ctx.gs_base) = (cpu.fs_base, cpu.gs_base);
    // These parts of the vector state are in memory. The processor's registers are the same in
    // parent and child.
    (child.ctx.xmm, child.ctx.zmm31, child.ctx.k7) = (t.ctx.xmm, t.ctx.zmm31, t.ctx.k7);
    let keeps_stack = r.flags & CLONE_VFORK as u64 != 0;
    let alt = if keeps_stack {
        t.signals.alt
    } else {
        AltStack::NONE
    };
    child.signals = State::with_mask(t.signals.mask);
    child.signals.alt = alt;
    if r.flags & CLONE_THREAD as u64 != 0 {
        child.signals.shared = t.signals.shared.clone();
    }
    child.signals.stepping = t.signals.stepping.of_child();
    child.selection = t.selection.of_child();
    let stack = match r.sp {
        0 => 0..0,
        sp => fresh::stack_below(sp, r.stack),
    };
    child.fresh = t.fresh.of_child(stack);
    child.emulated.filters.copy(&t.emulated.filters);
    child.emulated.forbidden = t.emulated.forbidden;
    child.task.is_silent = t.task.is_silent;
    child.task.borrows = r.flags & CLONE_THREAD as u64 == 0;
    if child.task.borrows
        && crate::sys::config::get().children == hindsight_events::config::children::NONE
    {
        child.task.is_silent = true;
    }
    child.emulated.limits = if child.task.borrows {
        Arc::new(Lock::new(*t.emulated.limits.lock()))
    } else {
        t.emulated.limits.clone()
    };
    if r.flags & CLONE_SIGHAND as u64 != 0 {
        child.signals.actions = t.signals.actions.clone();
    } else {
        actions::copy(child, t);
    }
    Some(child)
}

/// The child's first function. All signals are blocked.
extern "C" fn begin(t: *mut Thread) -> ! {
    // SAFETY: `clone` made it for this thread alone.
    let t = unsafe { &mut *t };
    sys::set_gs_base(t.window.gs_base());
    t.task.tid = sys::gettid();
    if t.task.borrows {
        owners::arrive();
    }
    t.slot.arrive(false);
    if t.task.borrows {
        actions::begin_process(t);
    }
    if t.task.clear_handlers {
        actions::clear_handlers(t);
    }
    if !t.task.is_silent {
        match Emitter::thread() {
            Some(e) => t.set_emitter(e),
            None => fail::die(
                fail::STATUS,
                &line!("too many threads are recorded: no ring is left for a new thread"),
            ),
        }
        t.task.set_ring(t.emit.ring());
        ring::expected_process(t.task.unborn.take());
    }
    // SAFETY: the range is the second stack of the thread's slot. Nothing else uses it.
    if let Err(e) = unsafe { sys::sigaltstack(t.slot.stack + STACK, STACK) } {
        fail::die(
            fail::STATUS,
            &line!("cannot set a thread's signal stack (error {e})"),
        );
    }
    t.code.epoch = cache::cache().code.epoch;
    t.sequence_always();
    t.begin();
    fresh::fill_stack(t);
    pass::unblock(t);
    (t.task.run)(t)
}

/// Ends the calling thread, which is not the last one.
pub fn exit(t: &mut Thread, status: i32) -> ! {
    sys::set_signal_mask(!0);
    log!(Info, "the thread ends with {status}");
    t.sequence();
    t.event(&Event::End {
        kind: EndKind::Exit,
        code: status as u32 & 0xff,
        message: b"",
    });
    t.publish();
    // The thread runs on for a moment. Nobody may take it for one that has left.
    t.task.end_stream();
    t.emit.end();
    threads::unregister(t);
    let taken = t.slot.taken.as_ptr();
    // SAFETY: the thread is out of the list and its signals are blocked. Nothing below uses the
    // structure.
    unsafe { borrowers::discard_structure(t) };
    // SAFETY: the store lets another thread have this one's stacks. From there on only registers
    // are used.
    unsafe {
        asm!(
            "mov dword ptr [rdx], 0",
            "syscall",
            "ud2",
            in("rax") __NR_exit as u64, in("rdi") status, in("rdx") taken,
            options(noreturn),
        );
    }
}
