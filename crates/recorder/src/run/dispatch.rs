//! The main loop: enters translated code, handles its exits, and delivers signals between
//! instructions.

use crate::calls::{perform, vsyscall};
use crate::code::{allocators, cache, places, select};
use crate::memory::regime;
use crate::process::detach;
use crate::run::shadow::Shadow;
use crate::run::{ahead, chaos, slow, trap};
use crate::signals::{cores, delivery, doom, exceptions, stepping};
use crate::sys::{clocks, stop};
use crate::thread::call::{self, Flow};
use crate::thread::{Thread, pass};
use hindsight_isa::regs::{R11, RAX, RCX};

use core::sync::atomic::Ordering::Relaxed;
use hindsight_events::Event;
use hindsight_events::ring::wish;
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::{Desc, DescKind, desc::raise};

/// What to do after an exit was handled.
pub enum Next {
    /// Go on in the translation cache at `Ctx::resume`. The guest instruction is not finished.
    Resume,
    /// The thread stands between two instructions: its position and `Ctx::rip` say where.
    Boundary,
}

/// Runs the thread from `Ctx::rip` on. Never returns.
pub fn run(t: &mut Thread) -> ! {
    loop {
        stepping::deliver(t);
        delivery::deliver_pending(t);
        if stop::is_dying() {
            cores::rest(t);
        }
        if stop::is_requested() {
            detach::rest(t);
            continue;
        }
        observe(t);
        let pc = t.ctx.rip;
        // The thread runs no code of any generation now. So no generation waits for it, however
        // long it stays here.
        t.code.leave();
        regime::arrive(t, pc);
        select::arrive(t, pc);
        allocators::arrive(t, pc);
        if trap::begin(t) {
            continue;
        }
        let known = cache::known(t, pc).ok_or(());
        match known.or_else(|()| cache::get(t, pc).map(|(_, made)| made)) {
            Ok(block) => execute(t, block.host()),
            Err(_) => fetch_fault(t),
        }
    }
}

/// Runs translated code from `host` on. Returns when the thread stands between two instructions and
/// the runtime has something to look at.
fn execute(t: &mut Thread, host: u64) {
    t.ctx.resume = host;
    t.ctx.count = t.pos;
    loop {
        delivery::before_enter(t);
        // SAFETY: the cache gave out `resume` for this thread, or it comes from a descriptor there,
        // or it is the handler's trap (`before_enter`). The GS base points to the thread's window
        // since the thread began.
        unsafe { hindsight_glue::enter(t.ctx) };
        if t.ctx.desc == delivery::LEFT {
            t.fresh.by_address = false;
            return delivery::left(t);
        }
        let desc = cache::desc(t.ctx.desc);
        t.fresh.by_address = desc.kind() == DescKind::Indirect;
        t.pos = t.ctx.count - desc.ahead as u64;
        t.publish();
        if let Some(c) = t.emit.ctl() {
            let n = &c.exits[desc.kind() as usize & 15];
            n.store(n.load(Relaxed) + 1, Relaxed);
        }
        match exit(t, &desc) {
            // If all jumps of a loop are linked, this may be the only exit that comes here. So the
            // thread is asked to stop at the next instruction.
            Next::Resume if due(t) && t.is_pressed() => {
                t.inbox.leave_requested.store(true, Relaxed)
            }
            Next::Resume => {}
            Next::Boundary => {
                // Nothing wants attention: the usual case for new code. The thread goes straight
                // on.
                if pass::waiting(t) || due(t) || stop::must_leave() || t.signals.stepping.is_on() {
                    return;
                }
                let pc = t.ctx.rip;
                match continue_at(t, &desc, pc) {
                    Some(host) => {
                        t.ctx.resume = host;
                        t.ctx.count = t.pos;
                    }
                    None => return,
                }
            }
        }
    }
}

/// The translation of the place where the thread stands. Links the exit that led there to it.
/// `None`: the main loop has to look first.
fn continue_at(t: &mut Thread, desc: &Desc, pc: u64) -> Option<u64> {
    // The exit may be linked only to code of its own generation and kind. Both calls below can
    // change these.
    let (entered, plain) = (t.code.generation, t.is_plain());
    regime::arrive(t, pc);
    select::arrive(t, pc);
    allocators::arrive(t, pc);
    let kind = desc.kind();
    // Only a jump is linked with the cache locked.
    let known = (kind != DescKind::Exit).then(|| cache::known(t, pc));
    let (mut cache, block) = match known.flatten() {
        Some(block) => (None, block),
        None => {
            let (cache, block) = cache::get(t, pc).ok()?;
            (Some(cache), block)
        }
    };
    let awaited = select::is_awaited(t, pc) || allocators::is_awaited(t, pc);
    let watched = awaited || places::is_watched(pc);
    if t.code.generation == entered && t.is_plain() == plain && !watched {
        match kind {
            DescKind::Exit | DescKind::Indirect if chaos::leaves_open(t, pc) => {
                drop(cache);
                t.code.leave();
                chaos::point(t);
                return None;
            }
            DescKind::Exit => {
                if let Some(cache) = &mut cache {
                    cache.link(desc.patch, block);
                }
            }
            DescKind::Indirect => {
                let table = t.table();
                t.ctx.ibl[table].set(pc, block.host(), block.takes_flags);
            }
            _ => {}
        }
    }
    Some(block.host())
}

