//! Memory that the program asked for: which call gave it, and which one took it back.
//!
//! Calls of the functions that give out and take back memory are found by replay, in whatever file they are: those of C, the operators
//! `new` and `delete` of C++, and the system calls `mmap`, `mremap` and `munmap`. A call that such a function makes itself belongs to
//! it, and is not counted.

use crate::{Inspector, Result};
use hindsight_timeline::{
    Breakpoint, Call, Cancel, Direction, Filter, Happening, Kind, KindOf, Position, Reason, Scope,
    Stops, ThreadId, error_name, syscall_name, syscall_number,
};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// What a function does with memory.
#[derive(Clone, Copy)]
enum Does {
    /// Gives so many bytes; the arguments say how many.
    Gives(fn(&[u64; 6]) -> u64),
    /// The same, and writes the address to where its first argument points.
    GivesAt(fn(&[u64; 6]) -> u64),
    /// Takes back what its first argument points to, and gives so many bytes.
    Resizes(fn(&[u64; 6]) -> u64),
    /// Takes back what its first argument points to.
    Takes,
}

/// The functions, by the names of their symbols.
const FUNCTIONS: &[(&str, Does)] = &[
    ("malloc", Does::Gives(|a| a[0])),
    ("calloc", Does::Gives(|a| a[0].saturating_mul(a[1]))),
    ("aligned_alloc", Does::Gives(|a| a[1])),
    ("memalign", Does::Gives(|a| a[1])),
    ("valloc", Does::Gives(|a| a[0])),
    ("pvalloc", Does::Gives(|a| a[0])),
    ("posix_memalign", Does::GivesAt(|a| a[2])),
    ("realloc", Does::Resizes(|a| a[1])),
    ("reallocarray", Does::Resizes(|a| a[1].saturating_mul(a[2]))),
    ("free", Does::Takes),
    ("cfree", Does::Takes),
    ("_Znwm", Does::Gives(|a| a[0])),
    ("_Znam", Does::Gives(|a| a[0])),
    ("_ZnwmRKSt9nothrow_t", Does::Gives(|a| a[0])),
    ("_ZnamRKSt9nothrow_t", Does::Gives(|a| a[0])),
    ("_ZnwmSt11align_val_t", Does::Gives(|a| a[0])),
    ("_ZnamSt11align_val_t", Does::Gives(|a| a[0])),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", Does::Gives(|a| a[0])),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", Does::Gives(|a| a[0])),
    ("_ZdlPv", Does::Takes),
    ("_ZdaPv", Does::Takes),
    ("_ZdlPvm", Does::Takes),
    ("_ZdaPvm", Does::Takes),
    ("_ZdlPvRKSt9nothrow_t", Does::Takes),
    ("_ZdaPvRKSt9nothrow_t", Does::Takes),
    ("_ZdlPvSt11align_val_t", Does::Takes),
    ("_ZdaPvSt11align_val_t", Does::Takes),
    ("_ZdlPvmSt11align_val_t", Does::Takes),
    ("_ZdaPvmSt11align_val_t", Does::Takes),
];

/// `MAP_ANONYMOUS`.
const ANONYMOUS: u64 = 0x20;
const PAGE: u64 = 4096;

/// A call that gave out or took back memory.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Handed {
    /// The thread that made it.
    pub thread: ThreadId,
    /// The instant before the function's first instruction, or before the system call.
    pub position: Position,
    /// The number of instructions that the thread had completed there.
    pub count: u64,
    /// The function, or the system call.
    pub function: Arc<str>,
    /// The address to which it returned. `None`: it did not, or it is a system call.
    pub to: Option<u64>,
}

/// Memory that the program asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Allocation {
    /// The call that gave it.
    pub given: Handed,
    /// Its first address.
    pub address: u64,
    /// How many bytes were asked for.
    pub size: u64,
    /// The call that took it back. `None`: none did within the recording.
    pub taken: Option<Handed>,
}

