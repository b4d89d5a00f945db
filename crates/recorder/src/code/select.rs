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

use crate::memory::maps::{self, regions};
use crate::stream::ring;
use crate::sys::lock::Lock;
use crate::sys::symtab::{self, Sought};
use crate::sys::{config, guard, program};
use crate::thread::selection::{self, Return, flag};
use crate::thread::{Thread, gap};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ops::Range;
use hindsight_events::GapReason;
use hindsight_events::select::{Function, What, module_matches, rules};
use hindsight_isa::regs::RSP;

/// Executable memory, and whether its code is recorded.
struct Area {
    range: Range<u64>,
    recorded: bool,
}

/// A function at which recording begins or ends.
struct Trigger {
    addr: u64,
    what: What,
    rule: usize,
}

/// What is known of the present mappings.
struct Table {
    /// The value of [`maps::version`] for which this holds.
    version: u64,
    areas: Vec<Area>,
    triggers: Vec<Trigger>,
    /// Files that were searched for functions, and what was found.
    files: Vec<(Box<[u8]>, Found)>,
}

/// The number of each rule, and the offset of its function in the file.
type Found = Vec<(usize, u64)>;

static TABLE: Lock<Table> = Lock::new(Table {
    version: 0,
    areas: Vec::new(),
    triggers: Vec::new(),
    files: Vec::new(),
});

/// Keeps the table from changing while the process is copied.
pub fn hold() -> impl Sized {
    TABLE.lock()
}

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
        let mut table = TABLE.lock();
        recorded = table.is_recorded(pc);
        let hit = table.triggers.iter().find(|t| t.addr == pc);
        let hit = hit.map(|t| (t.what, t.rule));
        drop(table);
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

/// Whether the thread has to come to the runtime each time that it comes to `pc`.
pub fn is_watched(t: &Thread, pc: u64) -> bool {
    selection::flags() & (flag::FROM | flag::TO) != 0
        && (t.selection.until.as_ref().is_some_and(|u| u.pc == pc)
            || TABLE.lock().triggers.iter().any(|t| t.addr == pc))
}

/// How many of the `n` bytes from `pc` on may be in one block.
pub fn room(pc: u64, n: usize) -> usize {
    if selection::flags() & (flag::FROM | flag::TO) == 0 {
        return n;
    }
    let table = TABLE.lock();
    let ahead = |t: &Trigger| t.addr.checked_sub(pc).filter(|d| *d > 0);
    let next = table.triggers.iter().filter_map(ahead).min();
    next.map_or(n, |d| n.min(d as usize))
}

/// Called when the thread comes to `pc`. `hit` is the rule whose function begins there.
fn window(t: &mut Thread, pc: u64, hit: Option<(What, usize)>, flags: u32) {
    let sp = t.ctx.gpr[RSP];
    if t.selection.on {
        // The call has returned, or what it called has left it in another way.
        let over = |u: &Return| sp >= u.sp && (pc == u.pc || u.stack.contains(&sp));
        if t.selection.until.as_ref().is_some_and(over) {
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
            t.selection.until = returns(t);
        }
    }
}

/// Where the function returns whose first instruction comes next.
fn returns(t: &mut Thread) -> Option<Return> {
    let sp = t.ctx.gpr[RSP];
    let pc = guard::load_u64(sp).ok()?;
    let stack = regions().find(sp).map_or(0..0, |r| r.start..r.end);
    for targets in &mut t.ctx.ibl {
        targets.forget(pc);
    }
    Some(Return {
        pc,
        sp: sp + 8,
        stack,
    })
}

impl Table {
    /// Whether the code at `pc` is in a module that is recorded.
    fn is_recorded(&mut self, pc: u64) -> bool {
        let version = maps::version();
        if self.version != version {
            self.version = version;
            self.areas.clear();
            self.triggers.clear();
        }
        match self.areas.iter().find(|a| a.range.contains(&pc)) {
            Some(a) => a.recorded,
            None => self.look(pc),
        }
    }

    /// Finds out about the mapping at `pc`.
    fn look(&mut self, pc: u64) -> bool {
        let r = regions();
        let Some(region) = r.find(pc).copied() else {
            // A jump to unmapped memory is not the module's.
            return true;
        };
        let path: Box<[u8]> = r.path(&region).into();
        drop(r);
        let recorded = is_selected(&path);
        for (rule, offset) in self.functions(&path) {
            let rest = offset.checked_sub(region.offset);
            let Some(at) = rest.filter(|at| *at < region.end - region.start) else {
                continue;
            };
            ring::note_rule(rule, false);
            if let Some(r) = rules(&config::get().select).nth(rule) {
                let (addr, what) = (region.start + at, r.what);
                self.triggers.push(Trigger { addr, what, rule });
            }
        }
        let range = region.start..region.end;
        // In front, since it is asked for next.
        self.areas.insert(0, Area { range, recorded });
        recorded
    }

    /// The functions that rules name in a file.
    fn functions(&mut self, path: &[u8]) -> Found {
        if let Some((_, list)) = self.files.iter().find(|f| *f.0 == *path) {
            return list.clone();
        }
        let mut numbers = Vec::new();
        let mut sought = Vec::new();
        for (i, r) in rules(&config::get().select).enumerate() {
            if !matches!(r.what, What::From | What::To) {
                continue;
            }
            let Some(f) = Function::parse(r.text) else {
                continue;
            };
            if f.module().is_none_or(|m| is_named(m, path)) {
                numbers.push(i);
                sought.push(match f {
                    Function::Symbol { name, .. } => Sought::Name(name),
                    Function::Address { address, .. } => Sought::Address(address),
                });
            }
        }
        let mut list = Vec::new();
        if !sought.is_empty() && path.starts_with(b"/") {
            symtab::find(path, &sought, |i, at| list.push((numbers[i], at)));
        }
        self.files.push((path.into(), list.clone()));
        list
    }
}

/// Whether the rules select code of this module.
fn is_selected(path: &[u8]) -> bool {
    let (mut only, mut chosen, mut skipped) = (false, false, false);
    for (i, r) in rules(&config::get().select).enumerate() {
        let hit = || {
            let hit = is_named(r.text, path);
            if hit {
                ring::note_rule(i, true);
            }
            hit
        };
        match r.what {
            What::Only => {
                only = true;
                chosen |= hit();
            }
            What::Skip => skipped |= hit(),
            _ => {}
        }
    }
    (chosen || !only) && !skipped
}

/// Whether a pattern names the module. For the program's file, the name that was executed counts,
/// too.
fn is_named(pattern: &[u8], path: &[u8]) -> bool {
    let execfn = CStr::from_bytes_until_nul(&config::get().execfn).map_or(&[][..], CStr::to_bytes);
    module_matches(pattern, path)
        || !path.is_empty() && path == program::loaded() && module_matches(pattern, execfn)
}