fn exit(t: &mut Thread, desc: &Desc) -> Next {
    if !matches!(
        desc.kind(),
        DescKind::Mispredicted | DescKind::MispredictedValue
    ) {
        // The thread is at another instruction by now.
        t.release_second();
    }
    match desc.kind() {
        DescKind::Exit => {
            t.ctx.rip = desc.pc;
            Next::Boundary
        }
        DescKind::Indirect => Next::Boundary,
        DescKind::Mispredicted => {
            // Translated code has read this memory without a fault. If it faults here, it was
            // unmapped since. Then the cell keeps its old value: no order says which came first, so
            // that is as good an answer as any.
            let (addr, len) = (t.ctx.ea, desc.size as u64);
            if t.fill(addr, len).is_ok() {
                ahead::after(t, addr, len);
            }
            chaos::point(t);
            resume(t, desc)
        }
        DescKind::MispredictedValue => {
            t.fill_value(t.ctx.ea, desc.size, t.ctx.value);
            chaos::point(t);
            resume(t, desc)
        }
        DescKind::Slow => {
            t.ctx.rip = desc.pc;
            slow::execute(t, desc)
        }
        DescKind::PreCheck => {
            t.ctx.rip = desc.pc;
            slow::precheck(t, desc)
        }
        DescKind::Sequence => {
            t.sequence_atomic(desc.size);
            resume(t, desc)
        }
        DescKind::Syscall => {
            system_call(t, desc);
            Next::Boundary
        }
        DescKind::Raise => {
            t.ctx.rip = desc.pc;
            raised(t, desc);
            Next::Boundary
        }
        DescKind::Stale | DescKind::Budget | DescKind::Watch => {
            t.ctx.rip = desc.pc;
            let pc = desc.pc;
            t.code.leave();
            cache::cache().drop_block(t, pc);
            Next::Boundary
        }
    }
}

/// Continues in translated code behind the exit.
pub fn resume(t: &mut Thread, desc: &Desc) -> Next {
    t.ctx.resume = cache::base() + desc.resume as u64;
    Next::Resume
}

fn system_call(t: &mut Thread, desc: &Desc) {
    t.ctx.rip = desc.pc;
    doom::before_call(t);
    // The trap flag takes effect again after the next instruction.
    t.signals.stepping.due = false;
    let (nr, args) = (t.ctx.gpr[RAX], call::args(t));
    regime::markers::before_call(t, nr as u32, &args);
    // A thread that makes nothing but calls stands nowhere else without an event at its position.
    observe(t);
    regime::before_call(t, nr as u32, &args);
    t.sequence();
    t.event(&Event::Syscall { nr, args });
    t.emit.give_way();
    t.code.leave();
    chaos::point(t);
    let flow = perform::perform(t);
    clocks::after_call(nr as u32, &args);
    if flow == Flow::Next {
        // What `syscall` itself leaves in rcx and r11.
        let next = desc.pc + desc.size as u64;
        t.ctx.gpr[RCX] = next;
        t.ctx.gpr[R11] = t.ctx.rflags & RFLAGS_MASK | 0x202;
        t.ctx.rip = next;
        stepping::after_call(t);
        regime::after_call(t, nr as u32, &args);
    }
    t.sequence();
    chaos::point(t);
}

fn raised(t: &mut Thread, desc: &Desc) {
    match desc.size {
        raise::UNSUPPORTED => slow::interrupt(t, desc.pc),
        raise::BP => {
            // `int3` is a trap: it is reported behind the instruction.
            t.ctx.rip = desc.pc + 1;
            exceptions::exception(t, raise::BP);
        }
        what => exceptions::exception(t, what),
    }
}

fn fetch_fault(t: &mut Thread) {
    if vsyscall::call(t) {
        return;
    }
    let canonical = t.ctx.rip >> 47 == 0;
    exceptions::exception(t, if canonical { raise::FETCH } else { raise::GP });
}

/// Whether a key frame or a digest is due, or the collector asks for something.
fn due(t: &Thread) -> bool {
    let wishes = t.emit.wishes();
    let keyframe = wishes & wish::KEYFRAME != 0 && !t.is_plain() && !t.regime.quiet;
    let keyframe = keyframe || t.emit.is_long() && !t.is_unrecorded();
    let position = wishes & wish::POSITION != 0 && !t.is_unrecorded();
    let state = wishes & wish::STATE != 0 && t.regime.quiet && !t.is_unrecorded();
    let mark = wishes & wish::MARK != 0;
    t.schedule.is_due(t.pos) || keyframe || position || state || mark
}

/// Writes key frames and digests that are due.
fn observe(t: &mut Thread) {
    if !due(t) || t.ctx.rip == 0 {
        return;
    }
    t.observe();
}