/// What happens to memory, in the order of time.
enum Event {
    Gives(Allocation),
    Takes(u64, Handed),
    /// The kernel maps something here, and takes what was there.
    Maps(Range<u64>, Option<Allocation>, Handed),
    /// The kernel takes what is mapped here.
    Unmaps(Range<u64>, Handed),
}

/// Memory that system calls gave, and which of it is still there.
#[derive(Default)]
struct Mapped {
    /// By the first address: the last one, and the number of the allocation.
    live: BTreeMap<u64, (u64, usize)>,
    /// The bytes that are left of each allocation.
    left: HashMap<usize, u64>,
}

impl Mapped {
    fn give(&mut self, range: Range<u64>, n: usize) {
        self.left.insert(n, range.end - range.start);
        self.live.insert(range.start, (range.end, n));
    }

    /// Takes a range; the allocations of which nothing is left.
    fn take(&mut self, range: &Range<u64>) -> Vec<usize> {
        let touched: Vec<(u64, u64, usize)> = (self.live.range(..range.end).rev())
            .take_while(|(_, (end, _))| *end > range.start)
            .map(|(start, (end, n))| (*start, *end, *n))
            .collect();
        let mut gone = Vec::new();
        for (start, end, n) in touched {
            self.live.remove(&start);
            if start < range.start {
                self.live.insert(start, (range.start, n));
            }
            if range.end < end {
                self.live.insert(range.end, (end, n));
            }
            let taken = end.min(range.end) - start.max(range.start);
            if let Some(left) = self.left.get_mut(&n) {
                *left = left.saturating_sub(taken);
                if *left == 0 {
                    self.left.remove(&n);
                    gone.push(n);
                }
            }
        }
        gone
    }
}

/// All memory that a program image asked for with success, in the order in which it got it. Memory that its parent asked for before a
/// `fork` is not listed.
///
/// The first question about an image replays its threads twice: once to find the calls, which are then remembered and saved beside the
/// trace, and once for their arguments.
///
/// # Errors
/// The recording does not answer, or it was cancelled.
pub fn allocations(
    inspector: &mut Inspector,
    image: u32,
    cancel: &Cancel,
) -> Result<Vec<Allocation>> {
    let mut known: HashMap<u64, (Arc<str>, Does)> = HashMap::new();
    for (symbol, does) in FUNCTIONS {
        for (address, name) in inspector.functions(image, symbol)? {
            known.entry(address).or_insert((name.into(), *does));
        }
    }
    let mut functions: Vec<u64> = known.keys().copied().collect();
    functions.sort_unstable();
    let of_image = Filter {
        image: Some(image),
        ..Filter::default()
    };
    let timeline = inspector.timeline.clone();
    let all = timeline.calls_of(&functions, &of_image, cancel)?;
    let outer = outermost(&all);
    let mut events: Vec<(Position, Event)> = Vec::new();
    let points = |f: u64| matches!(known.get(&f), Some((_, Does::GivesAt(_))));
    let what = (&all[..], &functions[..]);
    arguments(inspector, image, what, (&points, cancel), |n, a, at| {
        if !outer[n] {
            return;
        }
        let c = &all[n];
        let Some((name, does)) = known.get(&c.function) else {
            return;
        };
        let handed = Handed {
            thread: c.thread,
            position: c.position,
            count: c.count,
            function: Arc::clone(name),
            to: c.returned.map(|r| r.to),
        };
        let result = c.returned.map_or(0, |r| r.value);
        let (size, address) = match does {
            Does::Takes => (None, 0),
            Does::Gives(size) | Does::Resizes(size) => (Some(size(a)), result),
            Does::GivesAt(size) => (Some(size(a)), at.filter(|_| result == 0).unwrap_or(0)),
        };
        let failed = matches!(does, Does::Resizes(_)) && address == 0 && size != Some(0);
        if matches!(does, Does::Takes | Does::Resizes(_)) && a[0] != 0 && !failed {
            events.push((c.position, Event::Takes(a[0], handed.clone())));
        }
        if let (Some(size), Some(back)) = (size, c.returned)
            && address != 0
        {
            let given = Allocation {
                given: handed,
                address,
                size,
                taken: None,
            };
            events.push((back.position, Event::Gives(given)));
        }
    })?;
    mappings(inspector, image, &all, &mut events)?;
    events.sort_by_key(|e| e.0);
    let mut out: Vec<Allocation> = Vec::new();
    let mut live: HashMap<u64, usize> = HashMap::new();
    let mut mapped = Mapped::default();
    for (_, e) in events {
        match e {
            Event::Maps(range, given, by) => {
                for n in mapped.take(&range) {
                    out[n].taken = Some(by.clone());
                }
                if let Some(a) = given {
                    mapped.give(range, out.len());
                    out.push(a);
                }
            }
            Event::Unmaps(range, by) => {
                for n in mapped.take(&range) {
                    out[n].taken = Some(by.clone());
                }
            }
            Event::Gives(a) => {
                live.insert(a.address, out.len());
                out.push(a);
            }
            Event::Takes(address, by) => {
                if let Some(n) = live.remove(&address) {
                    out[n].taken = Some(by);
                }
            }
        }
    }
    Ok(out)
}

