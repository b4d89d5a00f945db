//! What is known of the program's executable memory: whether the code of a mapping is to be recorded, and at
//! which functions the runtime wants to look. Functions are found by name when code of their file is first
//! executed.
//!
//! No jump is ever linked to such a function, and it begins a block. So each call of it comes to the runtime.

use crate::memory::fresh;
use crate::memory::maps::{self, regions};
use crate::stream::ring;
use crate::sys::allocators::{self, Allocator};
use crate::sys::lock::Lock;
use crate::sys::symtab::{self, Sought};
use crate::sys::{config, guard, program};
use crate::thread::Thread;
use crate::thread::selection::{self, Return, flag};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ops::Range;
use hindsight_events::select::{Function, What, module_matches, rules};
use hindsight_isa::regs::RSP;

/// Executable memory, and whether its code is recorded.
struct Area {
    range: Range<u64>,
    recorded: bool,
}

/// Why the runtime looks at a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Recording begins or ends there, by the rule of this number.
    Rule(usize, What),
    /// The program gets memory by it.
    Allocator(Allocator),
    /// Its file is glibc.
    Glibc,
}

/// A function at which the runtime looks.
struct Place {
    addr: u64,
    why: Interest,
}

/// What is known of the present mappings.
struct Table {
    /// The value of [`maps::version`] for which this holds.
    version: u64,
    areas: Vec<Area>,
    places: Vec<Place>,
    /// Files that were searched for functions, and what was found.
    files: Vec<(Box<[u8]>, Found)>,
}

/// Why each function is of interest, and its offset in the file.
type Found = Vec<(Interest, u64)>;

static TABLE: Lock<Table> = Lock::new(Table {
    version: 0,
    areas: Vec::new(),
    places: Vec::new(),
    files: Vec::new(),
});

/// Keeps the table from changing while the process is copied.
pub fn hold() -> impl Sized {
    TABLE.lock()
}

/// Whether the runtime looks at any function.
fn are_wanted() -> bool {
    selection::flags() & (flag::FROM | flag::TO) != 0 || fresh::is_wanted()
}

/// Whether the code at `pc` is in a module that is recorded, and the rule whose function begins there.
pub fn rules_at(pc: u64) -> (bool, Option<(What, usize)>) {
    let mut table = TABLE.lock();
    let recorded = table.area(pc);
    let hit = table.at(pc).find_map(|why| match why {
        Interest::Rule(rule, what) => Some((what, rule)),
        _ => None,
    });
    (recorded, hit)
}

/// What the function does that begins at `pc`, if the program gets memory by it.
pub fn allocator_at(pc: u64) -> Option<Allocator> {
    let mut table = TABLE.lock();
    table.area(pc);
    table.at(pc).find_map(|why| match why {
        Interest::Allocator(what) => Some(what),
        _ => None,
    })
}

/// Whether the runtime wants to look each time that a thread comes to `pc`.
pub fn is_watched(pc: u64) -> bool {
    are_wanted() && TABLE.lock().places.iter().any(|p| p.addr == pc)
}

/// How many of the `n` bytes from `pc` on may be in one block.
pub fn room(pc: u64, n: usize) -> usize {
    if !are_wanted() {
        return n;
    }
    let table = TABLE.lock();
    let ahead = |p: &Place| p.addr.checked_sub(pc).filter(|d| *d > 0);
    let next = table.places.iter().filter_map(ahead).min();
    next.map_or(n, |d| n.min(d as usize))
}

/// Where the function returns whose first instruction comes next. The thread's way there leads through the
/// runtime, as long as the thread says that it watches the address.
pub fn return_of(t: &mut Thread) -> Option<Return> {
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
    /// Why the runtime looks at `pc`.
    fn at(&self, pc: u64) -> impl Iterator<Item = Interest> {
        let here = self.places.iter().filter(move |p| p.addr == pc);
        here.map(|p| p.why)
    }

    /// Whether the code at `pc` is in a module that is recorded. From here on its functions are known.
    fn area(&mut self, pc: u64) -> bool {
        let version = maps::version();
        if self.version != version {
            self.version = version;
            self.areas.clear();
            self.places.clear();
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
        for (why, offset) in self.functions(&path) {
            let rest = offset.checked_sub(region.offset);
            let Some(at) = rest.filter(|at| *at < region.end - region.start) else {
                continue;
            };
            match why {
                Interest::Rule(rule, _) => ring::note_rule(rule, false),
                Interest::Allocator(_) => fresh::note_allocator(),
                Interest::Glibc => continue,
            }
            let addr = region.start + at;
            self.places.push(Place { addr, why });
        }
        let range = region.start..region.end;
        // In front, since it is asked for next.
        self.areas.insert(0, Area { range, recorded });
        recorded
    }

    /// The functions of interest in a file.
    fn functions(&mut self, path: &[u8]) -> Found {
        if let Some((_, list)) = self.files.iter().find(|f| *f.0 == *path) {
            return list.clone();
        }
        let (mut reasons, mut sought) = (Vec::new(), Vec::new());
        for (i, r) in rules(&config::get().select).enumerate() {
            if !matches!(r.what, What::From | What::To) {
                continue;
            }
            let Some(f) = Function::parse(r.text) else {
                continue;
            };
            if f.module().is_none_or(|m| is_named(m, path)) {
                reasons.push(Interest::Rule(i, r.what));
                sought.push(match f {
                    Function::Symbol { name, .. } => Sought::Name(name),
                    Function::Address { address, .. } => Sought::Address(address),
                });
            }
        }
        if fresh::is_wanted() {
            for (name, what) in allocators::NAMES {
                reasons.push(Interest::Allocator(what));
                sought.push(Sought::Public(name));
            }
            reasons.push(Interest::Glibc);
            sought.push(Sought::Public(allocators::GLIBC));
        }
        let mut list = Vec::new();
        if !sought.is_empty() && path.starts_with(b"/") {
            symtab::find(path, &sought, |i, at| list.push((reasons[i], at)));
        }
        let is_glibc = list.iter().any(|(why, _)| *why == Interest::Glibc);
        // A program may be linked with parts of glibc, and have another allocator.
        if !is_glibc || *path == *program::loaded() {
            // How much of such a block is fresh stands where only its own allocator finds it.
            for (why, _) in &mut list {
                if let Interest::Allocator(Allocator::Resized | Allocator::ResizedArray) = why {
                    *why = Interest::Allocator(Allocator::Zeroed);
                }
            }
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
