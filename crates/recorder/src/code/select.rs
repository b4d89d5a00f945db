//! Which code is recorded. That depends on three things:
//!
//! - for each block, on its module;
//! - for each thread, on the functions that it enters and leaves;
//! - on what the program asks for.
//!
//! Recorded code and plain code of the same address are both translated, and never linked to each
//! other. A thread that goes from one to the other passes [`arrive`], which begins or ends a gap.
//! Within one kind of code nothing is looked at. A function at which recording begins or ends is
//! never linked to.

use crate::code::places;
use crate::stream::ring;
use crate::sys::config;
use crate::thread::selection::{self, flag};
use crate::thread::{Thread, gap};
use hindsight_events::GapReason;
use hindsight_events::select::{What, rules};
use hindsight_isa::regs::RSP;

/// Reads the rules. Called before the first thread is made.
pub fn init() {
    if config::get().plain != 0 {
        return;
    }
    let flags = rules(&config::get().select).fold(0, |f, r| {
        f | match r.what {
            What::Only => flag::ONLY,
            What::Skip => flag::SKIP,
            What::From => flag::FROM,
            What::To => flag::TO,
            What::Stopped => flag::STOPPED,
        }
    });
    selection::ask(flags);
}

/// The program has asked for the calling thread to be recorded, or not to be.
pub fn set_stopped(t: &mut Thread, stopped: bool) {
    selection::ask(flag::USED);
    if stopped {
        crate::memory::regime::leave_soon(t, "the program stops its recording");
    }
    t.selection.stopped = stopped;
}

/// Whether the thread is recorded, as far as that does not depend on the module of its code.
pub fn is_on(t: &Thread) -> bool {
    t.emit.ctl().is_some() && !t.selection.stopped && t.selection.on
}

/// Begins or ends a gap. The thread stands between two instructions, before the one at `pc`.
pub fn arrive(t: &mut Thread, pc: u64) {
    let flags = selection::flags();
    if flags == 0 {
        return;
    }
    let mut recorded = true;
    if flags & flag::MODULES != 0 {
        let hit;
        (recorded, hit) = places::rules_at(pc);
        if flags & (flag::FROM | flag::TO) != 0 {
            window(t, pc, hit, flags);
        }
    }
    let reason = if t.selection.stopped {
        Some(GapReason::Stopped)
    } else if !t.selection.on {
        Some(GapReason::Window)
    } else if !recorded {
        Some(GapReason::Module)
    } else {
        None
    };
    match (t.gaps.reason(), reason) {
        (None, Some(r)) => gap::begin(t, r),
        (Some(_), None) => gap::end(t),
        (Some(old), Some(new)) if new.is_big() && !old.is_big() => gap::widen(t, new),
        _ => {}
    }
}

/// Whether the thread has to come to the runtime the next time that it comes to `pc`: a call returns there.
pub fn is_awaited(t: &Thread, pc: u64) -> bool {
    t.selection.until.as_ref().is_some_and(|u| u.pc == pc)
}

/// Called when the thread comes to `pc`. `hit` is the rule whose function begins there.
fn window(t: &mut Thread, pc: u64, hit: Option<(What, usize)>, flags: u32) {
    let sp = t.ctx.gpr[RSP];
    if t.selection.on {
        if t.selection
            .until
            .as_ref()
            .is_some_and(|u| u.is_over(pc, sp))
        {
            (t.selection.on, t.selection.until) = (false, None);
        } else if let Some((What::To, rule)) = hit {
            ring::note_rule(rule, true);
            t.selection.on = false;
            return;
        }
    }
    if let Some((What::From, rule)) = hit
        && !t.selection.on
    {
        ring::note_rule(rule, true);
        t.selection.on = true;
        if flags & flag::TO == 0 {
            t.selection.until = places::return_of(t);
        }
    }
}