/// Which calls were not made by another one of them.
fn outermost(all: &[Call]) -> Vec<bool> {
    // Up to where the last outermost call of each thread goes.
    let mut until: HashMap<ThreadId, u64> = HashMap::new();
    let mut outer = vec![true; all.len()];
    let mut order: Vec<usize> = (0..all.len()).collect();
    // Of two that begin at the same instant, the longer one is the outer one.
    order.sort_by_key(|n| {
        let c = &all[*n];
        let end = c.returned.map_or(c.count, |r| r.count);
        (c.thread, c.count, std::cmp::Reverse(end))
    });
    for n in order {
        let c = &all[n];
        let end = until.entry(c.thread).or_default();
        match c.count < *end {
            true => outer[n] = false,
            // A call that was left by an exception has no end.
            false => *end = c.returned.map_or(c.count, |r| r.count),
        }
    }
    outer
}

/// Tells `each` the arguments of each call, by its number; and the word to which the first argument points when the call has
/// returned, if `points` says of the function that it leaves the address there.
fn arguments(
    inspector: &Inspector,
    image: u32,
    (all, functions): (&[Call], &[u64]),
    (points, cancel): (&dyn Fn(u64) -> bool, &Cancel),
    mut each: impl FnMut(usize, &[u64; 6], Option<u64>),
) -> Result<()> {
    let timeline = &inspector.timeline;
    let Some(first) = all.first() else {
        return Ok(());
    };
    let mut numbers: HashMap<(ThreadId, u64), usize> = HashMap::new();
    for (n, c) in all.iter().enumerate() {
        numbers.insert((c.thread, c.count), n);
    }
    let mut stops = Stops {
        breakpoints: functions
            .iter()
            .map(|f| Breakpoint {
                image: Some(image),
                ..Breakpoint::at(0, *f)
            })
            .collect(),
        ..Stops::default()
    };
    let mut cursor = timeline.cursor()?;
    // Looks at what calls left behind.
    let mut behind = timeline.cursor()?;
    cursor.cancellable(cancel, |cursor| cursor.seek_call(first))?;
    loop {
        cancel.check()?;
        if let Some(n) = numbers.remove(&(cursor.thread(), cursor.count())) {
            let a = Call::arguments(&cursor.registers()?);
            let mut at = None;
            if let Some(back) = all[n].returned.filter(|_| points(all[n].function)) {
                behind.seek_count(all[n].thread, back.count)?;
                let word = behind.known_memory(a[0], 8)?.whole();
                at = word.and_then(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
            }
            each(n, &a, at);
        }
        if numbers.is_empty() {
            return Ok(());
        }
        let stop = cursor.cancellable(cancel, |cursor| {
            cursor.run(Direction::Forward, Scope::All, &mut stops)
        })?;
        match stop.reason {
            Reason::Breakpoint { .. } => {}
            _ => {
                cancel.check()?;
                break;
            }
        }
    }
    // A handler's first instruction is behind the instant at which the signal comes.
    let mut rest: Vec<usize> = numbers.into_values().collect();
    rest.sort_unstable();
    for n in rest {
        cursor.cancellable(cancel, |cursor| cursor.seek_call(&all[n]))?;
        each(n, &Call::arguments(&cursor.registers()?), None);
    }
    Ok(())
}

/// Adds what system calls gave and took that none of the functions made.
fn mappings(
    inspector: &Inspector,
    image: u32,
    all: &[Call],
    events: &mut Vec<(Position, Event)>,
) -> Result<()> {
    let calls = ["mmap", "munmap", "mremap"].map(syscall_number);
    let found = inspector.timeline.events(&Filter {
        image: Some(image),
        kinds: vec![KindOf::Syscall],
        syscalls: calls.into_iter().flatten().collect(),
        ..Filter::default()
    })?;
    let mut within: HashMap<ThreadId, Vec<(u64, u64)>> = HashMap::new();
    for c in all {
        let its = within.entry(c.thread).or_default();
        its.extend(c.returned.map(|r| (c.count, r.count)));
    }
    within.values_mut().for_each(|v| v.sort_unstable());
    let made_by_one = |h: &Happening| {
        within.get(&h.thread).is_some_and(|v| {
            let n = v.partition_point(|r| r.0 <= h.count);
            // Calls that one of them makes lie within it, and may end before.
            v[..n].iter().rev().take(NESTED).any(|r| h.count < r.1)
        })
    };
    for h in found {
        let Kind::Syscall {
            number,
            args,
            result: Some(result),
        } = h.kind
        else {
            continue;
        };
        if error_name(result).is_some() || made_by_one(&h) {
            continue;
        }
        let name = syscall_name(number);
        let handed = Handed {
            thread: h.thread,
            position: h.position,
            count: h.count,
            function: name.as_str().into(),
            to: None,
        };
        // The kernel maps whole pages.
        let pages = |start: u64, len: u64| {
            let end = start.saturating_add(len).saturating_add(PAGE - 1);
            start..(end & !(PAGE - 1)).max(start)
        };
        let given = |size: u64| Allocation {
            given: handed.clone(),
            address: result,
            size,
            taken: None,
        };
        match name.as_str() {
            "mmap" => {
                let its = (args[3] & ANONYMOUS != 0).then(|| given(args[1]));
                let maps = Event::Maps(pages(result, args[1]), its, handed.clone());
                events.push((h.position, maps));
            }
            "mremap" => {
                let unmaps = Event::Unmaps(pages(args[0], args[1]), handed.clone());
                events.push((h.position, unmaps));
                let maps =
                    Event::Maps(pages(result, args[2]), Some(given(args[2])), handed.clone());
                events.push((h.position, maps));
            }
            _ => {
                let unmaps = Event::Unmaps(pages(args[0], args[1]), handed.clone());
                events.push((h.position, unmaps));
            }
        }
    }
    Ok(())
}

/// So many calls are looked at that may enclose another one.
const NESTED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_gone_when_its_last_byte_is() {
        let mut m = Mapped::default();
        m.give(0x1000..0x5000, 7);
        m.give(0x8000..0x9000, 8);
        assert_eq!(m.take(&(0x2000..0x3000)), [0usize; 0]);
        assert_eq!(m.take(&(0..0x1000)), [0usize; 0]);
        assert_eq!(m.take(&(0..0x2000)), [0usize; 0]);
        // What is left of one, and all of another.
        assert_eq!(m.take(&(0x2800..0xa000)), [8, 7]);
        assert!(m.live.is_empty() && m.left.is_empty());
        m.give(0x1000..0x2000, 9);
        assert_eq!(m.take(&(0x1000..0x2000)), [9]);
        assert_eq!(m.take(&(0x1000..0x2000)), [0usize; 0]);
    }
}
